"""Hostile requests to a KIP-848 group: Kafka's error code, bounded memory, and no effect on other members."""

import tracemalloc

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from sparklog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from sparklog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_prefixed,
)
from sparklog.wire.messages.consumer_protocol import TopicPartitions as NamedPartitions
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from sparklog_server.coordinator.group.modern import ModernGroup
from tests.coordinator.modern_world import ModernWorld


@pytest.fixture
def world() -> ModernWorld:
    made = ModernWorld(consumer_assignment_interval_ms=0, initial_rebalance_delay_ms=0)
    made.create("a", 4)
    made.join("good", "a")
    return made


def check_undisturbed(world: ModernWorld) -> None:
    epoch = world.group().members["good"].epoch
    assert world.heartbeat("good", epoch).error_code == ErrorCode.NONE
    world.check_replay()


def test_names_of_250_characters_and_names_that_no_topic_can_have_are_names_of_nothing(
    world: ModernWorld,
) -> None:
    reply = world.join("m" * 250, "t" * 250, "..", "\0", "", "t" * 250)
    assert (reply.error_code, world.told(reply)) == (ErrorCode.NONE, {})
    assert world.group().members["m" * 250].topics == ("", "\0", "..", "t" * 250)
    check_undisturbed(world)


def test_a_subscription_that_no_record_can_hold_is_refused(world: ModernWorld) -> None:
    reply = world.join("m", *(f"{index:0240}" for index in range(5_000)))
    assert reply.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "record" in (reply.error_message or "")
    assert "m" not in world.group().members
    check_undisturbed(world)


def test_a_pattern_that_matches_more_than_a_record_can_hold_is_refused_or_matches_nothing(
    world: ModernWorld,
) -> None:
    names = [f"{'w' * 240}{index:05}" for index in range(5_000)]
    world.change([record for name in names for record in world.cluster.create(name, 1)])
    world.join("m", subscribed_topic_regex="w.*")
    world.advance(1)
    assert world.group().resolved == {}
    assert world.heartbeat("m", world.group().members["m"].epoch).error_code == ErrorCode.NONE
    check_undisturbed(world)


@pytest.mark.parametrize("partitions", [[0] * 100_000, list(range(100_000)), [-1, 2**31 - 1, -(2**31)]])
def test_long_and_senseless_lists_of_owned_partitions_own_nothing(
    world: ModernWorld, partitions: list[int]
) -> None:
    epoch = world.group().members["good"].epoch
    topic_id = world.cluster.image.topics_by_name["a"].topic_id
    for owned in (
        [TopicPartitions(topic_id, partitions)],
        [TopicPartitions(bytes(16), partitions)],
        [TopicPartitions(topic_id)] * 10_000,
    ):
        reply = world.heartbeat("good", epoch, topic_partitions=owned)
        assert reply.error_code == ErrorCode.NONE
        assert world.heartbeat("good", epoch - 1, topic_partitions=owned).error_code in (
            ErrorCode.NONE,
            ErrorCode.FENCED_MEMBER_EPOCH,
        )
    check_undisturbed(world)


def test_a_group_takes_as_many_members_as_it_may_have_and_loses_them_all_at_once() -> None:
    world = ModernWorld(consumer_size_max=3_000)
    world.create("a", 100)
    for index in range(3_000):
        assert world.join(f"m{index}", "a").error_code == ErrorCode.NONE
    assert world.join("one-more", "a").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(world.group().members) == 3_000
    world.advance(1_000)
    assert world.heartbeat("m0", world.group().members["m0"].epoch).error_code == ErrorCode.NONE
    world.advance(46_000)
    assert world.group().state_name() == "Empty"
    world.check_replay()


@pytest.mark.parametrize(
    "epoch", [-(2**31), -3, 2**31 - 1], ids=["the least", "below those that leave", "the greatest"]
)
def test_epochs_out_of_range_are_refused(world: ModernWorld, epoch: int) -> None:
    expected = {ErrorCode.FENCED_MEMBER_EPOCH} if epoch > 0 else {ErrorCode.INVALID_REQUEST}
    assert {world.heartbeat("good", epoch).error_code} == expected
    check_undisturbed(world)


@pytest.mark.parametrize("timeout", [-(2**31), -5, 0, 2**31 - 1])
def test_senseless_rebalance_timeouts_end_in_time(world: ModernWorld, timeout: int) -> None:
    epoch = world.group().members["good"].epoch
    world.heartbeat("good", epoch, rebalance_timeout_ms=timeout)
    world.join("m", "a")
    world.heartbeat("good", epoch)
    world.advance(10)
    assert ("good" in world.group().members) is (timeout > 10)
    world.check_replay()


