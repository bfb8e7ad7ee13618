"""The decision of a replayed shard: records to append, and the reply to send when they are committed."""

from typing import Generic, TypeVar

import msgspec

from sparklog.errors import ErrorCode

ReplyT = TypeVar("ReplyT", covariant=True)
RecordT = TypeVar("RecordT", covariant=True)


class Outcome(msgspec.Struct, Generic[RecordT, ReplyT], frozen=True):
    """A decision that has changed nothing yet: `records` are appended and replayed, `reply` is sent when they
    are committed.

    `is_atomic`: the records must be in one batch, so that no reader ever sees a part of them.
    """

    records: tuple[RecordT, ...]
    reply: ReplyT
    is_atomic: bool = True


RECORDS_PER_REQUEST_MAX = 10_000
"""The most records that a request to the controller may make (Kafka's MAX_RECORDS_PER_USER_OP)."""
TOO_MANY_RECORDS = "Unable to perform excessively large batch operation."
"""The refusal of a request that would make more, in Kafka's words."""

STRING_BYTES_MAX = 32_767
"""The most bytes of UTF-8 that any string of the protocol has."""


def cut(text: str, bytes_max: int = STRING_BYTES_MAX) -> str:
    """The longest prefix of `text`, in whole characters, that fits `bytes_max` bytes of UTF-8.

    For texts that contain names chosen by clients: a name may be as long as a string on the wire, so the
    text may not fit.
    """
    if 4 * len(text) <= bytes_max:
        return text
    return text.encode()[:bytes_max].decode(errors="ignore")


class Refused(Exception):
    """Raised within a decision: the request, or the current part of it, is answered with this error and
    changes nothing.

    The message is cut to the length that an answer can hold.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = None if message is None else cut(message)
