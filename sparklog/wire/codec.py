"""Decodes messages and encodes them into chunks: the only module that calls the codec kernel."""

from typing import TypeVar

from sparklog.effects import Chunk
from sparklog.errors import DecodeError
from sparklog.kernels import codec
from sparklog.wire.schema import Message, program

M = TypeVar("M", bound=Message)


def decode(cls: type[M], version: int, buffer: bytes | bytearray | memoryview) -> M:
    """The message that fills `buffer`; its `Records` are views of the buffer, valid as long as its bytes
    are.

    Raises DecodeError for bytes that do not follow the schema, for remaining bytes, for a version that the
    class does not have, and for contents that would take more memory than 64 times the buffer, or 256 MiB.
    """
    try:
        message: M = codec.decode(program(cls, version), buffer)
    except ValueError as error:
        raise undecodable(cls, version, error) from None
    return message


def decode_request(cls: type[M], version: int, body: bytes | bytearray | memoryview) -> M:
    """As `decode`, but ignores bytes after the message, as Kafka does: librdkafka sends three extra bytes
    with Metadata v13.

    Contents may take 24 MiB of memory.
    """
    try:
        message: M = codec.decode_prefix(program(cls, version), body)[0]
    except ValueError as error:
        raise undecodable(cls, version, error) from None
    return message


def encode(message: Message, version: int) -> list[Chunk]:
    """The message as chunks; `Records` are separate chunks unless they are tiny."""
    chunks: list[Chunk] = codec.encode(program(type(message), version), message)
    return chunks


def undecodable(cls: type[Message], version: int, error: ValueError) -> DecodeError:
    """A kernel's ValueError(reason, position) as a DecodeError."""
    reason, position = error.args if len(error.args) == 2 else (str(error), -1)
    return DecodeError(f"{cls.__name__} v{version}: {reason}", position)