def test_many_groups_described_at_once_each_have_their_answer(world: ModernWorld) -> None:
    reply = world.ask(
        ConsumerGroupDescribeRequest(group_ids=[*(f"none-{index}" for index in range(10_000)), "g"])
    )
    assert [group.error_code for group in reply.groups].count(ErrorCode.GROUP_ID_NOT_FOUND) == 10_000
    assert reply.groups[-1].group_state == "Stable"


def test_what_a_classic_leader_assigned_twice_or_out_of_nothing_is_taken_over_once_if_it_exists() -> None:
    world = ModernWorld(consumer_assignment_interval_ms=0, initial_rebalance_delay_ms=0)
    world.create("a", 4)
    metadata = encode_prefixed(ConsumerProtocolSubscription(topics=["a"]), 3)
    join = JoinGroupRequest(
        "g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", metadata)]
    )
    first = world.send(join, 3)
    second = world.send(join, 3)
    world.advance(0)
    ids = [world.answer(token).member_id for token in (first, second)]
    told = [NamedPartitions("a", [0, 1, 1, 7, -1]), NamedPartitions("ghost", [0])]
    assignment = encode_prefixed(ConsumerProtocolAssignment(assigned_partitions=told), 3)
    given = [SyncGroupRequestAssignment(member_id, assignment) for member_id in ids]
    world.send(SyncGroupRequest("g", 1, ids[0], assignments=given), 3)
    world.join("m", "a")
    members = world.groups["g"].members  # type: ignore[attr-defined]
    assert sorted(
        sorted(partitions) for member in members.values() for partitions in member.assigned.values()
    ) == [[0, 1], [3]]
    world.check_replay()


@pytest.mark.parametrize(("assignor", "is_upgraded"), [("own", False), ("cooperative-sticky", True)])
def test_an_assignment_with_data_of_its_own_keeps_the_group_classic_unless_no_client_needs_it(
    assignor: str, is_upgraded: bool
) -> None:
    world = ModernWorld(initial_rebalance_delay_ms=0)
    world.create("a", 1)
    metadata = encode_prefixed(ConsumerProtocolSubscription(topics=["a"]), 3)
    token = world.send(
        JoinGroupRequest(
            "g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol(assignor, metadata)]
        ),
        3,
    )
    world.advance(0)
    member_id = world.answer(token).member_id
    assignment = encode_prefixed(ConsumerProtocolAssignment(user_data=b"state"), 3)
    world.send(
        SyncGroupRequest("g", 1, member_id, assignments=[SyncGroupRequestAssignment(member_id, assignment)]),
        3,
    )
    reply = world.join("m", "a")
    assert reply.error_code == (ErrorCode.NONE if is_upgraded else ErrorCode.GROUP_ID_NOT_FOUND)
    assert isinstance(world.groups["g"], ModernGroup) is is_upgraded


def test_heartbeats_in_a_storm_write_nothing(world: ModernWorld) -> None:
    epoch = world.group().members["good"].epoch
    world.heartbeat("good", epoch)
    records = len(world.log)
    for _ in range(5_000):
        world.ask(ConsumerGroupHeartbeatRequest(group_id="g", member_id="good", member_epoch=epoch))
    assert len(world.log) == records


def test_a_static_member_whose_successor_is_refused_is_out_when_its_session_ends(world: ModernWorld) -> None:
    world.join("first", "a", instance_id="i")
    assert world.heartbeat("first", -2, instance_id="i").error_code == ErrorCode.NONE
    refused = world.join("second", subscribed_topic_regex="(", instance_id="i")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    world.advance(46_000)
    assert "first" not in world.group().members
    world.check_replay()


def test_topics_that_a_refused_heartbeat_saw_first_are_seen_by_the_next_that_is_not(
    world: ModernWorld,
) -> None:
    epoch = world.group().members["good"].epoch
    world.create("b", 1)
    assert world.heartbeat("good", epoch, subscribed_topic_names=["a", "b"]).error_code == ErrorCode.NONE
    world.change(world.cluster.grow("b", 3))
    wide = [f"{index:0240}" for index in range(5_000)]
    refused = world.heartbeat("good", world.group().members["good"].epoch, subscribed_topic_names=wide)
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    reply = world.heartbeat("good", world.group().members["good"].epoch)
    assert world.told(reply) == {"a": [0, 1, 2, 3], "b": [0, 1, 2]}
    check_undisturbed(world)


def test_a_heartbeat_that_is_refused_leaves_nothing_of_a_group_that_never_was(world: ModernWorld) -> None:
    tracemalloc.start()
    for number in range(2_100):
        if number == 100:
            before, _ = tracemalloc.get_traced_memory()
        request = ConsumerGroupHeartbeatRequest(
            f"group-{number}-{'x' * 1_000}",
            "m",
            0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_regex="(",
            topic_partitions=[],
        )
        assert world.ask(request).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1 << 20, "each of 2000 requests left half a kilobyte"
    check_undisturbed(world)
