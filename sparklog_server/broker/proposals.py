"""Commands that the controller decides, in the name of a caller or of this broker.

    propose ──┬─► the only voter, or a caller on a listener of controllers: this node decides ──┬─► committed
              └─► several voters: the active controller, by `cluster/controller_link.py` ───────┘    ─► `then`

A request in parts is proposed part by part, with a turn of other sessions in between.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from sparklog.model import Instant
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.quorum import Quorum
from sparklog_server.broker.request_timers import RequestTimers
from sparklog_server.broker.session import AnsweredInSteps, Call, Parked, is_in_steps, principal_of
from sparklog_server.broker.sliced_requests import SlicedRequests

if TYPE_CHECKING:
    from sparklog_server.broker.cluster.controller_link import ControllerLink

_Reply = TypeVar("_Reply", bound=Message)

_PART_PAUSE_MS: Final = 1
"""The pause between two parts of a request: a part without records is decided at once."""


class Proposing(Protocol):
    """Has the controller decide in the name of this broker: see `Proposals.propose`."""

    def propose(
        self,
        command: Message,
        reply_type: type[_Reply],
        then: Callable[[_Reply, Instant], None],
        now: Instant,
        caller: Call | None = None,
    ) -> None: ...


class ProposingFor(Protocol):
    """Has the controller decide a request of a caller: see `Proposals.propose_for`."""

    def propose_for(
        self,
        call: Call,
        command: Message,
        reply_type: type[_Reply],
        answer_of: Callable[[_Reply], Message | AnsweredInSteps],
        now: Instant,
    ) -> Parked: ...

    def propose_each_for(
        self,
        call: Call,
        commands: Iterable[Message],
        reply_type: type[_Reply],
        answer_of: Callable[[list[_Reply]], Message | AnsweredInSteps],
        now: Instant,
    ) -> Parked: ...


class Proposals:
    """`controllers` is None where this node is the only voter and decides itself."""

    def __init__(
        self,
        quorum: Quorum,
        controllers: "ControllerLink | None",
        timers: RequestTimers,
        slices: SlicedRequests,
        answer: Callable[[Call, Message, Instant], None],
    ) -> None:
        self.controllers = controllers
        self._quorum = quorum
        self._timers = timers
        self._slices = slices
        self._answer = answer

    def propose(
        self,
        command: Message,
        reply_type: type[_Reply],
        then: Callable[[_Reply, Instant], None],
        now: Instant,
        caller: Call | None = None,
    ) -> None:
        """Have the controller decide `command` in the name of the caller, or of this broker; `then` takes its
        reply once that is committed.
        """

        def decided(reply: Message, now: Instant) -> None:
            assert isinstance(reply, reply_type), f"{type(reply).__name__} for {type(command).__name__}"
            then(reply, now)

        if self.controllers is None or (caller is not None and caller.session.is_controller):
            self._quorum.propose(command, decided, principal_of(caller), now)
        else:
            self.controllers.propose(command, decided, caller, now)

    def propose_for(
        self,
        call: Call,
        command: Message,
        reply_type: type[_Reply],
        answer_of: Callable[[_Reply], Message | AnsweredInSteps],
        now: Instant,
    ) -> Parked:
        """Have the controller decide `command` for the caller, which gets `answer_of` its reply.

        On a listener of controllers the caller is another node: this node decides, or answers NOT_CONTROLLER.
        """
        return self.propose_each_for(call, (command,), reply_type, lambda replies: answer_of(replies[0]), now)

    def propose_each_for(
        self,
        call: Call,
        commands: Iterable[Message],
        reply_type: type[_Reply],
        answer_of: Callable[[list[_Reply]], Message | AnsweredInSteps],
        now: Instant,
    ) -> Parked:
        """As `propose_for`, for a request in parts: each is decided when the one before it is committed."""
        rest, replies = iter(commands), list[_Reply]()

        def decided(reply: _Reply, now: Instant) -> None:
            replies.append(reply)
            if call.session.is_closing:
                return
            if (command := next(rest, None)) is not None:
                propose = partial(self.propose, command, reply_type, decided, caller=call)
                self._timers.park(_NextPart(call, propose), _PART_PAUSE_MS, now)
                return
            made = answer_of(replies)
            answer = self._slices.answered(call, made, now) if is_in_steps(made) else made
            if answer is not None:
                self._answer(call, answer, now)

        self.propose(next(rest), reply_type, decided, now, call)
        return Parked.MUTING


class _NextPart:
    """The next part of a request, after a turn of other sessions."""

    __slots__ = ("_propose", "call")

    def __init__(self, call: Call, propose: Callable[[Instant], None]) -> None:
        self.call = call
        self._propose = propose

    def expired(self, now: Instant) -> None:
        """The pause is over."""
        self.call.waiting = None
        self._propose(now)

    def abandoned(self) -> None:
        """The client has closed the connection: the other parts are not proposed."""
