"""Requests about so many keys that they are answered over several turns: a slice of them each turn, and everybody else in between.

add ─► ready ──a turn──► a slice is asked ─► its replies are here ─► folded, in the order asked ─► ready ─► … ─► answered
                             └─► ready again at once, while few slices are under way
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, Protocol

from sparklog.model import Instant
from sparklog.wire.schema import Message
from sparklog_server.broker.session import Call, Parked

SLICE: Final = 32
"""How many keys are asked for in one turn: about half a millisecond, where each forgets a group."""
_UNDERWAY_MAX: Final = 4
"""So many slices wait for the disk together; all of them may be folded in one turn."""
_KEY_BYTES: Final = 64
"""What a key of a decoded request takes in memory, at least."""


class Slice:
    """The parts of one slice as they come, in any order."""

    __slots__ = ("_folded", "_missing", "_parts", "call")

    def __init__(self, call: Call, count: int, folded: Callable[[list[Message]], None]) -> None:
        self.call = call
        self._parts: list[Message | None] = [None] * count
        self._missing = count
        self._folded = folded

    def put(self, index: int, part: Message) -> None:
        """The part at `index` is here."""
        self._parts[index] = part
        self._missing -= 1
        if not self._missing:
            self._folded([one for one in self._parts if one is not None])


class Asked(Protocol):
    """One part of a sliced request."""

    def send(self, whole: Slice, index: int, now: Instant) -> None:
        """Ask for it; `whole.put` gets the part, now or later."""


class Sliced:
    """One request: `fold` takes the parts of slice after slice, `finish` makes the answer when none is left.

    It is what its session waits by, and wakes when it is answered.
    """

    __slots__ = (
        "_asks",
        "_done",
        "_finish",
        "_fold",
        "_folded_count",
        "_is_exhausted",
        "_is_ready",
        "_sent_count",
        "_slices",
        "call",
        "held_bytes",
    )

    def __init__(
        self, slices: "Slices", call: Call, asks: Iterator[Asked], fold: Callable[[list[Message]], None], finish: Callable[[], Message]
    ) -> None:
        self.call = call
        self.held_bytes = 0
        self._slices = slices
        self._asks = asks
        self._fold = fold
        self._finish = finish
        self._done: dict[int, list[Message]] = {}
        self._sent_count = 0
        self._folded_count = 0
        self._is_exhausted = False
        self._is_ready = True

    def go_on(self, now: Instant) -> bool:
        """Ask for the next slice; whether one more may follow at once."""
        self._is_ready = False
        asked = list(islice(self._asks, SLICE))
        self._is_exhausted = len(asked) < SLICE
        if not asked:
            self._end()
            return False
        whole = Slice(self.call, len(asked), partial(self._came, self._sent_count))
        self._sent_count += 1
        for index, one in enumerate(asked):
            one.send(whole, index, now)
        if self._is_exhausted or self._is_ready or self._sent_count - self._folded_count >= _UNDERWAY_MAX:
            return False
        self._is_ready = True
        return True

    def _came(self, index: int, parts: list[Message]) -> None:
        self._done[index] = parts
        while (due := self._done.pop(self._folded_count, None)) is not None:
            self._fold(due)
            self._folded_count += 1
        if self._is_exhausted:
            self._end()
        elif not self._is_ready and self._sent_count - self._folded_count < _UNDERWAY_MAX:
            self._is_ready = True
            self._slices.ready.append(self)

    def _end(self) -> None:
        if self._folded_count == self._sent_count:
            self._slices.ended(self)

    def woken(self, now: Instant) -> Message:
        """Every part is here."""
        return self._finish()

    def expired(self, now: Instant) -> None:
        """It has no time limit of its own: its parts have."""

    def abandoned(self) -> None:
        """Ask for nothing more."""
        self._asks = iter(())
        self._slices.let_go(self)


class Slices:
    """The sliced requests of a broker; `ready` are those that may ask for a slice in the next turn:
    while there is one, `tick` is wanted at once."""

    def __init__(self, released: Callable[[Sliced], None], hold: Callable[[int], None]) -> None:
        self.ready: deque[Sliced] = deque()
        self._released = released
        self._hold = hold

    def add(
        self, call: Call, count: int, asks: Iterator[Asked], fold: Callable[[list[Message]], None], finish: Callable[[], Message]
    ) -> Parked:
        """Answer a request about `count` keys from the next turn on; its session runs nothing else meanwhile, as with Kafka."""
        sliced = Sliced(self, call, asks, fold, finish)
        sliced.held_bytes = count * _KEY_BYTES
        self._hold(sliced.held_bytes)
        call.waiting = sliced
        self.ready.append(sliced)
        return Parked.MUTING

    def ended(self, sliced: Sliced) -> None:
        """Every part of it is folded."""
        if not sliced.call.session.is_closing:
            self._released(sliced)
        self.let_go(sliced)

    def let_go(self, sliced: Sliced) -> None:
        """It holds nothing any more."""
        self._hold(-sliced.held_bytes)
        sliced.held_bytes = 0

    def tick(self, now: Instant) -> None:
        """Ask for one slice of the request whose turn it is."""
        if self.ready:
            sliced = self.ready.popleft()
            if not sliced.call.session.is_closing and sliced.go_on(now):
                self.ready.append(sliced)
