"""Which lines of the log are written: a peer that causes many must neither fill the disk nor hide the others.

a line ─► equal to one of the last seconds? ── yes ──► counted; the count is told when REPEAT_NS is over
                 │ no
                 └─► a token of its logger, and one of all? ── no ──► counted as dropped
                              │ yes
                              └─► written
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import structs

REPEAT_NS: Final = 10_000_000_000
"""For so long after a line, equal ones are counted."""
REMEMBERED_MAX: Final = 256
BURST: Final = 500
"""The lines that a logger may write at once, and then each second a tenth of them."""
BURST_IN_ALL: Final = 4 * BURST


class Written(msgspec.Struct, frozen=True):
    """A line that was written at `at_ns` and came `times` times again."""

    at_ns: int
    line: "Line"
    times: int


class Line(msgspec.Struct, frozen=True):
    """A line without its time. Lines with the same text are equal."""

    event: str
    text: str
    fields: dict[str, object]


class _Tokens:
    """Invariant: `left` is at most `most`; a tenth of it comes back each second."""

    __slots__ = ("left", "most", "refilled_ns")

    def __init__(self, most: int, now_ns: int) -> None:
        self.most = self.left = most
        self.refilled_ns = now_ns

    def has_one(self, now_ns: int) -> bool:
        due = (now_ns - self.refilled_ns) * self.most // 10_000_000_000
        if due > 0:
            self.left = min(self.most, self.left + due)
            self.refilled_ns = now_ns
        return self.left > 0


class LineBounds:
    """Invariants: `_written` has the lines of the last REPEAT_NS, at most REMEMBERED_MAX, in the order in
    which they were written; `dropped` the lines since the last report, by logger.
    """

    def __init__(self) -> None:
        self.dropped: dict[str, int] = {}
        self._written: dict[str, Written] = {}
        self._tokens: dict[str, _Tokens] = {}

    def admits(self, logger: str, line: Line, now_ns: int) -> bool:
        """Whether this line is to be written. `repeated` comes before it."""
        written = self._written.get(line.text)
        if written is not None:
            self._written[line.text] = structs.replace(written, times=written.times + 1)
            return False
        own, of_all = self._bucket(logger, BURST, now_ns), self._bucket("", BURST_IN_ALL, now_ns)
        if not own.has_one(now_ns) or not of_all.has_one(now_ns):
            self.dropped[logger] = self.dropped.get(logger, 0) + 1
            return False
        own.left -= 1
        of_all.left -= 1
        self._written[line.text] = Written(now_ns, line, 0)
        return True

    def repeated(self, now_ns: int, *, is_end: bool = False) -> Iterator[Written]:
        """The lines whose time is over and that came again; all of them at the end."""
        while self._written:
            text, written = next(iter(self._written.items()))  # the oldest
            is_over = now_ns - written.at_ns >= REPEAT_NS or len(self._written) >= REMEMBERED_MAX
            if not is_over and not is_end:
                return
            del self._written[text]
            if written.times:
                yield written

    def take_dropped(self, now_ns: int, *, is_end: bool = False) -> dict[str, int]:
        """The dropped lines by logger, every ten seconds at most; empty if there are none."""
        reports = self._bucket("reports", 1, now_ns)
        if not reports.has_one(now_ns) and not is_end:
            return {}
        reports.left -= 1
        dropped, self.dropped = self.dropped, {}
        return dropped

    def _bucket(self, name: str, most: int, now_ns: int) -> _Tokens:
        tokens = self._tokens.get(name)
        if tokens is None:
            tokens = self._tokens[name] = _Tokens(most, now_ns)
        return tokens
