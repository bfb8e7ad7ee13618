"""One connection to a broker, as a machine: requests become bytes, bytes become answers in the order of
the requests.

    CONNECTING --opened--> HANDSHAKE --ApiVersions answered--> READY <-----------------+
                              |  error 35: asked again in v0     |  |                  | accepted
                              |                                  |  +--reauthenticate--+
                              +--with a login--> AUTHENTICATING -+                     |
                              |                       |          +-> REAUTHENTICATING -+
                              +------> CLOSED <-------+ refused, or a reply that cannot be

Requests that come during REAUTHENTICATING are held until that is over.

It does no I/O and reads no clock. The caller sends the bytes of `take_output`, writes received bytes into
`buffer()` and reports them by `received`. Brokers answer strictly in order, so the requests in flight are a
queue, and the correlation id is only a check. A request without a reply by its deadline ends the connection,
because every later reply waits behind it.
"""

from collections import deque
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparklog.client.transport.frames import ReceiveBuffers, ReplyFramer
from sparklog.effects import Chunk
from sparklog.errors import (
    BrokerError,
    ConnectionFailed,
    DecodeError,
    ErrorCode,
    RequestTimeout,
    SparklogError,
)
from sparklog.model import Micros
from sparklog.wire.api_keys import API_BY_KEY, API_VERSIONS, Api
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.schema import Message

if TYPE_CHECKING:
    from sparklog.client.sasl.conversation import Conversation
    from sparklog.client.sasl.login import Login

HANDSHAKE_REPLY_BYTES_MAX: Final = 1 << 20
REPLY_BYTES_MAX: Final = 512 << 20
SOFTWARE_NAME: Final = "sparklog"
SOFTWARE_VERSION: Final = "0.1.0"
"""Sent to brokers, which show it among their connections (KIP-511)."""

_FETCH: Final = 1
_CORRELATION_MASK = (1 << 31) - 1


class State(Enum):
    CONNECTING = auto()
    HANDSHAKE = auto()
    AUTHENTICATING = auto()
    READY = auto()
    REAUTHENTICATING = auto()
    CLOSED = auto()


class Answer(msgspec.Struct, gc=False):
    """The outcome of a request: a reply or an error, never both."""

    token: object
    message: Message | None
    error: SparklogError | None = None


class _InFlight(msgspec.Struct):
    api: Api
    version: int
    correlation_id: int
    deadline: Micros
    token: object


class _Postponed(NamedTuple):
    """A request that waits for the end of a re-authentication."""

    api: Api
    message: Message
    version: int
    token: object
    deadline: Micros
    expects_reply: bool


class UnsupportedByBroker(BrokerError):
    """The broker does not support the API, or no version that can express the request."""

    def __init__(self, api: Api) -> None:
        super().__init__(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the broker does not speak {api.name} in a version that serves here",
        )


_APIS_BY_REQUEST: dict[type[Message], Api] = {}


def api_of(request: type[Message]) -> Api:
    """The API that a request class belongs to."""
    api = _APIS_BY_REQUEST.get(request)
    if api is None:
        module = request.__module__.rpartition(".")[2]
        api = _APIS_BY_REQUEST[request] = next(api for api in API_BY_KEY.values() if api.module == module)
    return api


@cache
def reply_class(api: Api) -> type[Message]:
    """The class of an API's reply."""
    return api.reply()


