"""Where an epoch ended: OffsetForLeaderEpoch, and the diverging epoch of a Fetch."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import ACKS_ALL, PRODUCE_BY_NAME, World, latest, produce, produced


def latest_epoch(world: World) -> int:
    """The leader epoch of the only partition, as a reader is told it."""
    answer = world.ask(world.node.connect(), latest("t"), 7, ListOffsetsResponse)
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions[0].leader_epoch


@pytest.fixture
def two_epochs() -> tuple[World, SimulatedConnection, int]:
    """A topic with two records of one leader epoch and one of a later, after a stop without its mark;
    gives the first epoch too.
    """
    world = World(1, **{"sparklog.ack.flush": "never"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    for value in (b"a", b"b"):
        assert (
            produced(
                world.ask(
                    client, produce("t", world.batch(value), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
                )
            )[0]
            == 0
        )
    first = latest_epoch(world)
    world.node.stop()
    world.disk.remove("/data/.kafka_cleanshutdown", "/data/.sparklog-boot")
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert produced(
        world.ask(client, produce("t", world.batch(b"c"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    ) == (0, 2)
    return world, client, first


def end_of(
    world: World, client: SimulatedConnection, epoch: int, *, claimed: int = -1, topic: str = "t"
) -> tuple[int, int, int]:
    """(error code, epoch, end offset) by OffsetForLeaderEpoch."""
    part = OffsetForLeaderPartition(partition=0, current_leader_epoch=claimed, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[part])])
    answer = world.ask(client, request, 4, OffsetForLeaderEpochResponse)
    assert isinstance(answer, OffsetForLeaderEpochResponse)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def fetched(world: World, client: SimulatedConnection, offset: int, last_fetched_epoch: int) -> PartitionData:
    part = FetchPartition(
        partition=0, fetch_offset=offset, last_fetched_epoch=last_fetched_epoch, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[part])],
    )
    answer = world.ask(client, request, 12, FetchResponse)
    assert isinstance(answer, FetchResponse)
    return answer.responses[0].partitions[0]


def test_an_epoch_ends_where_the_next_began(two_epochs: tuple[World, SimulatedConnection, int]) -> None:
    world, client, first = two_epochs
    assert end_of(world, client, first) == (0, first, 2)
    second = latest_epoch(world)
    assert second > first
    assert end_of(world, client, second - 1) == (0, first, 2)
    assert end_of(world, client, second) == (0, second, 3)
    assert end_of(world, client, second + 1) == (0, -1, -1)


def test_whom_the_epoch_of_the_leader_does_not_suit_is_fenced(
    two_epochs: tuple[World, SimulatedConnection, int],
) -> None:
    world, client, first = two_epochs
    assert end_of(world, client, first, claimed=first)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert end_of(world, client, first, claimed=latest_epoch(world) + 1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert end_of(world, client, 0, topic="nowhere")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_behind_records_that_are_not_ours_hears_where_the_logs_part(
    two_epochs: tuple[World, SimulatedConnection, int],
) -> None:
    world, client, first = two_epochs
    part = fetched(world, client, 3, first)
    assert part.diverging_epoch is not None
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (first, 2)
    assert (part.error_code, bytes(part.records or b"")) == (0, b"")


def test_a_fetch_behind_records_that_are_ours_is_served(
    two_epochs: tuple[World, SimulatedConnection, int],
) -> None:
    world, client, first = two_epochs
    for epoch in (first, -1):
        part = fetched(world, client, 2, epoch)
        assert part.diverging_epoch is None
        assert part.records


def test_a_fetch_behind_an_epoch_that_nobody_knows_is_out_of_range(
    two_epochs: tuple[World, SimulatedConnection, int],
) -> None:
    world, client, first = two_epochs
    assert fetched(world, client, 2, first + 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
