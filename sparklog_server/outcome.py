"""What a replayed shard answers when asked to decide: records to append, and the reply to give once they are committed."""

from typing import Generic, TypeVar

import msgspec

from sparklog.errors import ErrorCode

ReplyT = TypeVar("ReplyT", covariant=True)
RecordT = TypeVar("RecordT", covariant=True)


class Outcome(msgspec.Struct, Generic[RecordT, ReplyT], frozen=True):
    """A decision that has changed nothing yet: `records` are appended and replayed, `reply` leaves when they are committed.

    `is_atomic` tells that the records must lie in one batch, so that no reader ever sees a part of them.
    """

    records: tuple[RecordT, ...]
    reply: ReplyT
    is_atomic: bool = True


class Refused(Exception):
    """Raised within a decision: the request, or the part of it under decision, is answered with this error and changes nothing."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
