"""Envelope: another broker forwards a client's request, in the name of the client (KIP-590).

EnvelopeRequest(header + request, principal, client address)
    └─► the handler of that request, with the principal of the client
          └─► EnvelopeResponse(header + response), or NOT_CONTROLLER, after which the broker asks again
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from sparklog.effects import Chunk
from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import Instant
from sparklog.wire.api_keys import ENVELOPE, FORWARDABLE
from sparklog.wire.codec import decode
from sparklog.wire.header import UnsupportedVersion, decode_request_header, encode_reply
from sparklog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.cluster.controller_link import PrincipalData, joined, says_not_controller
from sparklog_server.broker.context import Context, Handler, Handlers
from sparklog_server.broker.requests import NotServed, read_request
from sparklog_server.broker.session import Answer, AnsweredInSteps, Call, Forwarding
from sparklog_server.security.hosts import canonical

_ADDRESS_BYTES: Final = (4, 16)
_LENGTH_BYTES: Final = 4


def opening(handlers: Handlers, newest: Mapping[int, int]) -> Handler:
    """The handler that opens Envelopes and runs the handler of the request inside."""

    def envelope(
        context: Context, call: Call, request: EnvelopeRequest, now: Instant
    ) -> Answer | AnsweredInSteps:
        if not context.allow(call, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        principal = _principal_in(request.request_principal)
        address = bytes(request.client_host_address)
        if principal is None:
            return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        if len(address) not in _ADDRESS_BYTES:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        frame = memoryview(request.request_data)
        try:
            header, _ = decode_request_header(frame)
            if header.api_key not in FORWARDABLE:
                return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
            header, handler, forwarded = read_request(frame, handlers, newest, context.settings)
        except (DecodeError, NotServed):
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        except UnsupportedVersion as unsupported:
            is_forwardable = unsupported.header.api_key in FORWARDABLE
            code = ErrorCode.UNSUPPORTED_VERSION if is_forwardable else ErrorCode.INVALID_REQUEST
            return EnvelopeResponse(error_code=code)
        call.forwarding = Forwarding(
            call.version,
            call.correlation_id,
            f"{principal.type}:{principal.name}",
            _host_of(address),
            tuple(principal.groups),
            principal.token_authenticated,
        )
        call.principal = call.forwarding.principal
        call.api_key, call.version = header.api_key, header.api_version
        call.correlation_id, call.client_id = header.correlation_id, header.client_id
        return handler(context, call, forwarded, now)

    return envelope


def enveloped(forwarding: Forwarding, message: Message, chunks: list[Chunk]) -> list[Chunk]:
    """The frame that answers an Envelope; `chunks` is the frame that answers the request inside."""
    if says_not_controller(message):
        response = EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    else:
        response = EnvelopeResponse(response_data=joined(chunks)[_LENGTH_BYTES:])
    return encode_reply(response, ENVELOPE, forwarding.version, forwarding.correlation_id)


def _host_of(address: bytes) -> str:
    return canonical(str(ip_address(address)))


def _principal_in(data: bytes | None) -> PrincipalData | None:
    """The principal that another broker has authenticated; None for bytes that are none."""
    if data is None or data[:2] != b"\0\0":
        return None
    try:
        return decode(PrincipalData, 0, data[2:])
    except DecodeError:
        return None
