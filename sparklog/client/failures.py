"""The errors of a client beyond the error codes of brokers; all are a `SparklogError`."""

from sparklog.errors import ErrorCode, SparklogError
from sparklog.model import TopicPartition


class BufferExhausted(SparklogError):
    """`max_block_ms` passed before `buffer_memory` had room for a record, or before the topic's partitions
    were known.
    """


class RecordTooLarge(SparklogError):
    """A record or batch is larger than `max_request_size` or `buffer_memory` allows; nothing was sent."""


class DeliveryFailed(SparklogError):
    """Records were not acknowledged within `delivery_timeout_ms`; they may have been written all the same,
    unless nothing was sent.
    """

    def __init__(self, topic_partition: TopicPartition, reason: str) -> None:
        super().__init__(f"{topic_partition}: {reason}")
        self.topic_partition = topic_partition


class ClientClosed(SparklogError):
    """The client was used after `close`, or in a process forked from the one that made it."""


class CorruptRecords(SparklogError):
    """A fetched batch does not follow the format or fails its CRC; `offset` is where reading stands and
    stays until the caller seeks.
    """

    def __init__(self, topic_partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(f"{topic_partition} at offset {offset}: {reason}")
        self.topic_partition = topic_partition
        self.offset = offset


class OffsetOutOfRange(SparklogError):
    """The offset asked for is not in the log: `[log_start_offset, log_end_offset]`; -1 where the broker
    did not tell.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        offset: int,
        *,
        log_start_offset: int = -1,
        log_end_offset: int = -1,
    ) -> None:
        super().__init__(
            f"{topic_partition}: offset {offset} is outside the log [{log_start_offset}, {log_end_offset}]"
        )
        self.topic_partition = topic_partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class LogTruncated(SparklogError):
    """Records already read are no longer in the log (an unclean election): the log now parts from ours at
    `divergence_offset`.
    """

    def __init__(self, topic_partition: TopicPartition, offset: int, divergence_offset: int) -> None:
        super().__init__(
            f"{topic_partition}: read up to {offset}, but the log was cut at {divergence_offset}"
        )
        self.topic_partition = topic_partition
        self.offset = offset
        self.divergence_offset = divergence_offset


class NoOffset(SparklogError):
    """A partition has no position, and `auto_offset_reset` is `none`."""


class UnknownTopic(SparklogError):
    """A topic or partition that the cluster does not have."""


class TopicMadeAnew(UnknownTopic):
    """A topic was deleted, and another one has its name by now: its offsets are none of the old one's."""


class CommitFailed(SparklogError):
    """Offsets were not committed: this member is not, or no longer, in the group, and others may read the
    same again. Poll, then go on.
    """


class RebalanceInProgress(CommitFailed):
    """Offsets were not committed, as the group is being rebalanced: poll until that is done, and commit
    what is still assigned then.
    """


class FencedInstance(SparklogError):
    """Another member has joined with the same `group.instance.id`: this one must stop. Give each running
    instance an id of its own.
    """


class TransactionError(SparklogError):
    """Something is wrong about a transaction; `code` is the broker's error, if it was a broker that said
    so.
    """

    def __init__(self, reason: str, code: ErrorCode | None = None) -> None:
        super().__init__(reason)
        self.code = code


class WrongTransactionState(TransactionError):
    """The call does not belong here, as a commit where no transaction has begun; nothing has changed."""


class TransactionAbortable(TransactionError):
    """This transaction can no longer be committed: call `abort`, then begin another with the same
    producer.
    """


class TransactionFatal(TransactionError):
    """The producer cannot continue: close it. Its open transaction is aborted by its successor, or at its
    timeout.
    """


class ProducerFenced(TransactionFatal):
    """A younger producer has the transactional id, or the transaction ran out of time and was aborted:
    this producer must stop.
    """
