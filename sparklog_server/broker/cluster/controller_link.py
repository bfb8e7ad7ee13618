"""The way of a command to the active controller, where several nodes vote.

    propose ──┬─► this node leads: it decides ───────────────────┬─► the reply
       ▲      └─► another leads: it is asked over a link ────────┤
       │                                                         ▼
       └── 20 to 100 ms later ── NOT_CONTROLLER, a loss, no leader known, or another leader since

A client's command travels in an Envelope, a broker's own one as itself; heartbeats have a link of their own,
because a long command must not delay them. After its time a command is answered with REQUEST_TIMED_OUT. A
repeated command may find its own effect: TOPIC_ALREADY_EXISTS, as in Kafka.
"""

from functools import partial
from typing import Annotated, ClassVar, Final, Protocol

from sparklog.client.transport.connection import api_of, reply_class
from sparklog.effects import Chunk, FileSlice, Loss
from sparklog.errors import DecodeError, ErrorCode, code_of
from sparklog.model import Instant, Micros, earlier
from sparklog.wire.codec import encode
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from sparklog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from sparklog.wire.schema import Bool, Message, Str, Versions, tagged
from sparklog_server.broker.cluster.active_controller import Decided
from sparklog_server.broker.cluster.links import CONTROL, HEARTBEAT, Address, Answered
from sparklog_server.broker.session import Call, principal_of
from sparklog_server.controller.refusals import refusal_of
from sparklog_server.replica.directory import Trace

COMMANDS_MAX: Final = 1_000
"""How many commands of clients may be under way; any more are refused."""
COMMAND_BYTES_MAX: Final = 32 << 20
"""The memory of the Envelopes under way; any more commands of clients are refused."""
COMMAND_US: Final = 30_000_000
"""How long a command is tried: Kafka's default request.timeout.ms."""

_PAUSE_US: Final = (20_000, 40_000, 80_000, 100_000)
_WATCHED_US: Final = 100_000
"""How often the leader is looked up while a command waits for its reply: a leader that hangs ends no
connection.
"""
_TOO_LATE: Final = "No active controller decided in time, or too many commands wait for one."
_LENGTH_BYTES: Final = 4
_UNKNOWN_ADDRESS: Final = b"\0\0\0\0"


class Voting(Protocol):
    """The quorum as the link sees it."""

    @property
    def is_leader(self) -> bool: ...

    def controller_address(self) -> Address | None:
        """Where the active controller is reached; None while it is not known."""

    def propose(self, command: Message, then: Decided, principal: str, now: Instant) -> None: ...


class Asking(Protocol):
    """The links, of which this is one user."""

    def ask(
        self,
        address: Address,
        purpose: str,
        request: Message,
        then: Answered,
        now: Instant,
        *,
        timeout_us: int,
    ) -> None: ...


class _Command:
    """A command without a reply yet; `asked` is the address of the last attempt, None for this node."""

    __slots__ = (
        "again_us",
        "asked",
        "attempts",
        "caller",
        "envelope",
        "expires_us",
        "message",
        "then",
        "version",
    )

    def __init__(self, message: Message, then: Decided, caller: Call | None, expires_us: Micros) -> None:
        self.message = message
        self.then = then
        self.caller = caller
        self.expires_us = expires_us
        self.envelope: EnvelopeRequest | None = None
        self.version = -1  # of the request inside the envelope
        self.asked: Address | None = None
        self.attempts = 0
        self.again_us: Micros | None = None  # when it is asked anew; None while it waits for a reply


