"""ListOffsets by time reads cold files beside the loop, and the reply is true when it is sent."""

from msgspec.structs import replace

from sparklog.errors import ErrorCode
from sparklog.model import LeaderEpoch, NodeId, TopicPartition
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.world import ACKS_ALL, PRODUCE_BY_NAME, World, latest, listed, produce, produced

VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
SEGMENT_BYTES = 1 << 20


def fill(world: World, count: int) -> list[int]:
    """A topic of many small segments, one record of 100 kB per second; gives the timestamps."""
    client = world.node.connect()
    configs = [CreatableTopicConfig(name="segment.bytes", value=str(SEGMENT_BYTES))]
    topics = [CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)]
    world.ask(client, CreateTopicsRequest(topics=topics, timeout_ms=1000), 7, CreateTopicsResponse)
    stamps = []
    for _ in range(count):
        stamps.append(world.clock.now.wall_ms)
        assert (
            produced(
                world.ask(
                    client,
                    produce("t", world.batch(bytes(100_000)), acks=ACKS_ALL),
                    PRODUCE_BY_NAME,
                    ProduceResponse,
                )
            )[0]
            == 0
        )
    return stamps


def test_each_record_is_found_by_its_time_through_sealed_segments_and_after_a_restart(world: World) -> None:
    stamps = fill(world, 60)
    for _ in range(2):
        client = world.node.connect()
        for offset in range(0, 60, 7):
            assert listed(
                world.ask(client, latest("t", timestamp=stamps[offset]), 7, ListOffsetsResponse)
            ) == (0, offset)
            assert listed(
                world.ask(client, latest("t", timestamp=stamps[offset] - 1), 7, ListOffsetsResponse)
            ) == (0, offset)
        assert listed(world.ask(client, latest("t", timestamp=stamps[-1] + 1), 7, ListOffsetsResponse)) == (
            0,
            -1,
        )
        assert listed(world.ask(client, latest("t", timestamp=-3), 7, ListOffsetsResponse)) == (0, 59)
        world.node.stop()
        world.node.start()
        world.settle()


def test_a_search_by_time_holds_up_its_own_session_only(world: World) -> None:
    stamps = fill(world, 20)
    client, other = world.node.connect(), world.node.connect()
    client.send(latest("t", timestamp=stamps[3]), 7, ListOffsetsResponse)
    client.send(VERSIONS, 3, ApiVersionsResponse)
    other.send(VERSIONS, 3, ApiVersionsResponse)
    assert (client.replies, len(other.replies)) == ([], 1)
    world.settle()
    assert listed(client.replies[0]) == (0, 3)
    assert isinstance(client.replies[1], ApiVersionsResponse)


def test_special_timestamps_are_answered_at_once(world: World) -> None:
    fill(world, 3)
    client = world.node.connect()
    for timestamp in (-1, -2, -4, -5):
        client.send(latest("t", timestamp=timestamp), 9, ListOffsetsResponse)
    assert [listed(reply) for reply in client.replies] == [(0, 3), (0, 0), (0, 0), (0, -1)]


def test_one_request_may_ask_by_time_and_for_the_latest_offset_and_waits_for_both(world: World) -> None:
    stamps = fill(world, 5)
    client = world.node.connect()
    world.create(client, "u")
    client.replies.clear()
    client.send(produce("u", world.batch(b"x"), acks=1), PRODUCE_BY_NAME, ProduceResponse)
    asked = [("t", stamps[2]), ("u", -1), ("missing", 5)]
    topics = [
        ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
        for name, timestamp in asked
    ]
    client.send(ListOffsetsRequest(replica_id=-1, topics=topics), 7, ListOffsetsResponse)
    world.settle()
    answer = client.replies[1]
    assert isinstance(answer, ListOffsetsResponse)
    found = [(topic.partitions[0].error_code, topic.partitions[0].offset) for topic in answer.topics]
    assert found == [(0, 2), (0, 1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_a_topic_that_is_deleted_under_a_search_is_told_so_and_no_directory_is_taken_for_failed() -> None:
    for seed in range(10):
        world = World(seed)
        world.node.start()
        world.settle()
        stamps = fill(world, 3)
        client, other = world.node.connect(), world.node.connect()
        client.send(latest("t", timestamp=stamps[1]), 7, ListOffsetsResponse)
        other.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5, DeleteTopicsResponse)
        world.settle()
        assert listed(client.replies[0]) in [(0, 1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
        assert world.create(other, "u") == 0
        assert produced(
            world.ask(other, produce("u", world.batch(b"x")), PRODUCE_BY_NAME, ProduceResponse)
        ) == (0, 0)


def test_a_search_whose_session_goes_away_leaves_nothing_behind(world: World) -> None:
    stamps = fill(world, 3)
    client = world.node.connect()
    client.send(latest("t", timestamp=stamps[1]), 7, ListOffsetsResponse)
    world.node.disconnect(client)
    world.settle()
    assert listed(
        world.ask(world.node.connect(), latest("t", timestamp=stamps[1]), 7, ListOffsetsResponse)
    ) == (0, 1)


def test_a_search_by_time_that_outlives_its_leadership_is_refused(world: World) -> None:
    stamps = fill(world, 3)
    client = world.node.connect()
    client.send(latest("t", timestamp=stamps[1]), 7, ListOffsetsResponse)
    broker = world.node.running
    partition = broker._partitions.find("t", 0)
    placement = broker._quorum.image.partition(TopicPartition("t", 0))
    assert partition is not None
    assert placement is not None
    for leader, epochs in ((-1, 1), (placement.leader, 2)):  # in between, the log might have been truncated
        partition.placed(
            replace(
                placement, leader=NodeId(leader), leader_epoch=LeaderEpoch(placement.leader_epoch + epochs)
            ),
            world.clock.now,
        )
    assert client.replies == []
    world.settle()
    assert listed(client.replies[0])[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
