"""The internal topic `__sparklog_audit`: one partition, one record for each line of the audit log.

    add ─► queue, bounded ─► batch ─┬─ this broker leads ─► append ─► high watermark ──┐
             ▲                      ├─ another leads ─► Produce over a link ─► response ─┴─► next batch
             └── retried later ─────┴─ no topic ─► CreateTopics

One batch is in flight. A batch whose outcome is unknown is sent again, so a record may be there twice. No
request waits for the topic: a line that finds the queue full is lost to it, and counted in the log and in the
topic. The broker appends to its own partition without an access check; other nodes need CLUSTER_ACTION
(`handlers/produce.py`).
"""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, Protocol

from sparklog.effects import Loss
from sparklog.errors import ErrorCode, code_of
from sparklog.model import Instant, Micros, Millis, NodeId, Offset, earlier
from sparklog.record.batch import build_batch
from sparklog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.links import AUDIT, Address, Links
from sparklog_server.broker.ports import Informed
from sparklog_server.broker.proposals import Proposing
from sparklog_server.broker.session import Wakeable
from sparklog_server.coordinator.placement import AUDIT_TOPIC
from sparklog_server.log.producers.validate import RecordsRefused
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.replica_manager import ReplicaManager
from sparklog_server.security.audit import EVENT

QUEUED_BYTES_MAX: Final = 1 << 20
RETENTION_MS: Final = 7 * 24 * 3_600_000
_BATCH_BYTES_MAX: Final = 64 << 10
_TIMEOUT_MS: Final = 30_000  # Kafka's default request.timeout.ms
_RETRY_US: Final = 1_000_000
_IMAGE_US: Final = 100_000
_TOLD_US: Final = 10_000_000
"""How often the log has the number of lost lines."""
_ALL: Final = -1
_BY_NAME: Final = 12
"""The last version of Produce that names topics."""
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class AuditPort(Informed, Proposing, Protocol):
    """What the audit log uses of the broker."""

    partitions: ReplicaManager
    links: Links
    woken: dict[Wakeable, None]

    def address_of(self, node: NodeId, /) -> Address | None: ...


