"""Where an epoch ended: OffsetForLeaderEpoch, and the diverging epoch of a Fetch."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
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
from tests.broker.cluster.test_replicated_logs import delete
from tests.broker.cluster.test_replication import replicated
from tests.broker.clusters import Cluster
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


def moved(cluster: Cluster) -> None:
    """Kill the leader, and start it again once another replica leads."""
    leader = cluster.leading()
    assert leader is not None
    cluster.nodes[NodeId(leader)].kill(is_power_cut=False)
    cluster.run_until(lambda: cluster.leading() not in (None, leader))
    cluster.nodes[NodeId(leader)].start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})


def fetched_as(
    cluster: Cluster, replica_id: int, offset: int, last_fetched_epoch: int, leader_epoch: int
) -> PartitionData:
    """What the leader answers to a fetch of a replica, or of a consumer (-1)."""
    client = cluster.nodes[NodeId(cluster.leading() or 0)].connect()
    part = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=1 << 20,
    )
    topics = [FetchTopic(topic="t", partitions=[part])]
    request = FetchRequest(replica_id=replica_id, session_epoch=-1, topics=topics)
    client.send(request, 12, FetchResponse)
    cluster.run_until(lambda: bool(client.replies))
    answer = client.replies[0]
    assert isinstance(answer, FetchResponse)
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("is_follower", [True, False])
def test_a_fetch_below_the_log_start_is_out_of_range_though_the_epochs_diverge(*, is_follower: bool) -> None:
    cluster = replicated()
    moved(cluster)
    assert cluster.write(b"a", b"b") == 0
    for _ in range(2):
        moved(cluster)
    assert cluster.write(b"c") == 0
    leader = cluster.leading()
    replica = None if leader is None else cluster.replica(leader)
    assert leader is not None
    assert replica is not None
    (first, _), (second, start) = replica.log.epochs.entries
    assert (first + 1 < second, start) == (True, 2)
    delete(cluster, 1)
    reader = next(node for node in (1, 2, 3) if node != leader) if is_follower else -1
    part = fetched_as(cluster, reader, 1, second - 1, second)
    assert part.diverging_epoch is not None
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (first, 2)
    # KAFKA-12996: a truncation to 2 would leave the follower below the log start, to ask the same again.
    part = fetched_as(cluster, reader, 0, second - 1, second)
    assert (part.error_code, part.diverging_epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
