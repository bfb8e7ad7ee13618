"""The files of a log that are written and not synced yet, and the sync in progress.

begin ──► the files, in this order ──► end: the lowest offset that the log was truncated to
                  │
                  └── cut, by a truncation: lowers that
"""

from sparklog.model import Offset
from sparklog_server.disk.door import DiskFile

from .cutting import is_of_rest

NO_CUT = Offset((1 << 63) - 1)


class Unsynced:
    """The files to sync of one log. Invariants: at most one sync is in progress; the log file of the active
    segment, which every sync includes, is not in `files`.
    """

    __slots__ = ("_cut_to", "files", "is_syncing")

    def __init__(self, files: list[DiskFile]) -> None:
        self.files = files
        self.is_syncing = False
        self._cut_to = NO_CUT

    def begin(self) -> list[DiskFile]:
        """The files of a sync that begins now; later writes belong to the next."""
        files, self.files = self.files, []
        self.is_syncing = True
        return files

    def cut(self, end_offset: Offset, active_base_offset: Offset) -> None:
        """Note that the log was truncated to `end_offset`, which lies in the active segment."""
        self.files = [file for file in self.files if is_of_rest(file.path, active_base_offset)]
        if self.is_syncing:
            self._cut_to = min(self._cut_to, end_offset)

    def end(self) -> Offset:
        """End the sync. Returns the lowest offset to which the log was truncated meanwhile, `NO_CUT` if it
        was not.
        """
        cut_to, self._cut_to = self._cut_to, NO_CUT
        self.is_syncing = False
        return cut_to
