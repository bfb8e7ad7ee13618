"""The disk space of a log directory for records of producers: the last bytes of the disk are a reserve that
producers may not use.

    roomy ── a batch would reach into the reserve, or the disk refuses an append for want of room ──► full
      ▲                                                                                                │
      └────────────── the reserve is free again, and a little more than it ────────────────────────────┘
                    after a refused append: for a second none is tried, and for another none is refused

The reserve lets the broker continue while producers wait: metadata, committed offsets, transactions and their
markers, checkpoints, compaction and retention may use it. The operating system is queried at most every 100
ms and once for each 16 MiB appended, so other writers on the same disk may take some of the reserve
unnoticed. Its figures do not show a quota: only a write shows whether a quota is still exceeded.
"""

from collections.abc import Callable
from typing import Final

from sparklog.model import Instant, Micros
from sparklog_server.agenda import Agenda
from sparklog_server.disk.door import OutOfDescriptors, StorageError

_DEFAULT_SHARE: Final = 100
"""The default reserve is one part of so many of the disk."""
_DEFAULT_BYTES_MAX: Final = 1 << 30
_KNOWN_FOR_US: Final = 100_000
_KNOWN_BYTES_MAX: Final = 16 << 20
_LOOK_US: Final = 1_000_000
"""While the disk is full: the interval of retries of postponed work, and of checks for the end of the
episode.
"""
_MARGIN_SHARE: Final = 8
"""The part of the reserve by which the free space must exceed it before producers are served again, so that a
few bytes do not end the episode.
"""


