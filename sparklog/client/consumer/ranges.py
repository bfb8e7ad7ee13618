"""Reads a range of offsets of one partition as whole batches, for bounded reads.

Not a `fetch.Fetcher`, which reads many partitions without an end. A range has a known end, which bounds each
Fetch by the remaining offsets. It needs no session and no reset of positions, and every error is raised at
once.
"""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

from sparklog.client.clock import now_us
from sparklog.client.cluster import NO_NODE
from sparklog.client.consumer.chunk import Aborted, whole_batches, without_aborted
from sparklog.client.consumer.fetch_session import VERSION_BEFORE_TOPIC_IDS
from sparklog.client.consumer.near_replicas import NearReplicas
from sparklog.client.failures import CorruptRecords, OffsetOutOfRange, TopicMadeAnew, UnknownTopic
from sparklog.client.offsets import EARLIEST, LATEST, list_offsets
from sparklog.client.settings import ISOLATION_LEVELS, ClientSettings, IsolationLevel
from sparklog.client.transport.network import Network, wait_for_topic
from sparklog.errors import BrokerError, ErrorCode, RequestTimeout, SparklogError, code_of
from sparklog.model import ZERO_UUID, Micros, NodeId, TopicPartition, Uuid
from sparklog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

FETCH_BYTES: Final = 8 << 20
FETCH_BYTES_MIN: Final = 64 << 10
BYTES_PER_OFFSET: Final = 1024
"""The assumed size of a record before any was received; large, because one more Fetch costs more than some
surplus bytes.
"""
LOOKS_MAX: Final = 3
"""The number of metadata requests for a topic: a broker may not have a new topic yet, or still have the
deleted one of that name.
"""


