"""The requests of a transaction shard to the broker, and their results.

    decision committed     ──► MarkersDue ──► the broker writes markers ──► MarkersWritten ──► next decision
    timeout of an `sl.` id ──► VerdictDue ──► the resolver decides      ──► Verdict        ──► next decision

`MarkersDue` and `VerdictDue` leave the shard as the tokens of answers, so they leave once the records before
them are committed. `MarkersWritten` and `Verdict` return as commands.
"""

from enum import Enum

import msgspec

from sparklog.model import ProducerEpoch, ProducerId, TopicPartition
from sparklog.wire.schema import Message


class End:
    """The end of one transaction; `is_over` once every partition has its marker, or the shard is dropped: no
    other marker may be begun.
    """

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


class MarkersDue(msgspec.Struct, frozen=True):
    """Write the markers of an ending transaction to these partitions. A shard repeats the request after a
    load.

    In transaction version 1 the next transaction has the same producer id and epoch, so a marker may be
    written only while `end` is not over.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]
    end: End


class MarkersWritten(Message):
    """The result of one MarkersDue: partitions in `done` have a marker or need none; `again` failed."""

    transactional_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    done: tuple[TopicPartition, ...] = ()
    again: tuple[TopicPartition, ...] = ()


class Answer(Enum):
    """The verdict of the resolver on a transaction past its timeout."""

    COMMIT = "a durable decision of the sink names the transaction"
    ABORT = "no decision names it, or ever will"
    ASK_AGAIN = "not known yet"


class VerdictDue(msgspec.Struct, frozen=True):
    """Ask the resolver for the outcome of an `sl.` transaction past its timeout."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Verdict(Message):
    """The result of one VerdictDue."""

    transactional_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    answer: Answer = Answer.ASK_AGAIN


class Due(Message):
    """The placeholder for a reply if the token is a MarkersDue or VerdictDue."""


DUE = Due()


class AddOffsets(Message):
    """AddOffsetsToTxn with the partition of `__consumer_offsets` that the group belongs to."""

    transactional_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    partition: TopicPartition = TopicPartition("", 0)
