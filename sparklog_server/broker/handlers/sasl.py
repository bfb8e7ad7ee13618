"""SaslHandshake and SaslAuthenticate: a session proves who its client is (KIP-43, KIP-152, KIP-368).

On a listener without SASL, and after an authentication that has no end, both are ILLEGAL_SASL_STATE. A failed
authentication is answered and closed after `connection.failed.authentication.delay.ms`.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.session_authentication import SessionAuthentication
from sparklog_server.broker.session import Call, Parked
from sparklog_server.disk.door import StorageError
from sparklog_server.security.sasl import (
    Authenticated,
    Challenge,
    SaslRefused,
    SaslUnavailable,
    Step,
    Waiting,
    Working,
)

if TYPE_CHECKING:
    from sparklog_server.broker.ports import ConnectionPort


def sasl_handshake(
    context: "ConnectionPort", call: Call, request: SaslHandshakeRequest, now: Instant
) -> Message | Parked:
    """Choose a mechanism."""
    authentication = call.session.authentication
    illegal = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if authentication is None:
        return illegal
    if authentication.may_continue:
        return refuse(context, call, illegal, authentication.unexpected(call.api_key), now)
    if not authentication.may_begin(now):
        return illegal
    mechanisms = list(authentication.mechanisms)
    if call.version == 0:
        # Its tokens would come as frames without a header; clients of Kafka 1.0 and later do not do that.
        old = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_VERSION, mechanisms)
        return refuse(context, call, old, "SaslHandshake version 0", now)
    if request.mechanism not in authentication.mechanisms:
        unknown = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms)
        return refuse(context, call, unknown, "the client chose a SASL mechanism that is not offered", now)
    authentication.choose(request.mechanism, now)
    return SaslHandshakeResponse(mechanisms=mechanisms)


def sasl_authenticate(
    context: "ConnectionPort", call: Call, request: SaslAuthenticateRequest, now: Instant
) -> Message | Parked:
    """One step of the mechanism."""
    authentication = call.session.authentication
    if authentication is None or not authentication.may_continue:
        message = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
    response = bytes(request.auth_bytes)
    return _go_on(context, call, authentication, lambda: authentication.respond(response, now), now)


def _go_on(
    context: "ConnectionPort",
    call: Call,
    authentication: SessionAuthentication,
    next_step: Callable[[], Step],
    now: Instant,
) -> Message | Parked:
    try:
        step = next_step()
        if isinstance(step, Challenge | Authenticated):
            return _answer(context, call, authentication, step, now)
    except SaslRefused as refused:
        return _refusal(context, call, authentication, refused, now)
    except SaslUnavailable as unavailable:
        context.disconnect(call.session, str(unavailable))
        return Parked.SILENT
    if isinstance(step, Waiting):
        then = step.then

        def waited(now: Instant) -> None:
            context.jobs.resume(call, partial(_go_on, context, call, authentication, then, now), now)

        step.wait(waited)
    else:
        context.jobs.run(call, step.job, partial(_worked, context, call, authentication, step))
    return Parked.MUTING


def _worked(
    context: "ConnectionPort",
    call: Call,
    authentication: SessionAuthentication,
    step: Working,
    result: object | StorageError,
    now: Instant,
) -> Message | Parked:
    return _go_on(context, call, authentication, lambda: step.then(result, now), now)


def _answer(
    context: "ConnectionPort",
    call: Call,
    authentication: SessionAuthentication,
    step: Challenge | Authenticated,
    now: Instant,
) -> Message:
    if isinstance(step, Challenge):
        return SaslAuthenticateResponse(auth_bytes=step.data)
    lifetime_ms = authentication.completed(step, now)
    session = call.session
    session.principal, session.groups = f"User:{step.user}", step.groups
    session.token_id = step.token_id
    session.framer.frame_bytes_max = context.settings.connections.socket_request_max_bytes
    if lifetime_ms is None:
        session.authentication = None
    return SaslAuthenticateResponse(auth_bytes=step.data, session_lifetime_ms=lifetime_ms or 0)


def _refusal(
    context: "ConnectionPort",
    call: Call,
    authentication: SessionAuthentication,
    refused: SaslRefused,
    now: Instant,
) -> Parked:
    name = authentication.mechanism
    shown = (
        refused.shown
        or f"Authentication failed during {authentication.word} due to invalid credentials with SASL "
        f"mechanism {name}"
    )
    answer = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=shown)
    return refuse(context, call, answer, f"{authentication.word} by {name} failed: {refused}", now)


def refuse(context: "ConnectionPort", call: Call, message: Message, reason: str, now: Instant) -> Parked:
    """Answer with an error and close the session, later than at once, so that guessing takes time."""
    delay_ms = context.settings.sasl.failed_authentication_delay_ms
    context.timers.park(_Refusal(context, call, message, reason), delay_ms, now)
    return Parked.MUTING


class _Refusal:
    """A failed authentication that is answered at its time."""

    __slots__ = ("_context", "_message", "_reason", "call")

    def __init__(self, context: "ConnectionPort", call: Call, message: Message, reason: str) -> None:
        self.call = call
        self._context = context
        self._message = message
        self._reason = reason

    def expired(self, now: Instant) -> None:
        """The delay is over."""
        self._context.answer(self.call, self._message, now)
        self._context.disconnect(self.call.session, self._reason)

    def abandoned(self) -> None:
        """The client has closed the connection."""
