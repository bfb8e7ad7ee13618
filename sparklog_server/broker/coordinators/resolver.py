"""The verdict on a sink's transaction that has timed out, from the sink's last decision in
`__sparklog_commits`, which this machine reads as a client.

    verdict(id) ─┬─► named in a decision ─► COMMIT
                 ├─► read to the end since the first request for it, and not named ─► ABORT
                 └─► ASK_AGAIN, and a round begins:  metadata ─► log ends ─► read-committed up to them

A machine without I/O; it sends and stores nothing until a verdict is requested. It reads only the partitions
of the requested sinks, continues where the last round ended, and drops all state when no verdict has been
requested for a while.

Not a `client.fetch.Fetcher`, which reads without an end and resets positions: a round ends at the log ends,
and an error begins it again. Not a `client.ranges.RangeReader`, which blocks.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from sparklog.client.cluster import NO_NODE, Cluster
from sparklog.client.consumer.chunk import Aborted, whole_batches, without_aborted
from sparklog.client.exactly_once.decisions import (
    TOPIC,
    About,
    is_coordinator,
    is_readable,
    names,
    parse_key,
    partition_of,
    sink_of,
)
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.client.settings import ClientSettings
from sparklog.errors import DecodeError, ErrorCode, SparklogError
from sparklog.model import Instant, Micros, NodeId, ProducerEpoch, ProducerId, TopicPartition
from sparklog.record.batch import decode_records
from sparklog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.messages.metadata import MetadataResponse
from sparklog.wire.schema import Message
from sparklog_server.coordinator.txn.events import Answer

ROUND_US_MAX: Final = 30_000_000
KEPT_US: Final = 60_000_000
"""How long records and connections are kept after the last request for a verdict; the coordinator repeats it
every ten seconds.
"""
ASKED_MAX: Final = 100_000
SINKS_MAX: Final = 1_000
DECISIONS_BYTES_MAX: Final = 64 << 20
"""The maximum bytes of decisions in memory: sixteen of the largest. A request for a sink whose decision was
dropped starts another read.
"""
FETCH_BYTES: Final = 8 << 20
FETCH_WAIT_MS: Final = 500
RETRY_US: Final = 200_000
_LATEST: Final = -1
_READ_COMMITTED: Final = 1
_VERSION_BY_NAME: Final = 12


class ResolverRequest(msgspec.Struct, eq=False):
    """A request to one broker, or to any (None); it is the token of its response."""

    node: NodeId | None
    message: Message
    version_max: int | None = None


class SinkResolver:
    """Implements `broker.transaction_coordinator.Resolver`. Invariants: a sink's decision is the last one
    below its partition's position; ASK_AGAIN is returned only while a round is in progress or about to begin.
    """

    def __init__(
        self, settings: ClientSettings, *, entropy: Callable[[int], bytes], trace: Callable[..., None]
    ) -> None:
        self.cluster = Cluster(settings, entropy)
        self._trace = trace
        self._asked: dict[str, Micros] = {}  # the time of the first request for each id
        self._asked_last: Micros | None = None
        # By sink, for requested sinks; None without a decision; the oldest decision first.
        self._decisions: dict[str, bytes | None] = {}
        self._decisions_bytes = 0
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._begun: Micros | None = None  # of the present round
        self._read_since = Micros(-1)  # the start of the last complete round
        self._is_topic_known = False
        self._asking: dict[NodeId, ResolverRequest] = {}
        self._metadata: ResolverRequest | None = None
        self._not_before = Micros(0)

    # -- the port --------------------------------------------------------------------------------------------

    def verdict(self, transactional_id: str, producer_id: int, producer_epoch: int, now: Instant) -> Answer:
        """See `broker.transaction_coordinator.Resolver`."""
        sink = sink_of(transactional_id)
        if sink is None or is_coordinator(transactional_id):
            return Answer.ABORT  # no decision names one
        self._asked_last = now.mono_us
        value = self._decisions.get(sink)
        if value is not None and names(
            value, ProducerIdentity(transactional_id, ProducerId(producer_id), ProducerEpoch(producer_epoch))
        ):
            self._asked.pop(transactional_id, None)
            return Answer.COMMIT
        first_us = self._asked.get(transactional_id)
        if (
            first_us is not None
            and self._read_since > first_us
            and sink in self._decisions
            and (value is None or is_readable(value))
        ):
            del self._asked[transactional_id]
            return Answer.ABORT
        if (
            first_us is None
            and len(self._asked) < ASKED_MAX
            and (sink in self._decisions or len(self._decisions) < SINKS_MAX)
        ):
            self._asked[transactional_id] = now.mono_us
            if sink not in self._decisions:
                self._decisions[sink] = None
                self._positions.clear()  # it may be below the present position
                self._begun = None
        if self._begun is None and now.mono_us >= self._not_before:
            # One microsecond later: a decision made during the request belongs to the round.
            self._begin(Micros(now.mono_us + 1))
        return Answer.ASK_AGAIN

    # -- requests --------------------------------------------------------------------------------------------

    @property
    def is_at_work(self) -> bool:
        """Whether there is a request to send or a response to wait for."""
        return self._begun is not None

    def forget(self, now: Micros) -> bool:
        """Whether no verdict was requested for so long that connections may be closed; the records are then
        dropped.
        """
        if self._asked_last is None or now - self._asked_last < KEPT_US:
            return False
        self._asked_last = self._begun = None
        for kept in (self._asked, self._decisions, self._positions, self._ends):
            kept.clear()
        self._decisions_bytes = 0
        self._read_since = Micros(-1)
        return True

    def asks(self, now: Micros) -> list[ResolverRequest]:
        """The requests to send now; each must come back by `replied` or `failed`."""
        if self._begun is None:
            return []
        if now - self._begun > ROUND_US_MAX:
            self._trace(
                "decisions-unread",
                topic=TOPIC,
                reason="not read to the end in time",
                remedy="the next request starts a new round",
            )
            self._begun = None
            return []
        if now < self._not_before:
            return []
        if self._metadata is None:
            request = self.cluster.request(now, allow_auto_create=False)
            if request is not None:
                self._metadata = ResolverRequest(None, request)
                return [self._metadata]
        if not self._is_topic_known:
            return []
        asks = []
        for node, partitions in self._by_leader().items():
            if node not in self._asking:
                self._asking[node] = self._next_of(node, partitions)
                asks.append(self._asking[node])
        return asks

    def deadline(self) -> Micros | None:
        """The time of the next call without a response."""
        if self._begun is None:
            return None
        metadata = self.cluster.deadline()
        times = [Micros(self._begun + ROUND_US_MAX + 1)]
        if metadata is not None and self._metadata is None:
            times.append(metadata)
        if not self._asking:
            times.append(self._not_before)
        return min(times)

    def replied(self, ask: ResolverRequest, message: Message, now: Micros) -> None:
        """Process the response to a request; the response to one of an earlier round is ignored."""
        if ask is self._metadata and isinstance(message, MetadataResponse):
            self._metadata = None
            self.cluster.replied(message, now)
            self._topic_described()
            return
        if ask.node is None or self._asking.get(ask.node) is not ask:
            return
        del self._asking[ask.node]
        if self._begun is None:
            return
        try:
            if isinstance(message, ListOffsetsResponse):
                self._ends_listed(message, now)
            elif isinstance(message, FetchResponse):
                self._records_fetched(message, now)
        except (SparklogError, DecodeError) as error:
            self._trace("decisions-unread", topic=TOPIC, reason=str(error), remedy="see sparklog inspect")
            self._begun = None
            return
        self._end_if_read()

    def failed(self, ask: ResolverRequest, now: Micros) -> None:
        """Begin the round again after a back-off: a request failed."""
        if ask is self._metadata:
            self._metadata = None
            self.cluster.failed(now)
        elif ask.node is not None and self._asking.get(ask.node) is ask:
            del self._asking[ask.node]
            self._try_again(now)

    # -- inside ----------------------------------------------------------------------------------------------

    def _begin(self, now: Micros) -> None:
        self._begun = now
        self._is_topic_known = False
        self._ends.clear()
        self._asking.clear()
        self.cluster.want([TOPIC])
        self.cluster.refresh_soon()

    def _topic_described(self) -> None:
        if self._begun is None:
            return
        if TOPIC in self.cluster.topics:
            self._is_topic_known = True
        elif self.cluster.errors.get(TOPIC) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._decisions = dict.fromkeys(self._decisions)
            self._decisions_bytes = 0
            self._positions.clear()
            self._done()

    def _wanted(self) -> list[int]:
        """The partitions of the requested sinks."""
        count = len(self.cluster.topics[TOPIC].partitions)
        return sorted({partition_of(sink, count) for sink in self._decisions})

    def _by_leader(self) -> dict[NodeId, list[int]]:
        found: dict[NodeId, list[int]] = {}
        if TOPIC not in self.cluster.topics:
            return found
        for partition in self._wanted():
            if partition in self._ends and self._positions.get(partition, 0) >= self._ends[partition]:
                continue
            leader = self.cluster.leader(TopicPartition(TOPIC, partition))
            if leader == NO_NODE:
                self.cluster.refresh_soon()
            else:
                found.setdefault(leader, []).append(partition)
        return found

    def _next_of(self, node: NodeId, partitions: list[int]) -> ResolverRequest:
        unknown = [partition for partition in partitions if partition not in self._ends]
        if unknown:
            # The end of all written records: the round reads every decision below it.
            asked = [
                ListOffsetsPartition(partition_index=partition, timestamp=_LATEST) for partition in unknown
            ]
            return ResolverRequest(
                node,
                ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)]),
            )
        topic_id = self.cluster.id_of(TOPIC)
        fetched = [
            FetchPartition(
                partition=partition,
                fetch_offset=self._positions.get(partition, 0),
                partition_max_bytes=FETCH_BYTES,
            )
            for partition in partitions
        ]
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=_READ_COMMITTED,
            topics=[FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=fetched)],
        )
        return ResolverRequest(node, request, version_max=None if any(topic_id) else _VERSION_BY_NAME)

    def _ends_listed(self, reply: ListOffsetsResponse, now: Micros) -> None:
        for topic in reply.topics:
            for data in topic.partitions:
                if data.error_code:
                    self._try_again(now)
                else:
                    self._ends[data.partition_index] = data.offset
                    if self._positions.get(data.partition_index, 0) > data.offset:
                        self._positions[data.partition_index] = 0  # the topic was created again

    def _records_fetched(self, reply: FetchResponse, now: Micros) -> None:
        if reply.error_code:
            self._try_again(now)
        for topic in reply.responses:
            for data in topic.partitions:
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._positions[data.partition_index] = max(0, data.log_start_offset)
                elif data.error_code:
                    self._try_again(now)
                elif isinstance(data.records, memoryview) and len(data.records):
                    self._take(data, data.records)

    def _take(self, data: PartitionData, records: memoryview) -> None:
        """Keep the decisions of requested sinks among these records."""
        partition, position = data.partition_index, self._positions.get(data.partition_index, 0)
        headers, _ = whole_batches(records, check_crcs=True)
        at = TopicPartition(TOPIC, partition)
        for view in without_aborted(at, records, headers, Aborted(data.aborted_transactions or [])):
            for record in decode_records(view, position):
                key = parse_key(record.key)
                if key is not None and key[1] is About.DECISION and key[0] in self._decisions:
                    self._keep(key[0], record.value)
        if not headers:
            raise DecodeError(f"{at} at offset {position}: no whole batch", 0)
        self._positions[partition] = max(position, headers[-1][1].next_offset)

    def _keep(self, sink: str, value: bytes | None) -> None:
        """Store a newer decision of a sink; drop the oldest ones of other sinks above the limit, with their
        requests.
        """
        self._decisions_bytes += len(value or b"") - len(self._decisions.pop(sink) or b"")
        self._decisions[sink] = value
        evicted = []
        for other, old in self._decisions.items():
            if self._decisions_bytes <= DECISIONS_BYTES_MAX or other == sink:
                break
            if old is not None:
                self._decisions_bytes -= len(old)
                evicted.append(other)
        if evicted:
            for other in evicted:
                del self._decisions[other]
            self._asked = {
                one: first for one, first in self._asked.items() if sink_of(one) in self._decisions
            }

    def _end_if_read(self) -> None:
        if self._begun is not None and TOPIC in self.cluster.topics:
            wanted = self._wanted()
            if all(one in self._ends and self._positions.get(one, 0) >= self._ends[one] for one in wanted):
                self._done()

    def _done(self) -> None:
        assert self._begun is not None
        self._read_since, self._begun = self._begun, None

    def _try_again(self, now: Micros) -> None:
        self.cluster.refresh_soon()
        self._not_before = Micros(now + RETRY_US)
