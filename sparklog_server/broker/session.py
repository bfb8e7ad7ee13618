"""One client connection of the broker: the identity of the client, the bytes of incomplete frames, and the
replies still to be sent.

    reading ── a parked request holds up the next one, ────────► muted ── the cause is over ──► reading
       │       the client is throttled, or the disk is behind
       └────── bytes that are no request, or acks=0 failed ────► closing

Replies leave in the order of their requests. `owed` holds a call that could not be answered at once until it
and every earlier call are answered.
"""

from collections import deque
from collections.abc import Generator
from enum import Enum
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import msgspec

from sparklog.effects import Chunk
from sparklog.model import Instant, Micros, NodeId, SessionId
from sparklog.wire.frame import Framer
from sparklog.wire.schema import Message
from sparklog_server.security import ANONYMOUS
from sparklog_server.security.hosts import host_of

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from sparklog_server.broker.access.session_authentication import SessionAuthentication
    from sparklog_server.broker.metrics.api_times import ApiTimes, Timed
    from sparklog_server.broker.metrics.span import Span

Used = tuple[int, int, int]
"""The usage of a request, recorded if the broker has any quota: its bytes, ns of work, and the throttle time
in ms for its changes to the cluster.
"""


class Call(msgspec.Struct, eq=False):
    """One request in progress: the session and the version of its answer.

    `answer` is None until it is known, and empty once it is sent; it takes `answer_bytes` of memory.
    `waiting` is the waiter of a parked request, `used` the usage that counts towards the quotas of its
    client, and `principal` the one that the request is authorized for. A call with `forwarding` came in an
    Envelope: its API, version, correlation id and principal are those of the request inside. `times` counts
    a parked request, if times are measured, that was served until `served_us` and took `spent_us` by then;
    `timed` has its own time, if slow requests are logged. A Produce that is answered at once says by
    `has_error` that its response has an error, so that no other one is looked through for some. `span` is
    that of a sampled request.
    """

    session: "Session"
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    principal: str
    answer: list[Chunk] | None = None
    answer_bytes: int = 0
    waiting: "Waiting | None" = None
    used: "Used | None" = None
    forwarding: "Forwarding | None" = None
    times: "ApiTimes | None" = None
    timed: "Timed | None" = None
    has_error: bool = False
    served_us: int = 0
    spent_us: int = 0
    span: "Span | None" = None

    @property
    def client(self) -> "Session | Forwarding":
        """Has the host and the groups of the client, and whether a delegation token has authenticated it."""
        return self.forwarding or self.session


_BROKER_PRINCIPAL: Final = "User:BROKER"


def principal_of(caller: Call | None) -> str:
    """The principal of a command: that of its caller, or without a caller that of this broker."""
    return _BROKER_PRINCIPAL if caller is None else caller.principal


class Forwarding(msgspec.Struct, frozen=True):
    """The Envelope in which another broker forwards the request of `principal`, in these groups, from the IP
    address `host`; a delegation token has authenticated it there if `is_token_authenticated`.
    """

    version: int
    correlation_id: int
    principal: str
    host: str = ""
    groups: tuple[str, ...] = ()
    is_token_authenticated: bool = False


UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
"""The name and version of the software of a client that has not said them."""
SOFTWARE_CHARS_MAX: Final = 255
"""What a session keeps of a name that its client gives itself."""


