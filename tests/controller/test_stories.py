"""The controller's decisions, told as stories."""

from pathlib import Path

import pytest

from sparklog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse
from sparklog_server.config.describe import Source
from tests.controller.world import World
from tests.story import check_story

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_controller_decides_as_the_story_tells(story: Path) -> None:
    check_story(story, World().run)


def test_a_new_topic_is_told_its_settings_and_where_they_come_from() -> None:
    world = World(**{"log.segment.bytes": "2097152"})
    world.run("register 1 life=a")
    world.run("heartbeat 1")
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                "t", 2, 1, [], [CreatableTopicConfig("cleanup.policy", "compact, delete"), CreatableTopicConfig("flush.ms", "5")]
            )
        ]
    )
    reply = world.decide(request)
    assert isinstance(reply, CreateTopicsResponse)
    told = {config.name: (config.value, config.config_source) for config in reply.topics[0].configs or []}
    assert told["cleanup.policy"] == ("compact,delete", Source.TOPIC)
    assert told["segment.bytes"] == ("2097152", Source.STATIC_BROKER)
    assert told["retention.ms"] == ("604800000", Source.DEFAULT)
    assert list(told) == sorted(told)
    assert (reply.topics[0].num_partitions, reply.topics[0].replication_factor) == (2, 1)
