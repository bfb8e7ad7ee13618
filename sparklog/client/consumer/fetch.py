"""Reads partitions: their positions, the next Fetch, and the reaction to a lost offset or a new leader.

A machine without I/O. Per partition, in the order of the log:

    position ──────── the next record for the caller
       [chunk] [chunk]   fetched, not handed out yet
    fetch offset ──── the start of the next Fetch, which is sent while a chunk is handed out

    NO POSITION --ListOffsets--> FETCHING --new leader epoch--> VALIDATING --OffsetForLeaderEpoch--> FETCHING
         ^                          | out of range, truncated: by `auto_offset_reset`
         +--------------------------+

A position belongs to one topic id. In a topic that was deleted and created again, reading begins at its first
offset. Every seek begins a new generation; a reply of an older generation is dropped.

Three other readers send Fetch, each for a different task: `ranges` (a known end), `standing_fetch` (no
records) and the broker's resolver (a round of partitions up to their ends). `decision_log` reads by `ranges`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from sparklog.client.cluster import NO_NODE, Cluster, Entropy, backoff_us
from sparklog.client.consumer.chunk import Chunk, whole_batches
from sparklog.client.consumer.fetch_session import VERSION_BEFORE_TOPIC_IDS, FetchSession, Wanted
from sparklog.client.consumer.near_replicas import NearReplicas
from sparklog.client.failures import CorruptRecords, LogTruncated, NoOffset, OffsetOutOfRange, TopicMadeAnew
from sparklog.client.settings import ISOLATION_LEVELS, ClientSettings
from sparklog.errors import BrokerError, ErrorCode, SparklogError, code_of
from sparklog.model import ZERO_UUID, Micros, Millis, NodeId, TopicPartition, Uuid
from sparklog.wire.messages.fetch import FetchRequest, FetchResponse, NodeEndpoint, PartitionData
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

EARLIEST: Final = -2
LATEST: Final = -1
CHUNKS_MAX: Final = 1
"""Chunks of a partition that may wait for the caller before its next Fetch is sent."""

_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST}

Question = FetchRequest | ListOffsetsRequest | OffsetForLeaderEpochRequest
Reply = FetchResponse | ListOffsetsResponse | OffsetForLeaderEpochResponse

_AT_ONCE = Micros(0)


@dataclass(slots=True, eq=False)
class Reading:
    """The state of one partition that a consumer reads. Invariants: without a position, `position` is None;
    each chunk begins where the one before it ends, and the last ends at `fetch_offset`.
    """

    topic_partition: TopicPartition
    generation: int
    position: int | None = None
    topic_id: Uuid = ZERO_UUID  # of the topic that the position belongs to; zeros: not known yet
    fetch_offset: int = 0
    chunks: deque[Chunk] = field(default_factory=deque)
    error: SparklogError | None = None  # raised after earlier fetched records are handed out
    reset_to: int | None = None  # a timestamp for ListOffsets
    last_epoch: int = -1  # of the last batch fetched
    consumed_epoch: int = -1  # of the last batch handed out
    valid_epoch: int = -1  # the leader epoch for which the position has been validated
    is_asked: bool = False
    awaits_committed: bool = False  # the group's committed offset is being looked up
    is_paused: bool = False
    not_before: Micros = _AT_ONCE

    def took(self, partition_data: PartitionData, *, check_crcs: bool) -> None:
        """Add the records of a response; an error of theirs is raised after them."""
        records = partition_data.records
        if not isinstance(records, memoryview) or not len(records):
            return
        headers, wrong = whole_batches(records, check_crcs=check_crcs)
        kept = [(at, header) for at, header in headers if header.next_offset > self.fetch_offset]
        if kept:
            last_at, last = kept[-1]
            chunk = Chunk(
                self.topic_partition,
                records[: last_at + last.size],
                kept,
                start=self.fetch_offset,
                high_watermark=partition_data.high_watermark,
                aborted=partition_data.aborted_transactions or [],
            )
            self.chunks.append(chunk)
            self.fetch_offset, self.last_epoch = chunk.next_offset, chunk.last_epoch
        if wrong is not None or not kept:
            reason = wrong or f"{len(records)} bytes hold no whole batch"
            self.error = CorruptRecords(self.topic_partition, self.fetch_offset, reason)


class Errand(msgspec.Struct):
    """A request for one broker, and the generation of each of its partitions."""

    node: NodeId
    request: Question
    generations: dict[TopicPartition, int]
    version_max: int | None = None


class Fetcher:
    """Every assigned partition. Invariant: at most one Fetch and one request for positions per broker is in
    flight.
    """

    def __init__(self, settings: ClientSettings, cluster: Cluster, entropy: Entropy) -> None:
        self._settings = settings
        self._cluster = cluster
        self._entropy = entropy
        self._near = NearReplicas(settings, cluster)
        self._readings: dict[TopicPartition, Reading] = {}
        self._sessions: dict[NodeId, FetchSession] = {}
        self._fetching: dict[NodeId, None] = {}
        self._asking: dict[NodeId, None] = {}
        self._generation = 0
        self._turn = 0
        self.wall_ms = Millis(0)
        """The wall clock, set by the caller for `auto_offset_reset` by duration."""

    # -- calls of the caller ---------------------------------------------------------------------------------

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions, in order."""
        return tuple(self._readings)

    def assign(self, partitions: Iterable[TopicPartition], subscribed: Iterable[str] = ()) -> None:
        """Read these partitions and no others; those that were read before keep their position. Metadata is
        kept of their topics and of those `subscribed` to.
        """
        before, self._readings = self._readings, {}
        for partition in partitions:
            self._readings[partition] = before.get(partition) or Reading(partition, self._next_generation())
        self._cluster.want_only([*subscribed, *(partition.topic for partition in self._readings)])

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Continue from an offset; EARLIEST or LATEST look it up first.

        With the leader epoch of the record before it, the leader is asked whether its log still has that
        record (KIP-320).
        """
        reading = self._reading(partition)
        self._place(reading, offset)
        reading.topic_id = self._cluster.id_of(partition.topic)
        if leader_epoch >= 0:
            reading.last_epoch = reading.valid_epoch = reading.consumed_epoch = leader_epoch

    def hold(self, partition: TopicPartition) -> None:
        """Send nothing for a partition without a position until it is sought or reset: its committed offset
        is being looked up.
        """
        reading = self._reading(partition)
        reading.awaits_committed = reading.position is None and reading.reset_to is None

    def awaiting_committed(self) -> tuple[TopicPartition, ...]:
        """The partitions whose committed offset is being looked up."""
        return tuple(partition for partition, reading in self._readings.items() if reading.awaits_committed)

    def reset(self, partition: TopicPartition) -> None:
        """Begin by `auto_offset_reset`: there is no committed offset."""
        self._reading(partition).awaits_committed = False

    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return tuple(partition for partition, reading in self._readings.items() if reading.is_paused)

    def consumed_epoch(self, partition: TopicPartition) -> int:
        """The leader epoch of the record before the position, -1 if it is not known."""
        return self._reading(partition).consumed_epoch

    def pause(self, partition: TopicPartition, *, is_paused: bool) -> None:
        """Return and fetch no records of a partition until it is resumed."""
        self._reading(partition).is_paused = is_paused

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record for the caller; None while it is being looked up."""
        return self._reading(partition).position

    def raise_failure(self, partition: TopicPartition) -> None:
        """Raise the error of a partition, if it has one."""
        reading = self._reading(partition)
        if not reading.chunks:
            self._raise_failure(reading)

    def next_chunk(self) -> Chunk | None:
        """The chunk to return next; None if there is none. Partitions take turns. Raises the error of a
        partition that has one.
        """
        readings = list(self._readings.values())
        for step in range(len(readings)):
            reading = readings[(self._turn + step) % len(readings)]
            if reading.is_paused:
                continue
            if reading.chunks:
                self._turn = (self._turn + step) % len(readings)
                return reading.chunks[0]
            self._raise_failure(reading)
        return None

    def advanced(self, chunk: Chunk) -> None:
        """Note that the caller has taken every record of the chunk below its `position`."""
        reading = self._reading(chunk.topic_partition)
        assert reading.chunks
        assert reading.chunks[0] is chunk
        reading.position, reading.consumed_epoch = chunk.position, chunk.position_epoch
        if chunk.is_exhausted:
            reading.chunks.popleft()
            self._turn += 1

    def taken(self, chunk: Chunk) -> None:
        """Note that the caller has taken the whole chunk."""
        reading = self._reading(chunk.topic_partition)
        assert reading.chunks
        assert reading.chunks[0] is chunk
        reading.chunks.popleft()
        reading.position, reading.consumed_epoch = chunk.next_offset, chunk.last_epoch
        self._turn += 1

    def read_again(self, taken: Iterable[tuple[TopicPartition, int]]) -> None:
        """Return records from these offsets on again: the caller has lost them."""
        for partition, offset in reversed(list(taken)):
            if partition in self._readings:
                self.seek(partition, offset)

    # -- requests to send ------------------------------------------------------------------------------------

    def errands(self, now: Micros, is_ready: Callable[[NodeId], bool]) -> list[Errand]:
        """Requests to send now: for positions, and at most one Fetch per broker that has none in flight."""
        fetch: dict[NodeId, dict[TopicPartition, Wanted]] = {}
        look_up: dict[NodeId, list[Reading]] = {}
        validate: dict[NodeId, list[Reading]] = {}
        for partition, reading in self._readings.items():
            if (
                reading.error is not None
                or now < reading.not_before
                or reading.is_asked
                or reading.awaits_committed
            ):
                continue
            view = self._cluster.partition(partition)
            node = self._cluster.leader(partition)
            if node == NO_NODE or view is None:
                self._cluster.refresh_soon()
                continue
            topic_id = self._cluster.id_of(partition.topic)
            if ZERO_UUID not in (reading.topic_id, topic_id) and reading.topic_id != topic_id:
                if reading.chunks:
                    continue  # the caller takes the records of the deleted topic first
                self._made_anew(reading)
            reading.topic_id = topic_id
            if reading.error is not None:
                continue
            if reading.position is None:
                if reading.reset_to is None:
                    reading.reset_to = self._default_reset()
                if reading.reset_to is not None and node not in self._asking:
                    look_up.setdefault(node, []).append(reading)
            elif 0 <= reading.valid_epoch < view.leader_epoch and reading.last_epoch >= 0:
                if node not in self._asking:
                    validate.setdefault(node, []).append(reading)
            elif not reading.is_paused and len(reading.chunks) <= CHUNKS_MAX:
                node = self._near.source(partition, node, now)
                if node in self._fetching:
                    continue
                reading.valid_epoch = view.leader_epoch
                fetch.setdefault(node, {})[partition] = Wanted(
                    topic_id,
                    reading.fetch_offset,
                    view.leader_epoch,
                    self._settings.max_partition_fetch_bytes,
                )
        errands = [self._look_up(node, readings) for node, readings in look_up.items() if is_ready(node)]
        errands += [
            self._validate(node, readings)
            for node, readings in validate.items()
            if is_ready(node) and node not in self._asking
        ]
        errands += [self._fetch(node, wanted, now) for node, wanted in fetch.items() if is_ready(node)]
        return errands

    def deadline(self, now: Micros) -> Micros | None:
        """The next time to call `errands` without an event before it."""
        return min(
            (reading.not_before for reading in self._readings.values() if reading.not_before > now),
            default=None,
        )

    def replied(self, errand: Errand, reply: Reply, now: Micros) -> None:
        """Process a reply."""
        if isinstance(reply, FetchResponse):
            self._fetching.pop(errand.node, None)
            self._fetched(errand, reply, now)
            return
        self._asking.pop(errand.node, None)
        for partition in errand.generations:
            if partition in self._readings:
                self._readings[partition].is_asked = False
        if isinstance(reply, ListOffsetsResponse):
            self._looked_up(errand, reply, now)
        else:
            self._validated(errand, reply, now)

    def failed(self, errand: Errand, error: SparklogError, now: Micros) -> None:
        """Retry a failed request after a back-off; the caller handles errors that a retry does not
        resolve.
        """
        in_flight = self._fetching if isinstance(errand.request, FetchRequest) else self._asking
        in_flight.pop(errand.node, None)
        if isinstance(errand.request, FetchRequest) and errand.node in self._sessions:
            self._sessions[errand.node].reset()
        self._cluster.refresh_soon()
        for partition in errand.generations:
            reading = self._current(errand, partition)
            if reading is None:
                continue
            if isinstance(error, BrokerError) and not error.is_retriable:
                reading.error = error
            self._near.forget(partition)
            self._retry_later(reading, now)
            reading.is_asked = False

    # -- positions -------------------------------------------------------------------------------------------

    def _look_up(self, node: NodeId, readings: list[Reading]) -> Errand:
        self._asking[node] = None
        topics: dict[str, ListOffsetsTopic] = {}
        for reading in readings:
            reading.is_asked = True
            assert reading.reset_to is not None
            topic, partition = reading.topic_partition
            asked = ListOffsetsPartition(partition_index=partition, timestamp=reading.reset_to)
            topics.setdefault(topic, ListOffsetsTopic(name=topic, partitions=[])).partitions.append(asked)
        isolation = ISOLATION_LEVELS[self._settings.isolation_level]
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=list(topics.values()),
            timeout_ms=self._settings.request_timeout_ms,
        )
        return Errand(node, request, _generations(readings))

    def _looked_up(self, errand: Errand, reply: ListOffsetsResponse, now: Micros) -> None:
        for topic in reply.topics:
            for partition in topic.partitions:
                reading = self._current(errand, TopicPartition(topic.name, partition.partition_index))
                if reading is None:
                    continue
                code = code_of(partition.error_code)
                if code is ErrorCode.NONE:
                    # Every record is older than the requested time: read every new one.
                    self._place(reading, partition.offset if partition.offset >= 0 else LATEST)
                else:
                    self._refused(reading, code, now)

    def _validate(self, node: NodeId, readings: list[Reading]) -> Errand:
        self._asking[node] = None
        topics: dict[str, OffsetForLeaderTopic] = {}
        for reading in readings:
            reading.is_asked = True
            topic, partition = reading.topic_partition
            view = self._cluster.partition(reading.topic_partition)
            asked = OffsetForLeaderPartition(
                partition, -1 if view is None else view.leader_epoch, reading.last_epoch
            )
            topics.setdefault(topic, OffsetForLeaderTopic(topic=topic, partitions=[])).partitions.append(
                asked
            )
        return Errand(
            node,
            OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values())),
            _generations(readings),
        )

    def _validated(self, errand: Errand, reply: OffsetForLeaderEpochResponse, now: Micros) -> None:
        for topic in reply.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.topic, result.partition)
                reading = self._current(errand, partition)
                if reading is None:
                    continue
                code = code_of(result.error_code)
                if code is not ErrorCode.NONE:
                    self._refused(reading, code, now)
                elif result.end_offset < 0 or result.end_offset < reading.fetch_offset:
                    self._truncated(reading, result.end_offset)
                else:
                    view = self._cluster.partition(partition)
                    reading.valid_epoch = -1 if view is None else view.leader_epoch

    def _truncated(self, reading: Reading, end_offset: int) -> None:
        """The log was truncated below the fetch position: continue at the point of divergence, unless the
        caller decides (KIP-320).
        """
        at = reading.fetch_offset
        if self._settings.auto_offset_reset == "none":
            reading.error = LogTruncated(reading.topic_partition, at, end_offset)
        elif end_offset >= 0:
            # Fetched records below the point of divergence that the caller has not taken are fetched again.
            self._place(
                reading, end_offset if reading.position is None else min(reading.position, end_offset)
            )
        else:
            self._begin_anew(reading)

    def _made_anew(self, reading: Reading) -> None:
        """The topic was deleted and created again: the consumer starts at its first record, also if
        `auto_offset_reset` is `latest`. With `none`, the caller decides.
        """
        self._place(reading, EARLIEST)
        if self._settings.auto_offset_reset == "none":
            reading.error = TopicMadeAnew(
                f"topic {reading.topic_partition.topic!r} was deleted and made anew: seek to go on"
            )

    def _begin_anew(self, reading: Reading) -> None:
        """Begin by `auto_offset_reset`, which is not `none`."""
        self._place(reading, LATEST)
        reading.reset_to = self._default_reset()

    def _default_reset(self) -> int | None:
        """The timestamp, or EARLIEST or LATEST, at which `auto_offset_reset` begins; None for `none`."""
        duration_ms = self._settings.reset_duration_ms
        return (
            _RESETS.get(self._settings.auto_offset_reset)
            if duration_ms is None
            else max(0, self.wall_ms - duration_ms)
        )

    def _place(self, reading: Reading, offset: int) -> None:
        reading.generation = self._next_generation()
        reading.chunks.clear()
        reading.error, reading.not_before = None, Micros(0)
        reading.is_asked = reading.awaits_committed = False
        reading.last_epoch = reading.consumed_epoch = -1
        reading.position, reading.reset_to = (None, offset) if offset < 0 else (offset, None)
        reading.fetch_offset = max(0, offset)

    # -- fetching --------------------------------------------------------------------------------------------

    def _fetch(self, node: NodeId, wanted: dict[TopicPartition, Wanted], now: Micros) -> Errand:
        self._fetching[node] = None
        settings = self._settings
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=ISOLATION_LEVELS[settings.isolation_level],
            rack_id=self._near.rack(now),
        )
        self._sessions.setdefault(node, FetchSession()).fill(request, wanted)
        knows_ids = all(want.topic_id != ZERO_UUID for want in wanted.values())
        generations = {partition: self._readings[partition].generation for partition in wanted}
        return Errand(node, request, generations, None if knows_ids else VERSION_BEFORE_TOPIC_IDS)

    def _fetched(self, errand: Errand, reply: FetchResponse, now: Micros) -> None:
        session = self._sessions.setdefault(errand.node, FetchSession())
        if reply.error_code:
            # After a lost session the next request is a full one; any other error is handled by partition.
            session.reset()
            return
        session.replied(reply.session_id)
        for topic in reply.responses:
            name = topic.topic or self._cluster.name_of(topic.topic_id) or ""
            for partition in topic.partitions:
                reading = self._current(errand, TopicPartition(name, partition.partition_index))
                if reading is not None:
                    self._partition_fetched(reading, partition, reply.node_endpoints, now)

    def _partition_fetched(
        self, reading: Reading, partition_data: PartitionData, endpoints: list[NodeEndpoint], now: Micros
    ) -> None:
        code = code_of(partition_data.error_code)
        if code is not ErrorCode.NONE and self._near.forget(reading.topic_partition):
            self._cluster.leader_changed(reading.topic_partition, partition_data.current_leader, endpoints)
            return  # the leader decides
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._settings.auto_offset_reset == "none":
                reading.error = OffsetOutOfRange(
                    reading.topic_partition,
                    reading.fetch_offset,
                    log_start_offset=partition_data.log_start_offset,
                    log_end_offset=partition_data.high_watermark,
                )
            elif not reading.chunks:
                self._begin_anew(reading)
            return
        if code is not ErrorCode.NONE:
            if not self._cluster.leader_changed(
                reading.topic_partition, partition_data.current_leader, endpoints
            ):
                self._refused(reading, code, now)
            return
        reading.not_before = Micros(0)
        if partition_data.preferred_read_replica >= 0:
            self._near.named(reading.topic_partition, NodeId(partition_data.preferred_read_replica), now)
        reading.took(partition_data, check_crcs=self._settings.check_crcs)

    def _refused(self, reading: Reading, code: ErrorCode, now: Micros) -> None:
        if not code.is_retriable:
            reading.error = BrokerError(code, str(reading.topic_partition))
            return
        self._cluster.refresh_soon()
        self._retry_later(reading, now)

    # -- inside ----------------------------------------------------------------------------------------------

    def _retry_later(self, reading: Reading, now: Micros) -> None:
        reading.not_before = Micros(
            now
            + backoff_us(
                self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms, 0, self._entropy
            )
        )

    def _raise_failure(self, reading: Reading) -> None:
        error = reading.error
        if isinstance(error, BrokerError):
            # the next poll tries again; a corrupt batch or a lost offset would only be found again
            reading.error = None
        if error is not None:
            raise error
        if (
            reading.position is None
            and reading.reset_to is None
            and not reading.awaits_committed
            and self._default_reset() is None
        ):
            raise NoOffset(
                f"{reading.topic_partition} has no position, and auto_offset_reset is none: seek first"
            )

    def _current(self, errand: Errand, partition: TopicPartition) -> Reading | None:
        """The reading for a reply, unless its partition was sought or unassigned since the request."""
        reading = self._readings.get(partition)
        return (
            reading
            if reading is not None and errand.generations.get(partition) == reading.generation
            else None
        )

    def _reading(self, partition: TopicPartition) -> Reading:
        try:
            return self._readings[partition]
        except KeyError:
            raise NoOffset(f"{partition} is not assigned") from None

    def _next_generation(self) -> int:
        self._generation += 1
        return self._generation


def _generations(readings: list[Reading]) -> dict[TopicPartition, int]:
    return {reading.topic_partition: reading.generation for reading in readings}
