"""Shared by both ends of a forwarded command: the form of a principal, and the refusal of a controller that
is not active.
"""

from typing import Annotated, ClassVar

from sparklog.effects import Chunk, FileSlice
from sparklog.errors import ErrorCode
from sparklog.wire.schema import Bool, Message, Str, Versions, tagged


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
