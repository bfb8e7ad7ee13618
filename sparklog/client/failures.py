"""The errors of a client beyond the error codes of brokers; all are a `SparklogError`."""

from typing import TYPE_CHECKING

from sparklog.errors import BrokerError, ConnectionFailed, DecodeError, ErrorCode, SparklogError
from sparklog.model import TopicPartition

if TYPE_CHECKING:
    from sparklog.record.batch import Record

FORKED = "this client belongs to the parent process: make one of the child's own"


def not_pickled(kind: str) -> TypeError:
    """The error of an attempt to pickle a client."""
    return TypeError(f"a {kind} has connections and cannot be pickled: make one in each process")


class BufferExhausted(SparklogError):
    """`max_block_ms` passed before `buffer_memory` had room for a record."""


class RecordTooLarge(SparklogError):
    """A record or batch is larger than `max_request_size` or `buffer_memory` allows; nothing was sent. Or the
    topic refused a record as larger than its `max.message.bytes`: `topic_partition` is then set.
    """

    def __init__(self, reason: str, topic_partition: TopicPartition | None = None) -> None:
        super().__init__(reason)
        self.topic_partition = topic_partition


class BatchRefused(BrokerError):
    """A broker refused a batch for good. `record` is the first record that the broker names as the cause, if
    any.
    """

    def __init__(
        self, topic_partition: TopicPartition, code: ErrorCode, reason: str, record: "Record | None" = None
    ) -> None:
        super().__init__(code, f"{topic_partition}: {reason}" if reason else str(topic_partition))
        self.topic_partition = topic_partition
        self.record = record


class DeliveryFailed(SparklogError):
    """Records were not acknowledged within `delivery_timeout_ms`. Unless nothing was sent, they may have been
    written.
    """

    def __init__(self, topic_partition: TopicPartition, reason: str) -> None:
        super().__init__(f"{topic_partition}: {reason}")
        self.topic_partition = topic_partition


class ClientClosed(SparklogError):
    """The client was used after `close`, or in a process forked from the one that created it."""


class BrokerGone(ConnectionFailed):
    """The broker of a request is fenced or unregistered; nothing was sent."""


class AuthenticationFailed(SparklogError):
    """The broker refused the credentials, or did not prove its own: the same ones will fail again."""


class WrongProtocol(DecodeError):
    """The port of a broker's address speaks HTTP or TLS instead of plain Kafka: it will not answer otherwise
    the next time.
    """


class CorruptRecords(SparklogError):
    """A fetched batch does not follow the format or fails its CRC; the position stays at `offset` until the
    caller seeks.
    """

    def __init__(self, topic_partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(f"{topic_partition} at offset {offset}: {reason}")
        self.topic_partition = topic_partition
        self.offset = offset


class OffsetOutOfRange(SparklogError):
    """The requested offset is not in the log: `[log_start_offset, log_end_offset]`; -1 if the broker did not
    return them.
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
    """Records already read are no longer in the log (an unclean election): the log differs from
    `divergence_offset` on.
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
    """The cluster does not have the topic or partition."""


class TopicMadeAnew(UnknownTopic):
    """The topic was deleted and created again: offsets of the old topic are not valid in the new one."""


class CommitFailed(SparklogError):
    """Offsets were not committed, because this member is not in the group any more: other members may read
    the same records again. Call poll, then continue.
    """


class RebalanceInProgress(CommitFailed):
    """Offsets were not committed, because the group is rebalancing: poll until that is done, then commit the
    partitions that are still assigned.
    """


class FencedInstance(SparklogError):
    """Another member has joined with the same `group.instance.id`: this one must stop. Give each running
    instance its own id.
    """


class TransactionError(SparklogError):
    """An error of a transaction; `code` is the broker's error, if a broker returned one."""

    def __init__(self, reason: str, code: ErrorCode | None = None) -> None:
        super().__init__(reason)
        self.code = code


class WrongTransactionState(TransactionError):
    """The call is not allowed in this state, such as a commit without a transaction; nothing has changed."""


class TransactionAbortable(TransactionError):
    """This transaction can no longer be committed: call `abort`, then begin another with the same
    producer.
    """


class TransactionFatal(TransactionError):
    """The producer cannot continue: close it. Its open transaction is aborted by the next producer with its
    id, or at its timeout.
    """


class ProducerFenced(TransactionFatal):
    """A newer producer has the transactional id, or the transaction was aborted at its timeout: this producer
    must stop.
    """
