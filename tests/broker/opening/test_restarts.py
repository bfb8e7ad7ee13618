"""The cost of a restart of the only broker: a few records, however many partitions, and a leader epoch only
where records may be gone.
"""

import pytest

from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.world import (
    ACKS_ALL,
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    World,
    fetch,
    fetched,
    latest,
    produce,
    produced,
)

METADATA_LOG = "/data/__cluster_metadata-0/00000000000000000000.log"


def epoch_of(world: World) -> int:
    answer = world.ask(world.node.connect(), latest("t"), 7, ListOffsetsResponse)
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions[0].leader_epoch


def restarted(world: World, *, cleanly: bool) -> None:
    if cleanly:
        world.node.stop()
    else:
        world.node.kill()
    world.node.start()
    world.settle()


def begun(flush: str) -> World:
    world = World(2, **{"sparklog.ack.flush": flush})
    world.node.start()
    world.settle()
    client = world.node.connect()
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=200, replication_factor=1)], timeout_ms=1000
    )
    world.ask(client, request, 7, CreateTopicsResponse)
    assert produced(
        world.ask(client, produce("t", world.batch(b"a"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    ) == (0, 0)
    return world


@pytest.mark.parametrize("flush", ["auto", "always", "never"])
@pytest.mark.parametrize("cleanly", [True, False])
def test_a_restart_writes_no_record_per_partition_unless_shown_records_may_be_gone(
    flush: str, cleanly: bool
) -> None:
    world = begun(flush)
    first, size = epoch_of(world), len(world.disk.read(METADATA_LOG) or b"")
    for _ in range(2):
        restarted(world, cleanly=cleanly)
        client = world.node.connect()
        assert (
            produced(
                world.ask(
                    client, produce("t", world.batch(b"b"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
                )
            )[0]
            == 0
        )
    values = fetched(world.ask(world.node.connect(), fetch("t", 0), FETCH_BY_NAME, FetchResponse))[1]
    written = len(world.disk.read(METADATA_LOG) or b"") - size
    if flush == "never" and not cleanly:
        assert epoch_of(world) == first + 2
        assert b"a" not in values, "the power was cut, and nothing had asked for a sync"
        assert written > 2 * 200 * 10
    else:
        assert epoch_of(world) == first
        assert values == [b"a", b"b", b"b"]
        assert written < 2 * 1000
