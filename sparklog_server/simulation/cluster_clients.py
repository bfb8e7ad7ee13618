"""Clients of a simulated cluster: an administrator, writers, and a group's committer, each through any node.

They repeat what gets no response or an error that a client repeats, and note what they were told. Any other
error is a violation: no broker tells a client to look for the controller, for instance.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.record.batch import build_batch, decode_records
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.schema import Message
from sparklog_server.config.layers import BROKER_STATE
from sparklog_server.metadata.image import BROKER_RESOURCE
from sparklog_server.simulation.client_process import Ask, Steps
from sparklog_server.simulation.clock import START_WALL_MS
from sparklog_server.simulation.world import Violation

TOPIC, TRANSACTION_TOPIC, PARTITIONS, GROUP = "t", "x", 3, "g"
GROUP_KEY, TRANSACTION_KEY = 0, 1
_PAUSE_US = (20_000, 200_000)
_WRITE_US = (1_000, 60_000)
_TIMEOUT_MS = 5_000
_READS = 200
_PRODUCE, _FETCH, _METADATA, _CREATE, _REASSIGN, _ALTER_CONFIGS = 9, 12, 12, 7, 0, 1
_SET = 0
_OPERATE_US = (30_000, 700_000)
_STATE_CHANGES, _CANCELS = 0.3, 0.2
"""The parts of what an operator does that change the state of a broker, and of the moves that are cancels."""
_STATES = ("active", "active", "cordoned", "drained", "decommissioned")
_OF_A_LOST_DISK = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_LATER = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
"""Errors that a client repeats. INVALID_REPLICATION_FACTOR is added where too few brokers are in service."""

Told = Generator[Ask | int, Message | None, Message]


@dataclass
class Notes:
    """What the clients were told."""

    created: set[str] = field(default_factory=set)
    producer_ids: set[int] = field(default_factory=set)
    acknowledged: dict[int, dict[int, int]] = field(default_factory=dict)
    """The offset of each acknowledged value, by partition; -1 where only a repetition was acknowledged."""
    committed: int = -1
    """The last acknowledged offset of the group; a later one may have taken effect."""
    asked: int = -1
    lost: set[NodeId] = field(default_factory=set)
    """The nodes whose disks were lost, with the partitions on them."""
    reachable: list[NodeId] = field(default_factory=list)
    """The brokers of which a client asks one, if not any."""
    is_operated: bool = True
    """The operator may move replicas and change the states of brokers."""
    is_over: bool = False
    is_checked: bool = False
    is_concluded: bool = False
    """The history of transactions was checked."""


class Clients:
    """The steps of all clients of a run. Each gets a random sequence of its own."""

    def __init__(self, brokers: Sequence[NodeId], notes: Notes, replicas: int) -> None:
        """The topics get that many `replicas`."""
        self._brokers = brokers
        self._replicas = replicas
        self._notes = notes
        self._epochs: dict[tuple[str, int], int] = {}  # the latest that was told

    def administrator(self, random: Random) -> Steps:
        """Create the topic, then one topic after the other."""
        number = 0
        while not self._notes.is_over:
            name = (TOPIC, TRANSACTION_TOPIC)[number] if number < 2 else f"more-{number}"
            count = PARTITIONS if number < 2 else 1
            topic = CreatableTopic(name=name, num_partitions=count, replication_factor=self._replicas)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
            more = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_REPLICATION_FACTOR)
            response = yield from self._anyone(random, request, _CREATE, CreateTopicsResponse)
            assert isinstance(response, CreateTopicsResponse)
            code = _legal("CreateTopics", response.topics[0].error_code, more)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._notes.created.add(name)
                number += 1
            yield random.randint(*_PAUSE_US)

    def operator(self, random: Random, moved: Sequence[tuple[str, int]], counts: Counter[str]) -> Steps:
        """Move replicas of these partitions, cancel moves, drain and decommission brokers, while there are
        faults; then ask for the ordinary state of all brokers. `counts` the outcomes.
        """
        notes, asked = self._notes, dict[NodeId, str]()
        while notes.is_operated:
            if random.random() < _STATE_CHANGES:
                node, state = random.choice(self._brokers), random.choice(_STATES)
                yield from self._ask_state(random, node, state)
                asked[node] = state
                counts["states-asked"] += 1
            else:
                code = yield from self._move(random, *random.choice(moved))
                counts["moved" if code is ErrorCode.NONE else "moves-refused"] += 1
            yield random.randint(*_OPERATE_US)
        for node in [node for node, state in asked.items() if state != "active"]:
            while (yield from self._ask_state(random, node, "active")) is not ErrorCode.NONE:
                yield random.randint(*_PAUSE_US)

    def _ask_state(
        self, random: Random, node: NodeId, state: str
    ) -> Generator[Ask | int, Message | None, ErrorCode]:
        change = AlterableConfig(name=BROKER_STATE, config_operation=_SET, value=state)
        resource = AlterConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=str(node), configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = yield from self._anyone(random, request, _ALTER_CONFIGS, IncrementalAlterConfigsResponse)
        assert isinstance(response, IncrementalAlterConfigsResponse)
        code = response.responses[0].error_code
        # A decommissioned broker without replicas that has ended is unregistered, and comes back.
        return _legal("IncrementalAlterConfigs", code, (ErrorCode.BROKER_ID_NOT_REGISTERED,))

    def _move(
        self, random: Random, topic: str, partition: int
    ) -> Generator[Ask | int, Message | None, ErrorCode]:
        brokers = len(self._brokers)
        target = random.sample([*map(int, self._brokers)], random.randint(min(2, brokers), min(4, brokers)))
        asked = ReassignablePartition(partition, None if random.random() < _CANCELS else target)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=_TIMEOUT_MS, topics=[ReassignableTopic(topic, [asked])]
        )
        response = yield from self._anyone(random, request, _REASSIGN, AlterPartitionReassignmentsResponse)
        assert isinstance(response, AlterPartitionReassignmentsResponse)
        codes = [response.error_code, *(p.error_code for t in response.responses for p in t.partitions)]
        code = next((one for one in codes if one), 0)
        refused = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return _legal("AlterPartitionReassignments", code, refused)

    def writer(self, random: Random, partition: int) -> Steps:
        """Write one number after the other to a partition, each until it is acknowledged."""
        notes = self._notes
        acknowledged = notes.acknowledged[partition] = {}
        while TOPIC not in notes.created:
            yield _PAUSE_US[1]
        identity = yield from self._init_producer_id(random)
        number = first = 0  # `first` has the sequence number 0 of the producer id
        while not notes.is_over:
            batch = build_batch(
                [(None, b"%d" % number, (), START_WALL_MS)],
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=number - first,
            )
            data = [PartitionProduceData(index=partition, records=batch)]
            request = ProduceRequest(
                acks=-1,
                timeout_ms=_TIMEOUT_MS,
                topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
            )
            leader = yield from self.leader(random, TOPIC, partition)
            response = yield Ask(leader, request, _PRODUCE, ProduceResponse)
            if response is None:
                continue
            assert isinstance(response, ProduceResponse)
            part = response.responses[0].partition_responses[0]
            more = _OF_A_LOST_DISK if notes.lost else ()
            # A broker that does not know yet that another one leads lacks what that one has acknowledged.
            stale = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,) if self._replicas > 1 else ()
            code = _legal("Produce", part.error_code, (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, *stale, *more))
            if code in more:
                identity, first = (yield from self._init_producer_id(random)), number
            elif code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                acknowledged[number] = part.base_offset
                number += 1
            yield random.randint(*(_WRITE_US if code is ErrorCode.NONE else _PAUSE_US))

    def committer(self, random: Random) -> Steps:
        """Commit one offset after the other for a group, by its coordinator."""
        notes = self._notes
        while TOPIC not in notes.created:
            yield _PAUSE_US[1]
        while not notes.is_over:
            notes.asked = max(notes.asked, notes.committed + 1)
            offset = notes.committed + 1
            part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            request = OffsetCommitRequest(
                group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[part])]
            )
            coordinator = yield from self.coordinator(random, GROUP, GROUP_KEY)
            response = yield Ask(coordinator, request, 8, OffsetCommitResponse)
            if response is None:
                continue
            assert isinstance(response, OffsetCommitResponse)
            if not _legal("OffsetCommit", response.topics[0].partitions[0].error_code):
                notes.committed = offset
            yield random.randint(*_PAUSE_US)

    def checker(self, random: Random) -> Steps:
        """After the end, read every partition and the group's offset, and compare."""
        notes = self._notes
        while not notes.is_over:
            yield _PAUSE_US[1]
        for partition, acknowledged in notes.acknowledged.items():
            due = set(acknowledged)  # the last request of the writer may still be acknowledged
            # The high watermark of a new leader rises with the fetches of its followers.
            for _ in range(_READS):
                found = yield from self._read(random, partition)
                values = [value for _, value in found]
                if notes.lost or due <= set(values):
                    break
                yield random.randint(*_PAUSE_US)
            if values != sorted(set(values)):
                raise Violation("order", f"partition {partition} has {values}")
            leader = yield from self.leader(random, TOPIC, partition)
            if leader in notes.lost:
                continue
            lost = sorted(due - set(values))
            moved = [pair for pair in found if acknowledged.get(pair[1], -1) not in (-1, pair[0])]
            if lost or moved:
                raise Violation("lost", f"partition {partition} lacks {lost}, and has moved {moved}")
        committed = -1 if notes.lost else notes.committed  # the last commit may be acknowledged meanwhile
        offset = yield from self._committed_offset(random)
        if not committed <= offset <= notes.asked:
            raise Violation("offset-lost", f"{committed} is committed, {notes.asked} asked, {offset} found")
        notes.is_checked = True

    # -- parts of steps

    def _anyone(self, random: Random, request: Message, version: int, reply: type[Message]) -> Told:
        """Ask any node, another one if there is no response."""
        while True:
            node = random.choice(self._notes.reachable or self._brokers)
            response = yield Ask(node, request, version, reply)
            if response is not None:
                return response
            yield random.randint(*_PAUSE_US)

    def _init_producer_id(
        self, random: Random
    ) -> Generator[Ask | int, Message | None, InitProducerIdResponse]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while True:
            response = yield from self._anyone(random, request, 4, InitProducerIdResponse)
            assert isinstance(response, InitProducerIdResponse)
            if not _legal("InitProducerId", response.error_code):
                if response.producer_id in self._notes.producer_ids:
                    raise Violation("producer-id-twice", str(response.producer_id))
                self._notes.producer_ids.add(response.producer_id)
                return response
            yield random.randint(*_PAUSE_US)

    def leader(
        self, random: Random, topic_name: str, partition: int
    ) -> Generator[Ask | int, Message | None, NodeId]:
        """The leader of a partition, by the metadata of any node."""
        return (yield from self.leader_and_epoch(random, topic_name, partition))[0]

    def leader_and_epoch(
        self, random: Random, topic_name: str, partition: int
    ) -> Generator[Ask | int, Message | None, tuple[NodeId, int]]:
        """The leader of a partition and its epoch, by the metadata of any node. As in Kafka's clients, the
        epoch is not before one that was told (KIP-320).
        """
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic_name)], allow_auto_topic_creation=False
        )
        while True:
            response = yield from self._anyone(random, request, _METADATA, MetadataResponse)
            assert isinstance(response, MetadataResponse)
            topic = response.topics[0]
            if not _legal("Metadata", topic.error_code):
                at = topic_name, partition
                for part in topic.partitions:
                    is_known = part.partition_index == partition and part.leader_id >= 0
                    if is_known and part.leader_epoch >= self._epochs.get(at, -1):
                        self._epochs[at] = part.leader_epoch
                        return NodeId(part.leader_id), part.leader_epoch
            yield random.randint(*_PAUSE_US)

    def coordinator(
        self, random: Random, key: str, key_type: int
    ) -> Generator[Ask | int, Message | None, NodeId]:
        """The coordinator of a group or transactional id, by any node."""
        while True:
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            response = yield from self._anyone(random, request, 3, FindCoordinatorResponse)
            assert isinstance(response, FindCoordinatorResponse)
            if not _legal("FindCoordinator", response.error_code):
                return NodeId(response.node_id)
            yield random.randint(*_PAUSE_US)

    def _read(
        self, random: Random, partition: int
    ) -> Generator[Ask | int, Message | None, list[tuple[int, int]]]:
        """The (offset, value) pairs of a partition, up to its high watermark."""
        found: list[tuple[int, int]] = []
        while True:
            leader = yield from self.leader(random, TOPIC, partition)
            offset = found[-1][0] + 1 if found else 0
            asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                topics=[FetchTopic(topic=TOPIC, partitions=[asked])],
            )
            response = yield Ask(leader, request, _FETCH, FetchResponse)
            if response is None:
                continue
            assert isinstance(response, FetchResponse)
            part = response.responses[0].partitions[0]
            if _legal("Fetch", part.error_code):
                yield random.randint(*_PAUSE_US)
                continue
            records = part.records or b""
            assert isinstance(records, (bytes, bytearray, memoryview))
            found += [
                (record.offset, int(record.value or b""))
                for record in decode_records(records)
                if record.offset >= offset
            ]
            if not found or found[-1][0] + 1 >= part.high_watermark:
                return found

    def _committed_offset(self, random: Random) -> Generator[Ask | int, Message | None, int]:
        asked = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])])
        while True:
            coordinator = yield from self.coordinator(random, GROUP, GROUP_KEY)
            response = yield Ask(coordinator, request, 8, OffsetFetchResponse)
            if response is None:
                continue
            assert isinstance(response, OffsetFetchResponse)
            group = response.groups[0]
            if not _legal("OffsetFetch", group.error_code):
                return group.topics[0].partitions[0].committed_offset
            yield random.randint(*_PAUSE_US)


def _legal(api: str, code: int, more: Iterable[ErrorCode] = ()) -> ErrorCode:
    """The error code, if a client may get it here."""
    told = ErrorCode(code)
    if told is not ErrorCode.NONE and told not in _LATER and told not in more:
        raise Violation("illegal-error", f"{api}: {told.name}")
    return told