class AuditTopic:
    """The lines on their way to the topic, and how many were lost.

    Invariants: at most one batch is in flight, and its lines stay at the head of the queue until it is
    committed; the queue has less than QUEUED_BYTES_MAX bytes before each line that it takes.
    """

    def __init__(self, context: AuditPort, trace: Callable[..., None]) -> None:
        self._context = context
        self._trace = trace
        self._lines: deque[tuple[bytes, Millis]] = deque()
        self._queued_bytes = 0
        self._is_sending = False
        self._lines_max = 1 << 20  # in a batch
        self._retry_us: Micros | None = None
        self._obstacle = ""
        self._lost_unwritten = 0  # not yet counted by a line of the topic
        self._unreported = 0  # not yet counted by a line of the log
        self._tell_us = Micros(0)

    @property
    def deadline_us(self) -> Micros | None:
        """The next time for `turn`; 0 is at once."""
        report_us = self._tell_us if self._unreported else None
        if self._is_sending or not self._lines:
            return report_us
        return earlier(report_us, self._retry_us or Micros(0))

    def add(self, line: Mapping[str, object], now: Instant) -> None:
        """Queue a line, or count it as lost if there is no room."""
        if self._queued_bytes >= QUEUED_BYTES_MAX:
            self._lost(1)
            return
        self._count_lost(now)
        self._queue(line, now)

    def turn(self, now: Instant) -> None:
        """Send what has gathered, and tell what was lost."""
        if self._retry_us is not None and self._retry_us <= now.mono_us:
            self._retry_us = None
        if self._lines and not self._is_sending and self._retry_us is None:
            self._send(now)
        if self._unreported and self._tell_us <= now.mono_us:
            self._tell()
            self._tell_us = Micros(now.mono_us + _TOLD_US)

    def close(self) -> None:
        """Drop what was not written: the broker stops."""
        self._lost(len(self._lines))
        self._lines.clear()
        if self._unreported:
            self._tell()

    # -- the queue

    def _queue(self, line: Mapping[str, object], now: Instant) -> None:
        import json  # escapes what is not ASCII, as the log does

        fields = {"time_ms": now.wall_ms, "node": self._context.settings.node_id, **line}
        value = json.dumps(fields).encode()
        self._lines.append((value, now.wall_ms))
        self._queued_bytes += len(value)

    def _count_lost(self, now: Instant) -> None:
        if self._lost_unwritten:
            self._queue({"event": EVENT, "lines_lost": self._lost_unwritten}, now)
            self._lost_unwritten = 0

    def _drop(self, count: int) -> None:
        for _ in range(count):
            self._queued_bytes -= len(self._lines.popleft()[0])

    def _lost(self, count: int) -> None:
        self._lost_unwritten += count
        self._unreported += count

    def _tell(self) -> None:
        self._trace("audit-lines-lost", count=self._unreported, reason=self._obstacle or "too many lines")
        self._unreported = 0

    # -- batches

    def _send(self, now: Instant) -> None:
        context = self._context
        topic = context.image.topics_by_name.get(AUDIT_TOPIC)
        if topic is None:
            self._is_sending = True
            context.propose(self._topic_wanted(), CreateTopicsResponse, self._created, now)
            return
        count, batch = self._batch()
        leader = topic.partitions[0].leader
        if leader == context.settings.node_id:
            self._append(count, batch, now)
            return
        address = context.address_of(leader)
        if address is None:
            self._later(f"no leader of {AUDIT_TOPIC}", now)
            return
        data = [PartitionProduceData(index=0, records=batch)]
        request = ProduceRequest(
            acks=_ALL, timeout_ms=_TIMEOUT_MS, topic_data=[TopicProduceData(AUDIT_TOPIC, partition_data=data)]
        )
        self._is_sending = True

        def answered(answer: Message | Loss, now: Instant) -> None:
            codes = (
                [part.error_code for topic in answer.responses for part in topic.partition_responses]
                if isinstance(answer, ProduceResponse)
                else []
            )
            self.settled(count, code_of(codes[0]) if codes else ErrorCode.NETWORK_EXCEPTION, now)

        context.links.ask(
            address, AUDIT, request, answered, now, timeout_us=_TIMEOUT_MS * 1000, version_max=_BY_NAME
        )

    def _batch(self) -> tuple[int, bytearray]:
        """The next lines, and how many they are."""
        count = size = 0
        for value, _ in islice(self._lines, self._lines_max):
            if count and size + len(value) > _BATCH_BYTES_MAX:
                break
            count, size = count + 1, size + len(value)
        taken = islice(self._lines, count)
        return count, build_batch((None, value, (), written_ms) for value, written_ms in taken)

    def _append(self, count: int, batch: bytearray, now: Instant) -> None:
        """Append to the partition on this broker."""
        partition = self._context.partitions.find(AUDIT_TOPIC, 0)
        try:
            if partition is None:
                raise PartitionUnavailable(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if not partition.has_enough_in_sync:
                raise PartitionUnavailable(ErrorCode.NOT_ENOUGH_REPLICAS)
            if not partition.home.room.takes(len(batch), now):
                raise PartitionUnavailable(ErrorCode.KAFKA_STORAGE_ERROR)
            result = partition.append(memoryview(batch), now)
        except (PartitionUnavailable, RecordsRefused) as refused:
            self.settled(count, refused.code, now)
            return
        if partition.high_watermark > result.last_offset:
            self.settled(count, ErrorCode.NONE, now)
            return
        self._is_sending = True
        until = Offset(result.last_offset + 1)
        partition.park(until, _Commit(self, self._context, partition, count), is_ours=True)

    def settled(self, count: int, code: ErrorCode, now: Instant) -> None:
        """The batch of the first `count` lines is committed, or was refused."""
        self._is_sending = False
        if not self._lines:
            return  # the broker stops, and they are counted as lost
        if code is ErrorCode.NONE:
            self._obstacle = ""
            self._drop(count)
            self._count_lost(now)
        elif code not in _TOO_LARGE:
            self._later(code.name, now)
        elif count > 1:
            self._lines_max = 1
            self._later(code.name, now)
        else:
            self._lost(count)
            self._drop(count)
            self._later(code.name, now)

    def _later(self, obstacle: str, now: Instant) -> None:
        """Try again in a while. The log has each new reason once."""
        if obstacle != self._obstacle:
            self._trace("audit-topic-waits", reason=obstacle)
        self._obstacle = obstacle
        self._retry_us = Micros(now.mono_us + _RETRY_US)

    def _created(self, reply: CreateTopicsResponse, now: Instant) -> None:
        self._is_sending = False
        code = code_of(reply.topics[0].error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._later(code.name, now)
        elif AUDIT_TOPIC not in self._context.image.topics_by_name:
            self._retry_us = Micros(now.mono_us + _IMAGE_US)  # the controller knows it before this broker

    def _topic_wanted(self) -> CreateTopicsRequest:
        configs = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)}
        topic = CreatableTopic(
            name=AUDIT_TOPIC,
            num_partitions=1,
            replication_factor=self._context.settings.internal_topics.offsets_topic_replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        return CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)


class _Commit:
    """A batch of this broker's partition, parked until the high watermark has passed it."""

    __slots__ = ("_context", "_count", "_leader", "_partition", "_topic")

    call = None

    def __init__(self, topic: AuditTopic, context: AuditPort, partition: Partition, count: int) -> None:
        self._topic = topic
        self._context = context
        self._partition = partition
        self._leader = partition.leader
        self._count = count

    def released(self) -> None:
        self._context.woken[self] = None

    def woken(self, now: Instant) -> None:
        """The batch is committed, or the leadership has ended."""
        self._topic.settled(self._count, self._partition.loss_of(self._leader), now)