class RangeReader:
    """Reads ranges, one after another, and keeps its connections between them. Only `interrupt` may
    be called from another thread.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        fetch_bytes: int = FETCH_BYTES,
        isolation_level: IsolationLevel | None = None,
        can_be_interrupted: bool = False,
    ) -> None:
        self._settings = settings
        self._isolation = ISOLATION_LEVELS[
            settings.isolation_level if isolation_level is None else isolation_level
        ]
        self._fetch_bytes = fetch_bytes
        self._network = Network(settings, can_be_woken=can_be_interrupted)
        self._network.allow_auto_create = False
        self._near = NearReplicas(settings, self._network.cluster)

    def read(
        self, topic: str, partition: int, start: int, limit: int, *, topic_id: Uuid = ZERO_UUID
    ) -> Iterator[memoryview]:
        """Whole batches, many in a view, that hold the records `[start, limit)`; the next Fetch is in flight
        while a view is used.

        The first batch may begin before `start` and the last one end beyond `limit`: the caller skips those
        records. A view's bytes stay valid while a reference to it exists, but many views take much memory.
        The decoder checks CRCs. Raises OffsetOutOfRange if `start` is no longer (or not yet) in the log,
        CorruptRecords, UnknownTopic, TopicMadeAnew if the topic is not the one with `topic_id` (zeros: any),
        and RequestTimeout after `default_api_timeout_ms` without a record. Offsets missing in the log
        (compaction, transactions) are skipped.

        With read_committed, batches of aborted transactions are left out, and a `limit` beyond the last
        stable offset is waited for. The caller skips control batches, and a range may begin or end on them.
        """
        topic_partition = TopicPartition(topic, partition)
        self._find(topic_partition, topic_id)
        offset = start
        deadline = self._deadline()
        fetch = _Fetch(topic_partition, topic_id, offset, self._bytes_for(limit - offset, BYTES_PER_OFFSET))
        # The reply to an abandoned Fetch is ignored, because its token is not the current one.
        while offset < limit:
            partition_data = self._answer(fetch, deadline)
            records = (
                None
                if partition_data is None
                else self._records(topic_partition, partition_data, offset, deadline)
            )
            if partition_data is None or records is None:
                fetch = _Fetch(topic_partition, topic_id, offset, fetch.bytes_max)
                continue
            views, next_offset = self._cut(topic_partition, partition_data, records, offset, limit)
            per_offset = len(records) / (next_offset - offset)
            offset, deadline = next_offset, self._deadline()
            fetch = _Fetch(topic_partition, topic_id, offset, self._bytes_for(limit - offset, per_offset))
            if offset < limit:
                self._send(fetch)
            # This object must not reference the bytes while the next ones are received, else their buffer
            # cannot be reused.
            del partition_data, records
            while views:
                yield views.pop(0)

    def expect(self, topics: Iterable[str]) -> None:
        """Name the topics of the next ranges: one metadata request is about all of them. Metadata of others
        is forgotten.
        """
        self._network.cluster.want_only(topics)

    def interrupt(self) -> None:
        """Let `read` raise ClientClosed, in the thread that waits there too; that thread calls `close`."""
        self._network.interrupt()

    def close(self) -> None:
        """Close the connections."""
        self._network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------------------

    def _bytes_for(self, offsets: int, per_offset: float) -> int:
        """The bytes to request: bytes beyond the range are wasted, and a remainder of the range needs another
        Fetch.
        """
        return min(self._fetch_bytes, max(FETCH_BYTES_MIN, int(offsets * per_offset * 5 / 4)))

    def _deadline(self) -> Micros:
        return Micros(now_us() + self._settings.default_api_timeout_ms * 1000)

    def _find(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """Look up the partition. The cached metadata may be old: the topic may be new, extended or
        recreated.
        """
        network, deadline = self._network, self._deadline()
        for looks_left in reversed(range(LOOKS_MAX)):
            try:
                wait_for_topic(network, topic_partition.topic, deadline, is_patient=False)
                self._require(topic_partition, topic_id)
                return
            except UnknownTopic:
                if not looks_left:
                    raise
            refreshes = network.cluster.refreshes
            network.cluster.refresh_soon()
            while network.cluster.refreshes == refreshes and now_us() < deadline:
                network.poll(deadline)

    def _require(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """Check that the partition is known, and that its topic has that id."""
        cluster, topic = self._network.cluster, topic_partition.topic
        if cluster.partition(topic_partition) is None:
            raise UnknownTopic(f"topic {topic!r} has no partition {topic_partition.partition}")
        if self._is_another(topic, topic_id):
            raise TopicMadeAnew(f"topic {topic!r} was deleted and made anew")

    def _is_another(self, topic: str, topic_id: Uuid) -> bool:
        known = self._network.cluster.id_of(topic)
        return topic_id not in (ZERO_UUID, known) and known != ZERO_UUID

    def _send(self, fetch: "_Fetch") -> None:
        """Send the Fetch if its broker is known and ready; else a later call sends it."""
        cluster, partition = self._network.cluster, fetch.topic_partition
        if self._is_another(partition.topic, fetch.topic_id) or partition.topic in cluster.errors:
            self._find(partition, fetch.topic_id)
        leader, view, now = cluster.leader(partition), cluster.partition(partition), now_us()
        if leader == NO_NODE or view is None:
            cluster.refresh_soon()
            return
        node = self._near.source(partition, leader, now)
        if not self._network.is_ready(node):
            return
        topic_id = cluster.id_of(partition.topic)
        asked = FetchPartition(
            partition=partition.partition,
            current_leader_epoch=view.leader_epoch,
            fetch_offset=fetch.offset,
            partition_max_bytes=fetch.bytes_max,
        )
        request = FetchRequest(
            max_wait_ms=self._settings.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=fetch.bytes_max,
            isolation_level=self._isolation,
            topics=[FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[asked])],
            rack_id=self._near.rack(now),
        )
        self._network.send(
            node, request, fetch, version_max=VERSION_BEFORE_TOPIC_IDS if topic_id == ZERO_UUID else None
        )
        fetch.is_sent = True

    def _answer(self, fetch: "_Fetch", deadline: Micros) -> PartitionData | None:
        """The broker's answer for the partition; None if the Fetch must be sent again."""
        while True:
            if not fetch.is_sent:
                self._send(fetch)
            if now_us() >= deadline:
                raise fetch.last_error or RequestTimeout(
                    f"{fetch.topic_partition}: no records at offset {fetch.offset} in time"
                )
            self._network.raise_refusal()
            for answer in self._network.poll(deadline):
                if answer.token is not fetch:
                    continue
                if not isinstance(answer.message, FetchResponse):
                    fetch.last_error = answer.error
                    self._try_again(fetch)
                    continue
                reply = answer.message
                code = code_of(reply.error_code)
                if code is not ErrorCode.NONE:
                    raise BrokerError(code, str(fetch.topic_partition))
                partition_data = next(
                    (partition_data for topic in reply.responses for partition_data in topic.partitions), None
                )
                if partition_data is None or not self._network.cluster.leader_changed(
                    fetch.topic_partition, partition_data.current_leader, reply.node_endpoints
                ):
                    return partition_data
                fetch.is_sent = False

    def _try_again(self, fetch: "_Fetch") -> None:
        fetch.is_sent = False
        self._near.forget(fetch.topic_partition)
        self._network.cluster.refresh_soon()
        self._network.rest(self._settings.retry_backoff_ms * 1000)

    def _records(
        self, partition: TopicPartition, partition_data: PartitionData, offset: int, deadline: Micros
    ) -> memoryview | None:
        """The records of a reply; None if it has none and the Fetch may be repeated."""
        code = code_of(partition_data.error_code)
        if code is not ErrorCode.NONE and self._near.forget(partition):
            return None  # the leader decides
        if partition_data.preferred_read_replica >= 0:
            self._near.named(partition, NodeId(partition_data.preferred_read_replica), now_us())
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise self._out_of_range(partition, offset, deadline)
        if code is not ErrorCode.NONE:
            if not code.is_retriable:
                raise BrokerError(code, str(partition))
            self._network.cluster.refresh_soon()
            self._network.rest(self._settings.retry_backoff_ms * 1000)
            return None
        return (
            partition_data.records
            if isinstance(partition_data.records, memoryview) and len(partition_data.records)
            else None
        )

    def _out_of_range(self, partition: TopicPartition, offset: int, deadline: Micros) -> SparklogError:
        first, last = (
            list_offsets(
                self._network, {partition: landmark}, isolation_level="read_uncommitted", deadline=deadline
            )[partition][0]
            for landmark in (EARLIEST, LATEST)
        )
        return OffsetOutOfRange(partition, offset, log_start_offset=first, log_end_offset=last)

    def _cut(
        self,
        partition: TopicPartition,
        partition_data: PartitionData,
        records: memoryview,
        offset: int,
        limit: int,
    ) -> tuple[list[memoryview], int]:
        """The whole batches that begin below `limit` and were not aborted, and the offset after them."""
        headers, wrong = whole_batches(records, check_crcs=False)
        count, next_offset = 0, offset
        for _, header in headers:
            if header.base_offset >= limit:
                next_offset = max(next_offset, limit)
                break
            count, next_offset = count + 1, max(next_offset, header.next_offset)
        if next_offset == offset:
            raise CorruptRecords(partition, offset, wrong or f"{len(records)} bytes hold no whole batch")
        return without_aborted(
            partition, records, headers[:count], Aborted(partition_data.aborted_transactions or [])
        ), next_offset


class _Fetch:
    """The token of one Fetch."""

    __slots__ = ("bytes_max", "is_sent", "last_error", "offset", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, topic_id: Uuid, offset: int, bytes_max: int) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.offset = offset
        self.bytes_max = bytes_max
        self.is_sent = False
        self.last_error: SparklogError | None = None