class DiskReserve:
    """The disk space of one log directory.

    Invariants: one event is logged for each change of `is_full`; while it is True, `look_at_us`, the next
    time for `is_look_due`, is not None.
    """

    __slots__ = (
        "_agenda",
        "_ask",
        "_began_us",
        "_is_on_trial",
        "_known_until_us",
        "_left_bytes",
        "_needed_bytes",
        "_path",
        "_refused",
        "_reserve_bytes",
        "_trace",
        "_trial_us",
        "is_full",
        "look_at_us",
        "refusal",
        "reserve_bytes",
    )

    def __init__(
        self,
        path: str,
        ask: Callable[[], tuple[int, int]],
        agenda: Agenda,
        *,
        reserve_bytes: int,
        trace: Callable[..., None],
    ) -> None:
        """`ask` returns the total and usable bytes of the disk, and may raise StorageError; a `reserve_bytes`
        of -1 is the default.
        """
        self.is_full = False
        self.refusal = ""
        """The error message for a producer while the disk is full."""
        self._path = path
        self._ask = ask
        self._agenda = agenda
        self._reserve_bytes = reserve_bytes
        self.reserve_bytes = max(reserve_bytes, 0)  # a share of the disk, once that was asked
        self._trace = trace
        self._left_bytes = 0  # beyond the reserve, according to the last query
        self._known_until_us = 0
        self.look_at_us: Micros | None = None
        self._began_us = 0
        self._needed_bytes = 0
        self._refused = 0
        self._trial_us: int | None = None  # when to test whether writes are still refused
        self._is_on_trial = False  # producers are served although the disk is full

    def takes(self, size: int, now: Instant) -> bool:
        """Whether a producer may append `size` bytes; counts them as appended if so."""
        self._left_bytes -= size
        if self._left_bytes >= 0 and now.mono_us < self._known_until_us:
            return True
        return self._decide(size, now)

    def has_room(self, now: Instant) -> bool:
        """Whether the reserve is free, for uses other than a batch: the creation of a topic."""
        return self.takes(0, now)

    def _decide(self, size: int, now: Instant) -> bool:
        if not self.is_full or now.mono_us >= self._known_until_us:
            self._look(size, now)
        if not self.is_full or self._is_on_trial:
            return True
        self._left_bytes = -1
        self._needed_bytes = max(self._needed_bytes, size)
        self._refused += 1
        return False

    def _look(self, size: int, now: Instant) -> None:
        self._known_until_us = now.mono_us + _KNOWN_FOR_US
        try:
            total, usable = self._ask()
        except StorageError:
            self._left_bytes = _KNOWN_BYTES_MAX  # a disk that fails is reported by the write itself
            return
        reserve = self.reserve_bytes = self._reserve(total)
        beyond = usable - reserve
        if not self.is_full and (beyond < size or beyond < 0):
            self._begin(usable, reserve, now)
        elif self.is_full:
            has_room = beyond >= max(reserve // _MARGIN_SHARE, self._needed_bytes, size)
            self._is_on_trial = has_room and self._trial_us is not None and now.mono_us >= self._trial_us
            if has_room and (self._trial_us is None or now.mono_us >= self._trial_us + _LOOK_US):
                self._end(usable, reserve, now)
        self._left_bytes = min(beyond, _KNOWN_BYTES_MAX) - size

    def _reserve(self, total: int) -> int:
        return (
            self._reserve_bytes
            if self._reserve_bytes >= 0
            else min(total // _DEFAULT_SHARE, _DEFAULT_BYTES_MAX)
        )

    def _begin(self, usable: int, reserve: int, now: Instant) -> None:
        self.is_full = True
        self._began_us = now.mono_us
        self.look_at_us = Micros(now.mono_us + _LOOK_US)
        self._agenda.has_deadlines = True
        self.refusal = (
            f"The disk of {self._path} has {usable} bytes left, of which producers may not use the last "
            f"{reserve}."
        )
        self._trace("disk-full", path=self._path, usable_bytes=usable, reserve_bytes=reserve)

    def _end(self, usable: int, reserve: int, now: Instant) -> None:
        self.is_full = False
        elapsed_ms = (now.mono_us - self._began_us) // 1000
        self._trace(
            "disk-no-longer-full",
            path=self._path,
            usable_bytes=usable,
            reserve_bytes=reserve,
            refused=self._refused,
            elapsed_ms=elapsed_ms,
        )
        self._needed_bytes = self._refused = 0
        self._trial_us, self._is_on_trial = None, False
        self.look_at_us = now.mono_us  # for postponed work
        self._agenda.has_deadlines = True

    def ran_out(self, error: StorageError, now: Instant) -> None:
        """A write was refused because the disk is full.

        If the disk has bytes beyond the reserve, and the call was not an append, the inodes or the blocks of
        a directory are used up: records still fit.
        """
        assert error.is_full, error
        if isinstance(error, OutOfDescriptors):
            self._trace("out-of-descriptors", path=self._path, reason=str(error))
            self._put_off(now)
            return
        is_append = error.call == "append"
        if self.is_full and (self._trial_us is None or not is_append):
            return  # a query of the disk, or the next append, shows the end of the episode
        if not self.is_full:
            try:
                total, usable = self._ask()
            except StorageError:
                total = usable = 0
            reserve = self._reserve(total)
            if usable > reserve and not is_append:
                if self.look_at_us is None:  # one log line a second
                    self._trace("disk-cannot-add-files", path=self._path, reason=str(error))
                self._put_off(now)
                return
            self._begin(usable, reserve, now)
            self.refusal = f"The disk of {self._path} is full: {error.reason}."
        self._trial_us, self._is_on_trial = now.mono_us + _LOOK_US, False
        self._known_until_us = now.mono_us + _KNOWN_FOR_US
        self._left_bytes = -1

    def _put_off(self, now: Instant) -> None:
        """Retry the work soon, although the disk has space."""
        if self.look_at_us is None:
            self.look_at_us = Micros(now.mono_us + _LOOK_US)
            self._agenda.has_deadlines = True

    def is_look_due(self, now: Instant) -> bool:
        """Whether postponed work is to be retried now; once more when the episode ends."""
        if self.look_at_us is None or self.look_at_us > now.mono_us:
            return False
        if self.is_full:
            self._look(0, now)
        self.look_at_us = Micros(now.mono_us + _LOOK_US) if self.is_full else None
        return True
