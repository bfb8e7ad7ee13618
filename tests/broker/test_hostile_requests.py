"""Well-formed requests with absurd contents, and bent ones: the broker answers or closes that connection,
and lives on.
"""

import sys
from random import Random

import pytest

from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.header import encode_request
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from sparklog.wire.messages.produce import ProduceRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.dispatch import HANDLERS, SERVED
from tests.broker.world import World
from tests.wire.arbitrary import arbitrary
from tests.wire.hostile import mutations

_DESCRIBE_CLUSTER = 60
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


class Topics:
    """Makes some of a request's topic names and ids those of a real topic, so that the request gets
    further.
    """

    def __init__(self, world: World, random: Random) -> None:
        (self._topic,) = world.node.running._context.image.topics_by_name.values()
        self._random = random

    def placed_in(self, value: object) -> object:
        """`value` with real names put in, all the way down."""
        if isinstance(value, list):
            return [self.placed_in(item) for item in value]
        if not isinstance(value, Message):
            return value
        for field in value.__struct_fields__:
            child = getattr(value, field)
            if self._random.random() < 0.6 and field in ("name", "topic") and isinstance(child, str):
                setattr(value, field, self._topic.name)
            elif self._random.random() < 0.6 and field == "topic_id":
                setattr(value, field, self._topic.topic_id)
            elif self._random.random() < 0.6 and field in ("partition", "partition_index", "index"):
                setattr(value, field, self._random.randint(0, 1))
            else:
                setattr(value, field, self.placed_in(child))
        return value


@pytest.mark.parametrize("api_key", SERVED)
def test_no_request_however_absurd_takes_the_broker_down(world: World, api_key: int) -> None:
    random = Random(api_key)
    world.create(world.node.connect(), "t")
    topics = Topics(world, random)
    api = API_BY_KEY[api_key]
    for version in range(api.since, api.until + 1):
        for _ in range(15):
            request = topics.placed_in(arbitrary(api.request(), version, random))
            assert isinstance(request, Message)
            bound_growth(request)
            has_answer = not (isinstance(request, ProduceRequest) and request.acks == 0)
            try:
                encode_request(request, version, 1, "x")
            except ValueError:
                continue  # such a request cannot be written at this version
            client = world.node.connect()
            client.send(request, version, api.reply() if has_answer else None)
            world.settle(ms=50)
            world.node.disconnect(client)
    probe = world.ask(world.node.connect(), VERSIONS, 3, ApiVersionsResponse)
    assert isinstance(probe, ApiVersionsResponse)


def bound_growth(request: Message) -> None:
    """Keep granted requests small: the topics asked for may be many, their partitions need not be."""
    for topic in getattr(request, "topics", None) or []:
        for field in ("num_partitions", "count"):
            if getattr(topic, field, 0) > 20:
                setattr(topic, field, 20)


@pytest.mark.parametrize("api_key", SERVED)
def test_no_bent_request_takes_the_broker_down(world: World, api_key: int) -> None:
    random = Random(1000 + api_key)
    api = API_BY_KEY[api_key]
    for version in range(api.since, api.until + 1):
        whole = b"".join(bytes(chunk) for chunk in encode_request(api.request()(), version, 1, "x"))
        for bent in mutations(whole[4:], random, count=20):
            client = world.node.connect()
            client.expects_anything = True
            client.send_bytes(len(bent).to_bytes(4, "big") + bent)
            if not client.is_closed:
                world.node.disconnect(client)
    world.settle()
    assert isinstance(world.ask(world.node.connect(), VERSIONS, 3, ApiVersionsResponse), ApiVersionsResponse)


def test_handlers_that_cannot_be_imported_cost_the_session_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sparklog_server.broker.handlers.cluster", None)
    monkeypatch.delitem(HANDLERS, _DESCRIBE_CLUSTER, raising=False)
    refused, other = world.node.connect(), world.node.connect()
    refused.send(DescribeClusterRequest(), 1, DescribeClusterResponse)
    world.settle()
    assert refused.is_closed
    assert world.create(other, "t") == 0
