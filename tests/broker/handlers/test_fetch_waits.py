"""How long a fetch may wait: not at all once its own limits, and not the end of what is committed, end
what it is given.
"""

from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, fetched, produce


def test_a_fetch_whose_limits_leave_committed_records_behind_is_answered_at_once(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    for _ in range(20):
        world.ask(
            client, produce("t", world.batch(b"x" * 1000), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
        )
    client.replies.clear()
    # Whole batches never fill 10 000 bytes exactly, so `min_bytes` is out of reach.
    client.send(
        fetch("t", 0, min_bytes=10_000, max_bytes=10_000, max_wait_ms=60_000), FETCH_BY_NAME, FetchResponse
    )
    client.send(
        fetch("t", 0, min_bytes=1 << 30, max_bytes=10_000, max_wait_ms=60_000), FETCH_BY_NAME, FetchResponse
    )
    assert [code for code, _ in map(fetched, client.replies)] == [0, 0]


def test_a_fetch_at_the_end_of_a_segment_is_answered_at_once() -> None:
    world = World(1, **{"log.segment.bytes": "1048576"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    value = b"x" * 600_000
    for _ in range(2):
        world.ask(client, produce("t", world.batch(value), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    client.replies.clear()
    client.send(
        fetch("t", 0, min_bytes=900_000, max_bytes=1 << 24, max_wait_ms=60_000), FETCH_BY_NAME, FetchResponse
    )
    assert [fetched(reply) for reply in client.replies] == [(0, [value])]
    client.send(
        fetch("t", 1, min_bytes=900_000, max_bytes=1 << 24, max_wait_ms=60_000), FETCH_BY_NAME, FetchResponse
    )
    assert len(client.replies) == 1
