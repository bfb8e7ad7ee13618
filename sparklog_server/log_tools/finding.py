"""A fault that a check of a log directory reports."""

from typing import NamedTuple


class Finding(NamedTuple):
    """One fault: the file, the byte (None: the file as a whole), a description and a remedy. With `is_mended`
    it is the trace of a crash, which the broker repairs at its next start.
    """

    path: str
    position: int | None
    what: str
    remedy: str
    is_damage: bool = True
    is_mended: bool = False

    def __str__(self) -> str:
        place = self.path if self.position is None else f"{self.path}: byte {self.position}"
        return f"{place}: {self.what}; {self.remedy}"
