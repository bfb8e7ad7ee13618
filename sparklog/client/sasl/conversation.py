"""The requests of one authentication: SaslHandshake, then SaslAuthenticate until the broker accepts.

first() ─► SaslHandshake ─► replied ─► SaslAuthenticate ─► replied ─► ... ─► None: authenticated
                               └────────────────────────────────┴─► AuthenticationFailed
"""

from sparklog.client.failures import AuthenticationFailed
from sparklog.errors import ErrorCode, code_of
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from sparklog.wire.schema import Message

from .login import Login
from .machines import Machine

_STEPS_MAX = 16


class Conversation:
    """One authentication; `session_lifetime_ms` is 0 if it has no end."""

    __slots__ = ("_login", "_machine", "_steps", "session_lifetime_ms")

    def __init__(self, login: Login) -> None:
        self.session_lifetime_ms = 0
        self._login = login
        self._machine: Machine | None = None
        self._steps = 0

    def first(self) -> SaslHandshakeRequest:
        """The first request."""
        return SaslHandshakeRequest(mechanism=self._login.mechanism)

    def replied(self, reply: Message) -> SaslAuthenticateRequest | None:
        """The request after this reply; None when the broker has accepted. Raises AuthenticationFailed."""
        if isinstance(reply, SaslHandshakeResponse):
            return self._chosen(reply)
        assert isinstance(reply, SaslAuthenticateResponse)
        assert self._machine is not None
        if reply.error_code:
            text = reply.error_message or code_of(reply.error_code).name
            raise AuthenticationFailed(f"{self._login.mechanism}: {text}")
        response = self._machine.next(bytes(reply.auth_bytes))
        self._steps += 1
        if response and self._steps < _STEPS_MAX:
            return SaslAuthenticateRequest(auth_bytes=response)
        if not self._machine.is_complete or response:
            raise AuthenticationFailed(f"{self._login.mechanism}: the broker ended the exchange too early")
        self.session_lifetime_ms = max(0, reply.session_lifetime_ms)
        return None

    def _chosen(self, reply: SaslHandshakeResponse) -> SaslAuthenticateRequest:
        if reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(reply.mechanisms) or "none"
            raise AuthenticationFailed(
                f"the broker does not offer {self._login.mechanism}; its mechanisms are {offered}"
            )
        if reply.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationFailed("this listener of the broker does not take SASL, or not now")
        if reply.error_code:
            raise AuthenticationFailed(f"SaslHandshake: {code_of(reply.error_code).name}")
        self._machine = self._login.machine()
        return SaslAuthenticateRequest(auth_bytes=self._machine.first())