class ControllerLink:
    """Each command gets one reply, in a later turn. Invariant: `deadline_us` is None without commands."""

    def __init__(self, quorum: Voting, links: Asking, trace: Trace, *, heartbeat_us: int) -> None:
        self.deadline_us: Micros | None = None
        """When `tick` is wanted."""
        self._quorum = quorum
        self._links = links
        self._trace = trace
        self._heartbeat_us = heartbeat_us
        self._commands: dict[_Command, None] = {}
        self._envelope_bytes = 0
        self._is_closed = False

    def propose(self, command: Message, then: Decided, caller: Call | None, now: Instant) -> None:
        """Have `command` decided in the name of the caller, or of this broker; `then` takes the reply."""
        if self._is_closed:
            return
        time_us = self._heartbeat_us if isinstance(command, BrokerHeartbeatRequest) else COMMAND_US
        asked = _Command(command, then, caller, Micros(now.mono_us + time_us))
        is_full = len(self._commands) >= COMMANDS_MAX or self._envelope_bytes >= COMMAND_BYTES_MAX
        self._commands[asked] = None
        if is_full and caller is not None:
            asked.expires_us = asked.again_us = self.deadline_us = now.mono_us
        else:
            self._ask(asked, now)

    def tick(self, now: Instant) -> None:
        """Refuse expired commands; resend those that are due, and those sent to a former leader."""
        leader = None if self._quorum.is_leader else self._quorum.controller_address()
        is_known = self._quorum.is_leader or leader is not None
        for command in list(self._commands):
            if command.expires_us <= now.mono_us:
                self._refuse(command, ErrorCode.REQUEST_TIMED_OUT, _TOO_LATE, now)
            elif command.again_us is not None:
                if command.again_us <= now.mono_us:
                    self._ask(command, now)
            elif is_known and command.asked != leader:
                self._ask(command, now)
        watched_us = Micros(now.mono_us + _WATCHED_US)
        self.deadline_us = min(
            (min(one.expires_us, one.again_us or watched_us) for one in self._commands), default=None
        )

    def close(self) -> None:
        """The broker stops: forget every command."""
        self._is_closed = True
        self._commands.clear()
        self._envelope_bytes = 0
        self.deadline_us = None

    def _ask(self, command: _Command, now: Instant) -> None:
        command.attempts += 1
        command.again_us = None
        if self._quorum.is_leader:
            command.asked = None
            decided = partial(self._answered, command, command.attempts)
            self._quorum.propose(command.message, decided, principal_of(command.caller), now)
        elif (address := self._quorum.controller_address()) is not None:
            command.asked = address
            self._links.ask(
                address,
                HEARTBEAT if isinstance(command.message, BrokerHeartbeatRequest) else CONTROL,
                command.message if command.caller is None else self._enveloped(command, command.caller),
                partial(self._answered, command, command.attempts),
                now,
                timeout_us=command.expires_us - now.mono_us,
            )
        else:
            self._ask_later(command, now)
        self.deadline_us = earlier(
            self.deadline_us, min(command.expires_us, Micros(now.mono_us + _WATCHED_US))
        )

    def _ask_later(self, command: _Command, now: Instant) -> None:
        pause_us = _PAUSE_US[min(command.attempts, len(_PAUSE_US)) - 1]
        command.again_us = Micros(now.mono_us + pause_us)
        self.deadline_us = earlier(self.deadline_us, command.again_us)

    def _answered(self, command: _Command, attempt: int, answer: Message | Loss, now: Instant) -> None:
        """The reply to an attempt. That of a former attempt counts too, if it is a decision."""
        if command not in self._commands:
            return
        if answer is Loss.UNSUPPORTED:
            text = "The active controller does not support this request."
            self._refuse(command, ErrorCode.UNSUPPORTED_VERSION, text, now)
        elif isinstance(answer, EnvelopeResponse) and answer.error_code not in _OPEN:
            code = code_of(answer.error_code)
            self._trace("envelope-refused", command=type(command.message).__name__, error=code.name)
            is_version = code is ErrorCode.UNSUPPORTED_VERSION
            shown = code if is_version else ErrorCode.UNKNOWN_SERVER_ERROR
            self._refuse(command, shown, "The active controller refused to decide.", now)
        elif isinstance(answer, Message) and (reply := _decision_in(answer, command)) is not None:
            self._finish(command, reply, now)
        elif attempt == command.attempts:
            self._ask_later(command, now)

    def _refuse(self, command: _Command, code: ErrorCode, text: str, now: Instant) -> None:
        self._finish(command, refusal_of(command.message, code, text), now)

    def _finish(self, command: _Command, reply: Message, now: Instant) -> None:
        del self._commands[command]
        if command.envelope is not None:
            self._envelope_bytes -= len(command.envelope.request_data)
        if not self._commands:
            self.deadline_us = None
        command.then(reply, now)

    def _enveloped(self, command: _Command, caller: Call) -> EnvelopeRequest:
        """The command as a client's request, in the version of the client's request; made once."""
        if command.envelope is None:
            api = api_of(type(command.message))
            command.version = caller.version if api.key == caller.api_key else api.until
            frame = joined(encode_request(command.message, command.version, 0, caller.client_id))
            data = frame[_LENGTH_BYTES:]
            command.envelope = EnvelopeRequest(
                request_data=data,
                request_principal=_principal(caller),
                client_host_address=_packed(caller.client.host),
            )
            self._envelope_bytes += len(data)
        return command.envelope


_OPEN: Final = (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER)


def _decision_in(answer: Message, command: _Command) -> Message | None:
    """The controller's reply to the command; None if that node is not active, or its bytes are no reply."""
    if isinstance(answer, EnvelopeResponse):
        if answer.response_data is None:
            return None
        try:
            reply = reply_class(api_of(type(command.message)))
            answer = decode_reply(reply, command.version, answer.response_data)[1]
        except DecodeError:
            return None
    return None if says_not_controller(answer) else answer


def _principal(caller: Call) -> bytes:
    kind, _, name = caller.principal.partition(":")
    client = caller.client
    principal = PrincipalData(
        type=kind,
        name=name,
        token_authenticated=client.is_token_authenticated,
        groups=list(client.groups),
    )
    return b"\0\0" + joined(encode(principal, 0))


def _packed(address: str) -> bytes:
    from ipaddress import ip_address

    try:
        return ip_address(address).packed
    except ValueError:
        return _UNKNOWN_ADDRESS


class PrincipalData(Message):
    """Kafka's DefaultPrincipalData: the principal in an Envelope, behind its version as an int16. The groups
    of the principal are an addition, which Kafka skips.
    """

    versions: ClassVar = Versions(0, 0, flexible=0)

    type: Str = ""
    name: Str = ""
    token_authenticated: Bool = False
    groups: Annotated[list[Str], tagged(10_000)] = []


def joined(chunks: list[Chunk]) -> bytes:
    """The bytes of an encoded message."""
    return b"".join(one.read() if isinstance(one, FileSlice) else one for one in chunks)


def says_not_controller(reply: Message) -> bool:
    """Whether a reply, or a part of it, has the error NOT_CONTROLLER: another node decides."""
    for field in reply.__struct_fields__:
        value = getattr(reply, field)
        if value == ErrorCode.NOT_CONTROLLER and field == "error_code":
            return True
        if isinstance(value, Message) and says_not_controller(value):
            return True
        if isinstance(value, list) and any(
            isinstance(one, Message) and says_not_controller(one) for one in value
        ):
            return True
    return False
