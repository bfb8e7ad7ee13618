"""Request and reply headers: their versions, and whole frames around a message.

    frame    = length i32, header, message
    request  = api key i16, api version i16, correlation id i32, client id (never compact), [tags from v2 on]
    reply    = correlation id i32, [tags from v1 on]

A flexible API version has request header v2 and reply header v1. The reply to ApiVersions always has header
v0, because the client does not know the broker's versions yet (KIP-511).
"""

import struct
from functools import cache
from typing import Annotated, ClassVar, TypeVar

from sparklog.effects import Chunk
from sparklog.errors import SparklogError
from sparklog.kernels import codec
from sparklog.wire.api_keys import API_BY_KEY, API_VERSIONS
from sparklog.wire.codec import undecodable
from sparklog.wire.pieces import Pieces
from sparklog.wire.schema import Int16, Int32, Message, NullableStr, Versions, never_compact, program

M = TypeVar("M", bound=Message)


class RequestHeader(Message):
    """The header of every request."""

    versions: ClassVar = Versions(1, 2, flexible=2)
    api_key: Int16 = 0
    api_version: Int16 = 0
    correlation_id: Int32 = 0
    client_id: Annotated[NullableStr, never_compact] = None


class ResponseHeader(Message):
    """The header of every reply."""

    versions: ClassVar = Versions(0, 1, flexible=1)
    correlation_id: Int32 = 0


class UnsupportedVersion(SparklogError):
    """A request with an API or version that the table does not have; its header could be decoded."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(f"API {header.api_key} version {header.api_version} is not known")
        self.header = header


_KEY_AND_VERSION = struct.Struct(">hh")


def decode_request_header(frame: bytes | bytearray | memoryview) -> tuple[RequestHeader, memoryview]:
    """The header of a request frame (without length prefix) and its body; raises UnsupportedVersion or
    DecodeError.
    """
    view = frame if isinstance(frame, memoryview) else memoryview(frame)
    plan = (
        _REQUEST_HEADER_PROGRAMS.get(_KEY_AND_VERSION.unpack_from(view))
        if len(view) >= _KEY_AND_VERSION.size
        else None
    )
    try:
        header, position = codec.decode_prefix(plan or _header_program_of_unknown(view), view)
    except ValueError as error:
        raise undecodable(RequestHeader, 1, error) from None
    if plan is None:
        raise UnsupportedVersion(header)
    return header, view[position:]


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> list[Chunk]:
    """A whole request frame, length prefix included."""
    api_key = _api_key_of(type(message))
    header = RequestHeader(api_key, version, correlation_id, client_id)
    chunks: list[Chunk] = codec.encode_frame(
        _request_header_program(api_key, version), header, program(type(message), version), message
    )
    return chunks


def encode_reply(message: Message, api_key: int, version: int, correlation_id: int) -> list[Chunk]:
    """A whole reply frame with length prefix; one bytes object unless it has records."""
    if type(message) is Pieces:
        if message.throttle_time_ms:
            message.head.throttle_time_ms = message.throttle_time_ms  # type: ignore[attr-defined]
        return message.spliced(encode_reply(message.head, api_key, version, correlation_id))
    header_program = _reply_header_program(api_key, version)
    chunks: list[Chunk] = codec.encode_frame(
        header_program, ResponseHeader(correlation_id), program(type(message), version), message
    )
    return chunks


def decode_reply(cls: type[M], version: int, frame: bytes | bytearray | memoryview) -> tuple[int, M]:
    """Correlation id and message of a reply frame (without length prefix); raises DecodeError."""
    view = frame if isinstance(frame, memoryview) else memoryview(frame)
    try:
        header, position = codec.decode_prefix(_reply_header_program(_api_key_of(cls), version), view)
    except ValueError as error:
        raise undecodable(ResponseHeader, 0, error) from None
    try:
        message: M = codec.decode(program(cls, version), view[position:])
    except ValueError as error:
        raise undecodable(cls, version, error) from None
    return header.correlation_id, message


@cache
def _request_header_program(api_key: int, version: int) -> codec.Program:
    return program(RequestHeader, 2 if version >= API_BY_KEY[api_key].flexible else 1)


@cache
def _reply_header_program(api_key: int, version: int) -> codec.Program:
    return program(
        ResponseHeader, 1 if version >= API_BY_KEY[api_key].flexible and api_key != API_VERSIONS else 0
    )


def _header_program_of_unknown(view: memoryview) -> codec.Program:
    """The header program for an unknown API or version: that of the newest known version."""
    if len(view) < 4:
        return program(RequestHeader, 1)
    api_key, version = _KEY_AND_VERSION.unpack_from(view)
    api = API_BY_KEY.get(api_key)
    return program(RequestHeader, 2 if api is not None and version >= api.flexible else 1)


_REQUEST_HEADER_PROGRAMS = {
    (api.key, version): _request_header_program(api.key, version)
    for api in API_BY_KEY.values()
    for version in range(api.since, (api.unreleased or api.until) + 1)
}


@cache
def _api_key_of(cls: type[Message]) -> int:
    """The API of a request or reply class: its file has the API's name."""
    module = cls.__module__.rpartition(".")[2]
    return next(api.key for api in API_BY_KEY.values() if api.module == module)