class Session:
    """A connection; `backlog` holds whole frames that arrived while it was muted, `held_by` the parked
    call that the next ones wait for; paused is one that waits for the disk to catch up; `is_controller` is
    one on a listener of controllers, for other nodes of the cluster. `authentication` is None where none is
    needed, and after one that has no end.
    """

    __slots__ = (
        "authentication",
        "awaits_reader",
        "backlog",
        "backlog_bytes",
        "beats_for",
        "framer",
        "groups",
        "held_by",
        "held_bytes",
        "host",
        "id",
        "is_closing",
        "is_controller",
        "is_muted",
        "is_paused",
        "listener",
        "owed",
        "owed_bytes",
        "peer_address",
        "principal",
        "software",
        "span",
        "telemetry",
        "throttled_until_us",
        "times",
        "token_id",
        "unread_bytes",
        "waits_from_us",
    )

    def __init__(
        self,
        session_id: SessionId,
        framer: Framer,
        *,
        listener: str,
        peer_address: str,
        principal: str = ANONYMOUS,
        groups: tuple[str, ...] = (),
        is_controller: bool = False,
    ) -> None:
        self.id = session_id
        self.is_controller = is_controller
        self.beats_for: NodeId | None = None  # the broker that sends its heartbeats here
        self.framer = framer
        self.listener = listener
        self.peer_address = peer_address
        self.host = host_of(peer_address)
        self.principal = principal
        self.groups = groups  # more principals of the client, such as Group:ops
        self.authentication: SessionAuthentication | None = None
        self.token_id: str | None = None  # of the delegation token that has authenticated it
        self.owed: deque[Call] = deque()
        self.owed_bytes = 0  # of answers that wait behind an earlier request
        self.unread_bytes = 0  # of answers that the client has not read
        self.backlog: deque[memoryview] = deque()
        self.backlog_bytes = 0
        self.waits_from_us = Micros(0)  # when the first frame of the backlog came
        self.held_by: Call | None = None
        self.held_bytes = 0  # of an incomplete frame and the backlog, as last counted
        self.is_muted = False
        self.is_paused = False
        self.is_closing = False
        self.awaits_reader = (
            False  # not served until its client has read its replies, or other sessions have had their turn
        )
        self.throttled_until_us: Micros | None = None  # it has exceeded its quota
        self.software = UNKNOWN_SOFTWARE  # of the client, as it said in ApiVersions
        self.telemetry: Ending | None = None  # the client that pushes metrics
        self.span: Span | None = None  # of its last request that was sampled
        self.times: ApiTimes | None = None  # of its last request, if times are measured

    @property
    def is_token_authenticated(self) -> bool:
        """Whether a delegation token has authenticated it."""
        return self.token_id is not None

    @property
    def has_request_in_flight(self) -> bool:
        """Whether its client waits for a response."""
        return bool(self.owed or self.backlog) or self.held_by is not None

    @property
    def reply_bytes(self) -> int:
        """The memory that its answers hold."""
        return self.owed_bytes + self.unread_bytes


@final
class Parked(Enum):
    """Returned by a handler that has no answer yet."""

    FLOWING = "later requests of the session may run: the ordered half of this one is done"
    MUTING = "later requests of the session wait"
    SILENT = "there will be no answer"
    MUTING_SILENT = "later requests of the session wait, though there will be no answer"


# Reading an enum member through its class costs as much as two calls, and every request needs these.
FLOWING: Final = Parked.FLOWING
SILENT: Final = Parked.SILENT
MUTING_SILENT: Final = Parked.MUTING_SILENT


Answer = Message | Parked
_Result = TypeVar("_Result")
InSteps = Generator[None, Instant, _Result]
"""Work that is proportional to the content of a request: it yields at each element, takes the present time
from the yield, and returns its result.
"""
AnsweredInSteps = InSteps[Answer]


def is_in_steps(answer: object) -> "TypeIs[InSteps[Any]]":
    """Whether a handler answers in steps."""
    return type(answer) is GeneratorType


class Encoded(msgspec.Struct, frozen=True):
    """An answer that a job has encoded; lists of the message may be emptied if no quota can require it to be
    encoded again.
    """

    message: Message
    chunks: list[Chunk]


class Ending(Protocol):
    """What ends with a session."""

    def end(self) -> None: ...


class Wakeable(Protocol):
    """A waiter that continues within a turn: a parked request, its share of one partition, or a task of the
    broker. It is scheduled by an entry in `Context.woken`.
    """

    @property
    def call(self) -> Call | None:
        """The request to answer; None for a task of the broker."""

    def woken(self, now: Instant) -> Message | Parked | None:
        """Called when the condition holds, or never will: returns the answer, None to continue to wait, or
        how a request that mutes its session waits from now on.
        """


class Waiting(Protocol):
    """A parked request, for its timer and its session."""

    call: Call

    def expired(self, now: Instant) -> Message | None:
        """The answer at the timeout; None if the request continues to wait."""

    def abandoned(self) -> None:
        """Stop waiting: the session is closed."""