class Connection:
    """One connection of a client. Invariants: callers' requests are sent only in READY, at most
    `in_flight_max` unanswered; every token is returned exactly once.
    """

    __slots__ = (
        "_answers",
        "_client_id",
        "_conversation",
        "_correlation_id",
        "_due_us",
        "_framer",
        "_in_flight",
        "_login",
        "_output",
        "_postponed",
        "_ranges",
        "_reply_bytes_max",
        "buffer",
        "features",
        "features_epoch",
        "in_flight_max",
        "state",
    )

    def __init__(
        self,
        *,
        client_id: str,
        in_flight_max: int,
        buffers: ReceiveBuffers,
        reply_bytes_max: int = REPLY_BYTES_MAX,
        login: "Login | None" = None,
    ) -> None:
        """With a login, the connection authenticates before it is READY."""
        self.state = State.CONNECTING
        self._login = login
        self._conversation: Conversation | None = None
        self._due_us: Micros | None = None  # when the session is to be authenticated again
        self._postponed: list[_Postponed] = []
        self.in_flight_max = in_flight_max
        self._client_id = client_id
        self._reply_bytes_max = reply_bytes_max
        self._correlation_id = 0
        self._framer = ReplyFramer(buffers, frame_bytes_max=HANDSHAKE_REPLY_BYTES_MAX)
        self.buffer = self._framer.buffer
        """The memory for the next received bytes."""
        self._in_flight: deque[_InFlight] = deque()
        self._output: list[Chunk] = []
        self._answers: list[Answer] = []  # not returned yet
        self._ranges: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        """The feature levels of the cluster from the handshake, as of `features_epoch` (-1: none
        received).
        """
        self.features_epoch = -1

    @property
    def in_flight(self) -> int:
        """Requests not yet answered."""
        return len(self._in_flight) + len(self._postponed)

    @property
    def is_ready(self) -> bool:
        """Whether requests of callers are sent."""
        return self.state is State.READY

    @property
    def is_authenticating(self) -> bool:
        """Whether the login has begun and the broker has not accepted it yet."""
        return self.state is State.AUTHENTICATING

    @property
    def has_room(self) -> bool:
        """Whether a request may be sent now."""
        if self.state is State.READY:
            return len(self._in_flight) < self.in_flight_max
        return self.state is State.REAUTHENTICATING and self.in_flight < self.in_flight_max

    def version_for(self, api: Api, *, version_max: int | None = None) -> int:
        """The newest version that both sides support; raises UnsupportedByBroker."""
        since, until = self._ranges.get(api.key, (0, -1))
        version = min(until, api.until if version_max is None else min(api.until, version_max))
        if version < max(since, api.since):
            raise UnsupportedByBroker(api)
        return version

    def opened(self, deadline: Micros) -> None:
        """The stream is connected: request the broker's API versions, with the reply due by `deadline`."""
        assert self.state is State.CONNECTING
        self.state = State.HANDSHAKE
        self._ask_versions(API_BY_KEY[API_VERSIONS].until, deadline)

    def request(
        self,
        message: Message,
        token: object,
        deadline: Micros,
        *,
        version_max: int | None = None,
        expects_reply: bool = True,
    ) -> None:
        """Send a request; its answer is returned with `token`. Raises UnsupportedByBroker, and ValueError if
        the version cannot encode the request.
        """
        # While the session authenticates again the request is held, and the connection's own is in flight.
        assert self.state is State.REAUTHENTICATING or (
            self.state is State.READY and len(self._in_flight) < self.in_flight_max
        )
        api = _APIS_BY_REQUEST.get(type(message)) or api_of(type(message))
        version = self.version_for(api, version_max=version_max)
        if self.state is State.REAUTHENTICATING:
            self._postponed.append(_Postponed(api, message, version, token, deadline, expects_reply))
        else:
            self._send(api, message, version, token, deadline, expects_reply=expects_reply)

    def begin_lifetime(self, now: Micros, drawn: int) -> None:
        """The connection became ready at `now`: it is due after 85 to 95 % of the session's lifetime, by a
        random byte, as in Kafka's clients (KIP-368).
        """
        lifetime_ms = 0 if self._conversation is None else self._conversation.session_lifetime_ms
        share = 0.85 + drawn / 2560
        self._due_us = None if not lifetime_ms else Micros(now + int(lifetime_ms * 1000 * share))

    def is_due(self, now: Micros) -> bool:
        """Whether the session is to be authenticated again before the next request."""
        return self._due_us is not None and self._due_us <= now and self.state is State.READY

    def reauthenticate(self, deadline: Micros) -> None:
        """Authenticate the session again, behind the requests in flight."""
        assert self.state is State.READY
        self.state = State.REAUTHENTICATING
        self._begin_conversation(deadline)

    def take_output(self) -> list[Chunk]:
        """The bytes to send since the last call."""
        output, self._output = self._output, []
        return output

    def received(self, size: int) -> list[Answer]:
        """The answers that are complete with `size` more bytes in `buffer()`. Raises DecodeError for an
        invalid reply; the caller then closes the connection.

        Records in a reply stay valid while a reference to them exists.
        """
        for frame in self._framer.received(size):
            if not self._in_flight:
                raise DecodeError("a reply without a request in flight")
            asked = self._in_flight[0]
            if asked.token is _HANDSHAKE:
                self._in_flight.popleft()
                self._own_answered(asked, frame)
            else:
                self._answers.append(Answer(asked.token, self._decoded(asked, frame)))
                self._in_flight.popleft()
        answers, self._answers = self._answers, []
        return answers

    def deadline(self) -> Micros | None:
        """The earliest deadline of a request in flight."""
        earliest = min((asked.deadline for asked in self._in_flight), default=None)
        if not self._postponed:
            return earliest
        postponed = min(one.deadline for one in self._postponed)
        return postponed if earliest is None else min(earliest, postponed)

    def closed(self, error: SparklogError, now: Micros) -> list[Answer]:
        """The stream is closed: every request in flight fails, overdue ones with RequestTimeout.

        Replies that arrived before invalid bytes are among the answers.
        """
        self.state = State.CLOSED
        self._due_us = None
        in_flight: list[_InFlight | _Postponed] = [*self._in_flight, *self._postponed]
        self._in_flight, self._postponed = deque(), []
        overdue = RequestTimeout("no reply in time; the request may still have had its effect")
        answers, self._answers = self._answers, []
        return answers + [
            Answer(asked.token, None, overdue if asked.deadline <= now else error)
            for asked in in_flight
            if asked.token is not _HANDSHAKE and (not isinstance(asked, _Postponed) or asked.expects_reply)
        ]

    def _decoded(self, asked: _InFlight, frame: memoryview) -> Message:
        # Only a Fetch reply has records, which are views of the frame; every other message is a copy.
        lasting = (
            memoryview(bytes(frame)) if asked.api.key == _FETCH and self._framer.is_passing(frame) else frame
        )
        correlation_id, message = decode_reply(reply_class(asked.api), asked.version, lasting)
        if correlation_id != asked.correlation_id:
            raise DecodeError(f"a reply to request {correlation_id}, where {asked.correlation_id} was next")
        return message

    def _ask_versions(self, version: int, deadline: Micros) -> None:
        hello = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        self._send(API_BY_KEY[API_VERSIONS], hello, version, _HANDSHAKE, deadline, expects_reply=True)

    def _own_answered(self, asked: _InFlight, frame: memoryview) -> None:
        """The reply to a request of the handshake or the authentication."""
        if self.state is State.HANDSHAKE:
            self._versions_answered(asked, frame)
            return
        conversation = self._conversation
        assert conversation is not None
        following = conversation.replied(self._decoded(asked, frame))
        if following is not None:
            self._ask_own(following, asked.deadline)
            return
        self._framer.frame_bytes_max = self._reply_bytes_max
        self.state = State.READY
        postponed, self._postponed = self._postponed, []
        for one in postponed:
            try:
                self._send(
                    one.api,
                    one.message,
                    one.version,
                    one.token,
                    one.deadline,
                    expects_reply=one.expects_reply,
                )
            except ValueError:  # that version cannot encode it
                if one.expects_reply:
                    self._answers.append(Answer(one.token, None, UnsupportedByBroker(one.api)))

    def _begin_conversation(self, deadline: Micros) -> None:
        from sparklog.client.sasl.conversation import Conversation  # most connections need none

        assert self._login is not None
        self._conversation = Conversation(self._login)
        self._ask_own(self._conversation.first(), deadline)

    def _ask_own(self, message: Message, deadline: Micros) -> None:
        api = api_of(type(message))
        self._send(api, message, self.version_for(api), _HANDSHAKE, deadline, expects_reply=True)

    def _versions_answered(self, asked: _InFlight, frame: memoryview) -> None:
        try:
            # A broker that does not support our version answers in v0 (KIP-511).
            refused = (
                decode_reply(ApiVersionsResponse, 0, frame)[1].error_code == ErrorCode.UNSUPPORTED_VERSION
                if asked.version
                else False
            )
        except DecodeError:
            refused = False
        if refused:
            self._ask_versions(0, asked.deadline)
            return
        correlation_id, reply = decode_reply(ApiVersionsResponse, asked.version, frame)
        if correlation_id != asked.correlation_id:
            raise DecodeError(f"a reply to request {correlation_id}, where {asked.correlation_id} was next")
        if reply.error_code:
            raise DecodeError(f"the broker refuses ApiVersions with error {reply.error_code}")
        self._ranges = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}
        self.features = {feature.name: feature.max_version_level for feature in reply.finalized_features}
        self.features_epoch = reply.finalized_features_epoch
        if self._login is not None:
            self.state = State.AUTHENTICATING
            self._begin_conversation(asked.deadline)
            return
        self._framer.frame_bytes_max = self._reply_bytes_max
        self.state = State.READY

    def _send(
        self,
        api: Api,
        message: Message,
        version: int,
        token: object,
        deadline: Micros,
        *,
        expects_reply: bool,
    ) -> None:
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) & _CORRELATION_MASK
        self._output += encode_request(message, version, correlation_id, self._client_id)
        if expects_reply:
            self._in_flight.append(_InFlight(api, version, correlation_id, deadline, token))


_HANDSHAKE: Final = object()


def broken(reason: str) -> ConnectionFailed:
    """The error of the requests in flight when their connection breaks."""
    return ConnectionFailed(reason)
