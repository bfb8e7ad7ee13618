"""Requests with so much content that they are answered over several turns, with requests of other sessions in
between. They are of two kinds.

    add ─► ready ── a turn ──► a slice is asked ─► its replies arrive ─► folded, in order ─┬─► answered
             ▲                       │                                                     │
             │                       └─► ready again at once, while few slices are asked   │
             └──────────────────────────────── keys are left ──────────────────────────────┘

    begin ─► steps, one share of a turn ─┬─────────────────────────────► answered
               ▲                         │
               └──── a turn ──── ready ◄─┘ steps are left

A handler whose work is proportional to the content of its request is a generator that yields at each element,
takes the present time from the yield, and returns the answer. Other requests are asked of shards, one slice
of keys each turn.

A reply is held up while its client has not read earlier replies. While replies hold much memory, only the
oldest request continues.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

from sparklog.model import Instant
from sparklog.wire.schema import Message
from sparklog_server.broker.memory import ReplyMemory, RequestMemory
from sparklog_server.broker.session import (
    Answer,
    AnsweredInSteps,
    Call,
    Parked,
    Session,
    Wakeable,
    is_in_steps,
)
from sparklog_server.security import NotLoaded

SLICE: Final = 32
"""The number of keys in one slice: about half a millisecond if each deletes a group."""
_UNDERWAY_MAX: Final = 4
"""The most slices that wait for the disk at a time; all of them may be folded in one turn."""
_KEY_BYTES: Final = 64
"""The least memory of a key in a decoded request."""
SHARE_STEPS: Final = 256
SHARE_NS: Final = 1_000_000
"""What a request in steps may take of one turn."""
_DECODED_PER_BYTE: Final = 16
"""The memory of a decoded request, in multiples of its frame: about the most for structs of short strings."""


class RequestSlice:
    """The parts of one slice, which arrive in any order."""

    __slots__ = ("_folded", "_missing", "_parts", "call")

    def __init__(self, call: Call, count: int, folded: Callable[[list[Message]], None]) -> None:
        self.call = call
        self._parts: list[Message | None] = [None] * count
        self._missing = count
        self._folded = folded

    def put(self, index: int, part: Message) -> None:
        """Set the part at `index`."""
        self._parts[index] = part
        self._missing -= 1
        if not self._missing:
            self._folded([one for one in self._parts if one is not None])


class RequestPart(Protocol):
    """One part of a sliced request."""

    def send(self, whole: RequestSlice, index: int, now: Instant) -> None:
        """Request the part; `whole.put` is called with it, now or later."""


class SlicedRequest:
    """One request: `fold` takes the parts of each slice, `finish` makes the answer when no key is left.

    It is the waiter of its session, and wakes the session when it is answered.
    """

    __slots__ = (
        "_built",
        "_done",
        "_finish",
        "_fold",
        "_folded_count",
        "_is_exhausted",
        "_parts",
        "_sent_count",
        "_slices",
        "built_bytes",
        "call",
        "held_bytes",
        "is_ready",
    )

    def __init__(
        self,
        slices: "SlicedRequests",
        call: Call,
        parts: Iterator[RequestPart],
        fold: Callable[[list[Message]], None],
        finish: Callable[[], Message | AnsweredInSteps],
        built: Callable[[], int],
    ) -> None:
        self.call = call
        self.held_bytes = 0
        self.built_bytes = 0
        self._built = built
        self._slices = slices
        self._parts = parts
        self._fold = fold
        self._finish = finish
        self._done: dict[int, list[Message]] = {}
        self._sent_count = 0
        self._folded_count = 0
        self._is_exhausted = False
        self.is_ready = True

    is_silent: Final = False  # it is owed an answer

    def go_on(self, now: Instant) -> bool:
        """Request the next slice; returns whether one more may follow at once."""
        self.is_ready = False
        asked = list(islice(self._parts, SLICE))
        self._is_exhausted = len(asked) < SLICE
        if not asked:
            self._end()
            return False
        whole = RequestSlice(self.call, len(asked), partial(self._came, self._sent_count))
        self._sent_count += 1
        for index, one in enumerate(asked):
            one.send(whole, index, now)
        if self._is_exhausted or self.is_ready or self._sent_count - self._folded_count >= _UNDERWAY_MAX:
            return False
        self.is_ready = True
        return True

    def _came(self, index: int, parts: list[Message]) -> None:
        self._done[index] = parts
        while (due := self._done.pop(self._folded_count, None)) is not None:
            self._fold(due)
            self._folded_count += 1
        self._slices.built(self, self._built())
        if self._is_exhausted:
            self._end()
        elif not self.is_ready and self._sent_count - self._folded_count < _UNDERWAY_MAX:
            self.is_ready = True
            self._slices.came(self)

    def _end(self) -> None:
        if self._folded_count == self._sent_count:
            self._slices.ended(self)

    def woken(self, now: Instant) -> Answer:
        """Finish: every part has arrived."""
        answer = self._finish()
        return self._slices.begin(self.call, answer, now) if is_in_steps(answer) else answer

    def expired(self, now: Instant) -> None:
        """None: the request has no timeout of its own, only its parts have."""

    def abandoned(self) -> None:
        """Request no more slices."""
        self._parts = iter(())
        self._slices.let_go(self)


class SteppedRequest:
    """One request that is answered in steps.

    It is the waiter of its session, and wakes the session when its steps are done.
    """

    __slots__ = ("_answer", "_slices", "_steps", "built_bytes", "call", "held_bytes", "is_ready", "is_silent")

    def __init__(
        self, slices: "SlicedRequests", call: Call, steps: AnsweredInSteps, *, is_silent: bool
    ) -> None:
        self.call = call
        self.is_silent = is_silent
        self.held_bytes = 0
        self.built_bytes = 0
        self.is_ready = True
        self._answer: Answer | None = None
        self._slices = slices
        self._steps = steps

    def go_on(self, now: Instant) -> bool:
        """Take one share of the turn; returns whether steps are left."""
        self._answer = self._slices.take_share(self.call, self._steps, now, now)
        if self._answer is None:
            return True
        self.is_ready = False
        self._slices.ended(self)
        return False

    def woken(self, now: Instant) -> Answer | None:
        """The answer."""
        return self._answer

    def expired(self, now: Instant) -> None:
        """None: the request has no timeout of its own."""

    def abandoned(self) -> None:
        """Take no more steps."""
        self._steps.close()
        self._slices.let_go(self)


class SlicedRequests:
    """The sliced requests of a broker. While `is_due`, `tick` must be called at once.

    Invariants: `_going` has those that are not held up, oldest first; `ready` those of them that may request
    a slice, in turn; `_held_up` the others by session, of which each has at most one.
    """

    def __init__(
        self,
        woken: dict[Wakeable, None],
        memory: RequestMemory,
        replies: ReplyMemory,
        work_ns: Callable[[], int],
        disconnect: Callable[[Session, str], None],
    ) -> None:
        self._going: dict[SlicedRequest | SteppedRequest, None] = {}
        self.ready: dict[SlicedRequest | SteppedRequest, None] = {}
        self._held_up: dict[Session, SlicedRequest | SteppedRequest] = {}
        self._woken = woken
        self._memory = memory
        self._replies = replies
        self._work_ns = work_ns
        self._disconnect = disconnect

    def add(
        self,
        call: Call,
        count: int,
        parts: Iterator[RequestPart],
        fold: Callable[[list[Message]], None],
        finish: Callable[[], Message | AnsweredInSteps],
        built: Callable[[], int],
    ) -> Parked:
        """Answer a request for `count` keys from the next turn on; its session runs no other request
        meanwhile, as in Kafka.

        `built` returns the size of the answer so far.
        """
        return self._enter(SlicedRequest(self, call, parts, fold, finish, built), count * _KEY_BYTES)

    def begin(
        self,
        call: Call,
        steps: AnsweredInSteps,
        now: Instant,
        *,
        frame_bytes: int = 0,
        is_silent: bool = False,
    ) -> Answer:
        """Take the first share of the steps of a request now, and the others in later turns; its session runs
        no other request meanwhile. A silent one is owed no answer, and takes effect though its session ends.
        """
        answer = self.take_share(call, steps, None, now)
        if answer is not None:
            return answer
        stepped = SteppedRequest(self, call, steps, is_silent=is_silent)
        parked = self._enter(stepped, frame_bytes * _DECODED_PER_BYTE)
        return Parked.MUTING_SILENT if is_silent else parked

    def answered(self, call: Call, steps: AnsweredInSteps, now: Instant) -> Message | None:
        """As `begin`; None if the answer comes in a later turn."""
        answer = self.begin(call, steps, now)
        return None if isinstance(answer, Parked) else answer

    def take_share(
        self, call: Call, steps: AnsweredInSteps, given: Instant | None, now: Instant
    ) -> Answer | None:
        """Take a share of the turn for the steps of a request, the first of which gets `given`; returns the
        answer after the last one.
        """
        begun_ns = self._work_ns()
        sent: Any = given  # a generator begins with None, which its type does not say
        try:
            for _ in range(SHARE_STEPS):
                steps.send(sent)
                sent = now
                if self._work_ns() - begun_ns >= SHARE_NS:
                    break
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        except NotLoaded:
            # The client tries again, on this broker or another. An authorization error would be final.
            self._disconnect(call.session, "the access rules are not loaded yet")
            return Parked.SILENT
        finally:
            if call.used is not None:  # its first share is measured with the request
                request_bytes, work_ns, delay_ms = call.used
                call.used = (request_bytes, work_ns + self._work_ns() - begun_ns, delay_ms)
        return None

    def _enter(self, sliced: SlicedRequest | SteppedRequest, held_bytes: int) -> Parked:
        sliced.held_bytes = held_bytes
        self._memory.copied_bytes += held_bytes
        sliced.call.waiting = sliced
        if sliced.call.session.reply_bytes and not sliced.is_silent:
            self._held_up[sliced.call.session] = sliced
        else:
            self._going[sliced] = self.ready[sliced] = None
        return Parked.MUTING

    @property
    def is_due(self) -> bool:
        """Whether a request may request its next slice."""
        return self._next() is not None

    def _next(self) -> SlicedRequest | SteppedRequest | None:
        if not self._replies.is_short:
            return next(iter(self.ready), None)
        eldest = next(iter(self._going), None)
        return eldest if eldest in self.ready else None

    def unread(self, session: Session) -> None:
        """Hold up the answer of a session whose client has replies to read, or continue it once all
        are read.
        """
        if session.reply_bytes:
            waiting = session.held_by.waiting if session.held_by is not None else None
            is_sliced = isinstance(waiting, (SlicedRequest, SteppedRequest)) and not waiting.is_silent
            if is_sliced and waiting in self._going:
                self._drop(waiting)
                self._held_up[session] = waiting
        elif (held_up := self._held_up.pop(session, None)) is not None:
            self._going[held_up] = None
            if held_up.is_ready:
                self.ready[held_up] = None

    def came(self, sliced: SlicedRequest | SteppedRequest) -> None:
        """Let a request continue with its next slice, unless it is held up."""
        if sliced in self._going:
            self.ready[sliced] = None

    def built(self, sliced: SlicedRequest | SteppedRequest, size: int) -> None:
        """Record the size of the answer of a request."""
        self._replies.build(size - sliced.built_bytes)
        sliced.built_bytes = size

    def ended(self, sliced: SlicedRequest | SteppedRequest) -> None:
        """End a request: all of its parts are folded."""
        if not sliced.call.session.is_closing:
            self._woken[sliced] = None
        self.let_go(sliced)

    def let_go(self, sliced: SlicedRequest | SteppedRequest) -> None:
        """Release the memory of a request."""
        self._memory.copied_bytes -= sliced.held_bytes
        sliced.held_bytes = 0
        self.built(sliced, 0)
        self._drop(sliced)
        session = sliced.call.session
        if self._held_up.get(session) is sliced:
            del self._held_up[session]

    def _drop(self, sliced: SlicedRequest | SteppedRequest) -> None:
        self._going.pop(sliced, None)
        self.ready.pop(sliced, None)

    def tick(self, now: Instant) -> None:
        """Request one slice of the next request in turn."""
        sliced = self._next()
        if sliced is None:
            return
        del self.ready[sliced]
        if sliced.call.session.is_closing and not sliced.is_silent:
            self._going.pop(sliced, None)
        elif sliced.go_on(now) and sliced in self._going:
            self.ready[sliced] = None
