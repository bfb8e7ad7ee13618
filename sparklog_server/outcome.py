"""What a replayed shard answers when asked to decide: records to append, and the reply to give once they are committed."""

from typing import Generic, TypeVar

import msgspec

ReplyT = TypeVar("ReplyT")
RecordT = TypeVar("RecordT")


class Outcome(msgspec.Struct, Generic[RecordT, ReplyT], frozen=True):
    """A decision that has changed nothing yet: `records` are appended and replayed, `reply` leaves when they are committed.

    `is_atomic` tells that the records must lie in one batch, so that no reader ever sees a part of them.
    """

    records: tuple[RecordT, ...]
    reply: ReplyT
    is_atomic: bool = True
