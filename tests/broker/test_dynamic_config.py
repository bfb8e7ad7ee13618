"""Settings changed while the broker runs take effect at once: for topics, for their defaults, for compaction,
for groups.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Offset
from sparklog.record.batch import build_batch
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.image import TOPIC_RESOURCE, MetadataImage
from sparklog_server.metadata.records import ConfigRecord, RegisterBrokerRecord
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.configuring import BROKER, DELETE, GROUP, TOPIC, alter, resource, set_to
from tests.broker.world import ACKS_ALL, PRODUCE_BY_NAME, World, latest, listed, produce, produced

DONE = (ErrorCode.NONE, None)


def started(**given: str) -> World:
    world = World(seed=1, **{name.replace("_", "."): value for name, value in given.items()})
    world.node.start()
    world.settle()
    return world


def send(world: World, client: SimulatedConnection, *values: bytes, acks: int = 1) -> int:
    """Produce one batch; its error code."""
    answer = world.ask(
        client, produce("t", world.batch(*values), acks=acks), PRODUCE_BY_NAME, ProduceResponse
    )
    return produced(answer)[0]


def earliest(world: World, client: SimulatedConnection) -> int:
    return listed(world.ask(client, latest("t", timestamp=-2), 5, ListOffsetsResponse))[1]


def test_the_largest_batch_is_what_the_topic_or_else_the_cluster_says_now(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    assert send(world, client, b"x" * 5000) == 0
    set_to(world, client, BROKER, "", message_max_bytes="4000")
    assert send(world, client, b"x" * 5000) == ErrorCode.MESSAGE_TOO_LARGE
    set_to(world, client, TOPIC, "t", max_message_bytes="6000")
    assert send(world, client, b"x" * 5000) == 0
    alter(world, client, resource(TOPIC, "t", ("max.message.bytes", DELETE, None)))
    assert send(world, client, b"x" * 5000) == ErrorCode.MESSAGE_TOO_LARGE
    alter(world, client, resource(BROKER, "", ("message.max.bytes", DELETE, None)))
    assert send(world, client, b"x" * 5000) == 0


def test_old_segments_go_by_a_retention_that_is_set_for_the_cluster() -> None:
    world = started(log_retention_check_interval_ms="1000", log_initial_task_delay_ms="0")
    client = world.node.connect()
    world.create(client, "t")
    assert set_to(world, client, TOPIC, "t", internal_segment_bytes="1000") == DONE
    for _ in range(6):
        send(world, client, b"x" * 600)
    world.settle(5_000)
    assert earliest(world, client) == 0
    assert set_to(world, client, BROKER, "", log_retention_bytes="1000") == DONE
    world.settle(5_000)
    assert earliest(world, client) > 3


def test_a_partition_with_fewer_replicas_than_the_minimum_requires_all_of_them(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    assert send(world, client, b"x", acks=ACKS_ALL) == 0
    assert set_to(world, client, BROKER, "", min_insync_replicas="2") == DONE
    assert send(world, client, b"x", acks=ACKS_ALL) == 0


def test_a_topic_begins_to_wait_for_the_disk_and_ceases_to(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    for flush, waits in (("never", False), ("always", True), ("never", False), ("auto", True)):
        assert set_to(world, client, TOPIC, "t", sparklog_ack_flush=flush) == DONE
        world.settle()
        before = len(client.replies)
        client.send(produce("t", world.batch(b"x"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
        assert (len(client.replies) == before) is waits, flush
        world.settle()
        assert produced(client.replies[-1])[0] == 0


def test_topics_are_compacted_once_the_cluster_says_so_and_as_often_as_it_says() -> None:
    world = started(log_cleaner_backoff_ms="3600000")
    client = world.node.connect()
    world.create(client, "t")

    def write() -> None:
        for value in (b"x", b"y", b"z"):
            record = (b"key", value * 600, (), world.clock.now.wall_ms)
            answer = world.ask(
                client, produce("t", bytes(build_batch([record]))), PRODUCE_BY_NAME, ProduceResponse
            )
            assert produced(answer)[0] == 0

    def log_bytes() -> int:
        return sum(
            len(world.disk.read(f"/data/t-0/{name}") or b"")
            for name in world.disk.list("/data/t-0")
            if name.endswith(".log")
        )

    assert set_to(world, client, TOPIC, "t", internal_segment_bytes="700") == DONE
    write()
    before = log_bytes()
    values = {
        "log_cleanup_policy": "compact",
        "log_cleaner_min_cleanable_ratio": "0.01",
        "log_cleaner_backoff_ms": "500",
    }
    assert set_to(world, client, BROKER, "", **values) == DONE
    assert send(world, client, b"without a key") == ErrorCode.INVALID_RECORD
    for _ in range(2):
        world.settle(5_000)
        assert log_bytes() < before
        write()


def test_compaction_works_within_limits_that_are_set_while_it_runs(world: World) -> None:
    client = world.node.connect()
    assert (
        set_to(
            world, client, BROKER, "", log_cleaner_threads="2", log_cleaner_io_max_bytes_per_second="1000000"
        )
        == DONE
    )
    assert set_to(world, client, BROKER, "", log_cleaner_threads="4") == DONE
    assert set_to(world, client, BROKER, "", log_cleaner_threads="9")[0] == ErrorCode.INVALID_REQUEST
    settings = world.node.running.settings
    assert (settings.cleaner.threads, settings.cleaner.io_max_bytes_per_second) == (4, 1_000_000)


def beat(
    world: World, client: SimulatedConnection, member: str, epoch: int, *, joins: bool = False
) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat of a member of the group `g`, which subscribes to `t` when it joins."""
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch)
    if joins:
        request.subscribed_topic_names, request.rebalance_timeout_ms, request.topic_partitions = (
            ["t"],
            60_000,
            [],
        )
    answer = world.ask(client, request, 1, ConsumerGroupHeartbeatResponse)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    assert answer.error_code == 0, answer.error_message
    return answer


