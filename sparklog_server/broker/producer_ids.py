"""The producer ids that this broker may assign: one block from the controller at a time (KIP-730)."""

from sparklog.model import ProducerId
from sparklog_server.broker.session import Wakeable


class ProducerIds:
    """The half-open block `[next, limit)` of producer ids, and the requests that wait for the next block."""

    __slots__ = ("_limit", "_next", "is_asked", "waiting")

    def __init__(self) -> None:
        self._next = 0
        self._limit = 0
        self.is_asked = False
        self.waiting: list[Wakeable] = []

    @property
    def is_empty(self) -> bool:
        """Whether the block is used up."""
        return self._next == self._limit

    def take(self) -> ProducerId | None:
        """The next id, or None when the block is used up."""
        if self._next == self._limit:
            return None
        taken = ProducerId(self._next)
        self._next += 1
        return taken

    def granted(self, first: int, count: int) -> None:
        """The controller granted the block `[first, first + count)`; the rest of the old one is dropped."""
        self._next = first
        self._limit = first + count
        self.is_asked = False
