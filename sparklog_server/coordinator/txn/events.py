"""What a shard of transactions wants done once its decision is committed, and what it is told of that.

    decision committed ──► MarkersDue ──► whoever writes markers ──► MarkersWritten ──► the next decision
    timeout of an `sl.` id ──► VerdictDue ──► whoever knows ──► Verdict ──► the next decision

`MarkersDue` and `VerdictDue` leave the shard as the tokens of answers, so they leave when replies would:
when what they rest on is below the high watermark. `MarkersWritten` and `Verdict` come back as requests of
commands.
"""

from enum import Enum

import msgspec

from sparklog.model import ProducerEpoch, ProducerId, TopicPartition
from sparklog.wire.schema import Message


class End:
    """One end of one transaction; `is_over` once every partition has its marker, so that nobody writes
    another.
    """

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


class MarkersDue(msgspec.Struct, frozen=True):
    """The end of a transaction is decided, and these partitions are to be told by a marker each; a shard
    that is loaded says so again.

    In transaction version 1 the next transaction has the same producer id and epoch: what waits to be
    written is due only while `end` is not over.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]
    end: End


class MarkersWritten(Message):
    """What became of the markers of one MarkersDue: `done` hold theirs, or need none; the others are to be
    tried again.
    """

    transactional_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    done: tuple[TopicPartition, ...] = ()
    again: tuple[TopicPartition, ...] = ()


class Answer(Enum):
    """What the one who knows says of a transaction whose time is over."""

    COMMIT = "it is named in a durable decision: commit it"
    ABORT = "nobody will commit it: abort it"
    ASK_AGAIN = "not known yet"


class VerdictDue(msgspec.Struct, frozen=True):
    """The time of an `sl.` transaction is over: what is to become of it?"""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Verdict(Message):
    """The answer to one VerdictDue."""

    transactional_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    answer: Answer = Answer.ASK_AGAIN


class Due(Message):
    """In place of a reply, where a MarkersDue or VerdictDue is the token of the answer."""


DUE = Due()


class AddOffsets(Message):
    """AddOffsetsToTxn as a shard is asked: the partition of `__consumer_offsets` that keeps the group is
    known to the broker.
    """

    transactional_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    partition: TopicPartition = TopicPartition("", 0)
