"""Fixtures of the broker's tests: a node, requests in one line, and a clock that tests advance."""

from random import Random

from sparklog.record.batch import build_batch, decode_records
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Allow
from sparklog_server.broker.broker import Broker
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.cluster import SimulatedConnection, SimulatedNode
from sparklog_server.simulation.disk import SimulatedDisk

ACKS_ALL = -1
FETCH_BY_NAME = 12
PRODUCE_BY_NAME = 9


class World:
    """One simulated node and its time."""

    def __init__(
        self, seed: int, *, allow: Allow | None = None, broker_class: type[Broker] = Broker, **given: str
    ) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.disk = SimulatedDisk()
        settings = BrokerSettings.of(
            {"log.dirs": "/data", "listeners": "PLAINTEXT://127.0.0.1:9092", **given}
        )
        self.node = SimulatedNode(
            self.clock, self.random, self.disk, settings, allow=allow, broker_class=broker_class
        )

    def settle(self, ms: int = 1000) -> None:
        """Let `ms` of virtual time pass."""
        self.clock.run(until_us=self.clock.now.mono_us + ms * 1000)

    def ask(
        self, connection: SimulatedConnection, request: Message, version: int, reply: type[Message]
    ) -> Message:
        """Send, let time pass, and return the newest reply."""
        before = len(connection.replies)
        connection.send(request, version, reply)
        self.settle()
        assert len(connection.replies) == before + 1, "no answer"
        return connection.replies[-1]

    def create(self, connection: SimulatedConnection, name: str, partitions: int = 1) -> int:
        """Create a topic; returns its error code."""
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)],
            timeout_ms=1000,
        )
        answer = self.ask(connection, request, 7, CreateTopicsResponse)
        assert isinstance(answer, CreateTopicsResponse)
        return answer.topics[0].error_code

    def batch(self, *values: bytes, **more: int) -> bytes:
        """A record batch of these values."""
        return bytes(build_batch([(None, value, (), self.clock.now.wall_ms) for value in values], **more))


def produce(
    topic: str, batch: bytes, *, acks: int = 1, partition: int = 0, timeout_ms: int = 1000
) -> ProduceRequest:
    """A produce of one batch."""
    data = [PartitionProduceData(index=partition, records=batch)]
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def produced(answer: Message) -> tuple[int, int]:
    """(error code, base offset) of the one partition."""
    assert isinstance(answer, ProduceResponse)
    part = answer.responses[0].partition_responses[0]
    return part.error_code, part.base_offset


def fetch(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    max_bytes: int = 1 << 20,
) -> FetchRequest:
    """A fetch of one partition."""
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )


def fetched(answer: Message) -> tuple[int, list[bytes]]:
    """(error code, values) of the one partition."""
    assert isinstance(answer, FetchResponse)
    part = answer.responses[0].partitions[0]
    return part.error_code, [record.value for record in decode_records(part.records or b"")]


def latest(topic: str, *, partition: int = 0, timestamp: int = -1) -> ListOffsetsRequest:
    """ListOffsets of one partition."""
    part = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])])


def listed(answer: Message) -> tuple[int, int]:
    """(error code, offset) of the one partition."""
    assert isinstance(answer, ListOffsetsResponse)
    part = answer.topics[0].partitions[0]
    return part.error_code, part.offset
