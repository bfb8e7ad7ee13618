"""The controller's decisions, told as stories, and its limits."""

from pathlib import Path

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog_server.config.describe import Source
from tests.controller.world import World
from tests.story import check_story

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_controller_decides_as_the_story_tells(story: Path) -> None:
    check_story(story, World().run)


def test_a_new_topic_is_told_its_settings_and_where_they_come_from() -> None:
    world = World(**{"log.segment.bytes": "2097152", "log.roll.hours": "2"})
    world.run("register 1 life=a")
    world.run("heartbeat 1")
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                "t",
                2,
                1,
                [],
                [
                    CreatableTopicConfig("cleanup.policy", "compact, delete"),
                    CreatableTopicConfig("flush.ms", "5"),
                ],
            )
        ]
    )
    reply = world.decide(request)
    assert isinstance(reply, CreateTopicsResponse)
    told = {config.name: (config.value, config.config_source) for config in reply.topics[0].configs or []}
    assert told["cleanup.policy"] == ("compact,delete", Source.TOPIC)
    assert told["segment.bytes"] == ("2097152", Source.STATIC_BROKER)
    assert told["segment.ms"] == ("7200000", Source.STATIC_BROKER)
    assert told["retention.ms"] == ("604800000", Source.DEFAULT)
    assert list(told) == sorted(told)
    assert (reply.topics[0].num_partitions, reply.topics[0].replication_factor) == (2, 1)


def _ready(**given: str) -> World:
    world = World(**given)
    world.run("register 1 life=a")
    world.run("heartbeat 1")
    return world


def test_the_cluster_has_room_for_so_many_partitions_and_no_more() -> None:
    world = _ready(**{"sparklog.partitions.max": "5"})
    assert world.run("create a partitions=4")[-1] == "-> a NONE"
    assert world.run("create b c partitions=1")[-2:] == [
        "-> b NONE",
        "-> c POLICY_VIOLATION: The cluster may have 5 partitions (sparklog.partitions.max) and has room for "
        "0.",
    ]
    assert "POLICY_VIOLATION" in world.run("grow a count=5")[-1]
    world.run("delete b")
    assert world.run("grow a count=5")[-1] == "-> a NONE"


@pytest.mark.parametrize("numbers", [(10_001, 1), (1, 10_001), (3, 2_000_000_000)])
def test_a_request_for_far_too_much_is_refused_before_anything_is_placed(numbers: tuple[int, int]) -> None:
    world = _ready()
    topics, partitions = numbers
    request = CreateTopicsRequest(
        topics=[CreatableTopic(f"t{number}", partitions, 1) for number in range(topics)]
    )
    reply = world.decide(request)
    assert isinstance(reply, CreateTopicsResponse)
    assert {result.error_code for result in reply.topics} == {ErrorCode.POLICY_VIOLATION}
    assert world.controller.pending.partition_count == 0


def test_a_request_whose_records_are_too_many_creates_nothing() -> None:
    world = _ready()
    request = CreateTopicsRequest(topics=[CreatableTopic(f"t{number}", 1, 1) for number in range(6_000)])
    reply = world.decide(request)
    assert isinstance(reply, CreateTopicsResponse)
    assert {result.error_code for result in reply.topics} == {ErrorCode.POLICY_VIOLATION}
    assert world.controller.pending.topics_by_name == {}
