"""A broker forwards a client's request to the controller, with the principal that sent it (KIP-590)."""

from typing import ClassVar

from sparklog.wire.schema import Bytes, Int16, Message, NullableBytes, Versions


class EnvelopeRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    request_data: Bytes = b""
    request_principal: NullableBytes = b""
    client_host_address: Bytes = b""


class EnvelopeResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    response_data: NullableBytes = None
    error_code: Int16 = 0