def test_a_group_is_told_its_own_interval_of_heartbeats_as_long_as_it_has_one(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    epoch = joined(world, client, "a")
    for _ in range(2):
        world.settle(25_000)
        beat(world, client, "a", epoch)
    for _ in range(2):
        assert beat(world, client, "a", epoch).heartbeat_interval_ms == 5_000
        assert set_to(world, client, GROUP, "g", consumer_heartbeat_interval_ms="9000") == DONE
        assert beat(world, client, "a", epoch).heartbeat_interval_ms == 9_000
        assert alter(
            world, client, resource(GROUP, "g", ("consumer.heartbeat.interval.ms", DELETE, None))
        ) == [DONE]
    assert beat(world, client, "a", epoch).heartbeat_interval_ms == 5_000


def test_assignments_follow_each_other_as_soon_as_the_cluster_or_the_group_says(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t", partitions=2)
    epoch = joined(world, client, "a")
    assert set_to(world, client, BROKER, "", group_consumer_assignment_interval_ms="15000") == DONE
    assert (
        beat(world, client, "b", 0, joins=True).member_epoch == epoch
    )  # the target that is there: a new one must wait
    assert alter(
        world, client, resource(BROKER, "", ("group.consumer.assignment.interval.ms", DELETE, None))
    ) == [DONE]
    assert beat(world, client, "c", 0, joins=True).member_epoch > epoch


def joined(world: World, client: SimulatedConnection, member: str) -> int:
    """Let a member join a new group; its epoch."""
    world.ask(client, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, FindCoordinatorResponse)
    return beat(world, client, member, 0, joins=True).member_epoch


def test_a_broker_is_alone_until_a_second_one_registers() -> None:
    live = DynamicBrokerConfig(BrokerSettings.of({}), trace=lambda _, **__: None)
    assert live.is_only_broker
    image = MetadataImage()
    for node, is_only in ((1, True), (2, False)):
        record = RegisterBrokerRecord(broker_id=node, incarnation_id=bytes([node]) * 16, broker_epoch=node)
        image, delta = image.apply([(Offset(node), record)])
        live.follow(delta)
        assert live.is_only_broker == is_only


@pytest.mark.parametrize("name", ["cleanup.policy", "retention.ms", "retention.bytes"])
def test_a_stored_setting_that_cannot_be_read_deletes_nothing_and_is_warned_of(name: str) -> None:
    told: list[tuple[str, dict[str, object]]] = []
    static = BrokerSettings.of({"log.retention.ms": "1", "log.retention.bytes": "1"})
    live = DynamicBrokerConfig(static, trace=lambda event, **fields: told.append((event, fields)))
    record = ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="t", name=name, value="of a later release"
    )
    live.follow(MetadataImage().apply([(Offset(0), record)])[1])
    settings = live.log("t")
    deletes = {
        "cleanup.policy": settings.is_deleted or settings.is_compacted,
        "retention.ms": settings.retention_ms >= 0,
        "retention.bytes": settings.retention_bytes >= 0,
    }
    assert not deletes[name]
    assert told == [("topic-settings-unreadable", {"topic": "t", "keys": name})]
