"""A transactional producer that writes records and offsets, markers written by hand, and the view of readers
of it all.
"""

from sparklog.errors import ErrorCode, code_of
from sparklog.record.batch import build_batch, decode_records
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
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
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from sparklog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from sparklog_server.broker.access.authorization import Allow
from tests.broker import transactions
from tests.broker.groups import ask_coordinator
from tests.broker.world import World

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
READ_COMMITTED = 1


def started(seed: int = 1, *, allow: Allow | None = None, **more: str) -> World:
    """A node with the topic `t` of two partitions, which keeps groups."""
    world = World(seed, allow=allow, **SETTINGS, **more)
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t", partitions=2)
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    return world


class Writer:
    """A producer of transaction version 1 or 2 that counts its sequences."""

    def __init__(self, world: World, transactional_id: str, *, version: int) -> None:
        self.world = world
        self.version = version
        self.one = transactions.ready(world, transactional_id, end_version=5 if version == 2 else 4)
        self.named = transactional_id
        self._sequences: dict[int, int] = {}

    @property
    def identity(self) -> tuple[int, int]:
        """Producer id and epoch."""
        return self.one.producer_id, self.one.epoch

    def add(self, partition: int) -> ErrorCode:
        """Make a partition of `t` part of the transaction, as version 1 does."""
        return self.one.add(partition)[0]

    def batch(self, *values: bytes, partition: int = 0) -> ProduceRequest:
        """A produce within the transaction; counts the sequence on."""
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        records = [(None, value, (), self.world.clock.now.wall_ms) for value in values]
        producer_id, epoch = self.identity
        sent = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = [PartitionProduceData(index=partition, records=bytes(sent))]
        topics = [TopicProduceData(name="t", partition_data=data)]
        return ProduceRequest(transactional_id=self.named, acks=-1, timeout_ms=1000, topic_data=topics)

    def ask(self, request: ProduceRequest, *, version: int | None = None) -> tuple[ErrorCode, int]:
        """Produce; (error, offset) of the first partition."""
        answer = self.one.ask(request, version or (12 if self.version == 2 else 11), ProduceResponse)
        assert isinstance(answer, ProduceResponse)
        part = answer.responses[0].partition_responses[0]
        return code_of(part.error_code), part.base_offset

    def send(self, *values: bytes, partition: int = 0) -> tuple[ErrorCode, int]:
        """Produce; refused batches do not count."""
        before = dict(self._sequences)
        code, offset = self.ask(self.batch(*values, partition=partition))
        if code:
            self._sequences = before
        return code, offset

    def commit_offset(self, group: str, offset: int, *, version: int | None = None) -> ErrorCode:
        """An offset of `t-0` for a group, within the transaction; whoever speaks version 1 calls
        `one.add_offsets` before.
        """
        producer_id, epoch = self.identity
        topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, offset)])]
        request = TxnOffsetCommitRequest(self.named, group, producer_id, epoch, topics=topics)
        answer = self.one.ask(request, version or (5 if self.version == 2 else 3), TxnOffsetCommitResponse)
        assert isinstance(answer, TxnOffsetCommitResponse)
        return code_of(answer.topics[0].partitions[0].error_code)

    def end(self, *, is_commit: bool) -> ErrorCode:
        """EndTxn; version 2 takes the next epoch from the answer, and counts from 0 again."""
        before = self.identity
        code = self.one.end(commit=is_commit)
        if self.identity != before:
            self._sequences.clear()
        self.world.settle()
        return code

    def reconnect(self) -> None:
        """A connection to the node that was started again."""
        self.one.client = self.world.node.connect()


def mark(
    world: World,
    producer: tuple[int, int],
    *partitions: tuple[str, int],
    is_commit: bool = True,
    coordinator_epoch: int = 0,
    version: int = 1,
) -> list[ErrorCode]:
    """Write markers by hand, as another coordinator or an administrator would."""
    topics = [WritableTxnMarkerTopic(topic, [index]) for topic, index in partitions]
    marker = WritableTxnMarker(
        producer[0], producer[1], is_commit, topics, coordinator_epoch, version if version == 2 else 0
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    answer = world.ask(world.node.connect(), request, 2 if version == 2 else 1, WriteTxnMarkersResponse)
    assert isinstance(answer, WriteTxnMarkersResponse)
    return [code_of(part.error_code) for topic in answer.markers[0].topics for part in topic.partitions]


def read(
    world: World, *, partition: int = 0, offset: int = 0
) -> tuple[list[bytes], list[tuple[int, int]], int]:
    """The result of a read_committed fetch: values as sent, (producer id, first offset) of what was aborted,
    the last stable offset.
    """
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[part])]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        session_epoch=-1,
        topics=topics,
    )
    answer = world.ask(world.node.connect(), request, 12, FetchResponse)
    assert isinstance(answer, FetchResponse)
    told = answer.responses[0].partitions[0]
    assert told.error_code == 0, code_of(told.error_code)
    aborted = [(one.producer_id, one.first_offset) for one in told.aborted_transactions or ()]
    return (
        [record.value or b"" for record in decode_records(told.records or b"")],
        aborted,
        told.last_stable_offset,
    )


def offset_of(world: World, group: str, *, is_stable: bool = False) -> tuple[ErrorCode, int]:
    """The offset that a group committed for `t-0`."""
    asked = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    answer = world.ask(
        world.node.connect(),
        OffsetFetchRequest(groups=[asked], require_stable=is_stable),
        8,
        OffsetFetchResponse,
    )
    assert isinstance(answer, OffsetFetchResponse)
    part = answer.groups[0].topics[0].partitions[0]
    return code_of(part.error_code), part.committed_offset
