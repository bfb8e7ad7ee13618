"""SaslHandshake and SaslAuthenticate on a listener without SASL: the session needs no authentication, so both
are ILLEGAL_SASL_STATE.
"""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from sparklog_server.broker.context import Context
from sparklog_server.broker.session import Call


def sasl_handshake(
    context: Context, call: Call, request: SaslHandshakeRequest, now: Instant
) -> SaslHandshakeResponse:
    """Refuse: there is no mechanism."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(
    context: Context, call: Call, request: SaslAuthenticateRequest, now: Instant
) -> SaslAuthenticateResponse:
    """Refuse: there was no handshake."""
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
