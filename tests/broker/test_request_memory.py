"""The memory of requests is bounded over all sessions: only a session in the middle of a request waits for
its turn.
"""

from sparklog.record.batch import build_batch
from sparklog.wire.header import encode_request
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, latest, produce, produced

VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
VALUE_BYTES = 4_000_000


def a_world(**given: str) -> World:
    world = World(4, **{"message.max.bytes": "50000000", **given})
    world.node.start()
    world.settle()
    return world


def large_frame(world: World) -> bytes:
    """A Produce that is larger than any spare buffer, as bytes."""
    batch = bytes(build_batch([(None, bytes(VALUE_BYTES), (), world.clock.now.wall_ms)]))
    return b"".join(bytes(chunk) for chunk in encode_request(produce("t", batch), PRODUCE_BY_NAME, 1, "test"))


def held(world: World) -> int:
    return world.node.running.request_bytes


def begin(world: World, count: int, size: int = VALUE_BYTES // 2) -> list[tuple[SimulatedConnection, bytes]]:
    """Connections that have sent the first `size` bytes of a large Produce, with the rest."""
    frame = large_frame(world)
    begun = []
    for _ in range(count):
        client = world.node.connect()
        client.expects_anything = True
        client.send_bytes(frame[:size])
        begun.append((client, frame[size:]))
    return begun


def test_sessions_in_the_middle_of_a_request_wait_beyond_the_limit_and_all_are_served_in_the_end() -> None:
    world = a_world(**{"queued.max.request.bytes": "5000000"})
    client = world.node.connect()
    world.create(client, "t")
    begun = begin(world, 6)
    assert 5_000_000 < held(world) < 10_000_000
    for connection, rest in reversed(begun):
        connection.send_bytes(rest)
    world.settle()
    assert not any(connection.is_closed for connection, _ in begun)
    assert held(world) == 0
    code, end = listed_end(world)
    assert (code, end) == (0, 6)


def listed_end(world: World) -> tuple[int, int]:
    from sparklog.wire.messages.list_offsets import ListOffsetsResponse

    answer = world.ask(world.node.connect(), latest("t"), 6, ListOffsetsResponse)
    assert isinstance(answer, ListOffsetsResponse)
    part = answer.topics[0].partitions[0]
    return part.error_code, part.offset


def test_who_holds_nothing_is_served_while_others_hold_too_much() -> None:
    world = a_world(**{"queued.max.request.bytes": "5000000"})
    client = world.node.connect()
    world.create(client, "t")
    begin(world, 6)
    client.replies.clear()
    client.send(VERSIONS, 3, ApiVersionsResponse)
    client.send(produce("t", world.batch(b"x" * 1000)), PRODUCE_BY_NAME, ProduceResponse)
    assert [type(reply) for reply in client.replies] == [ApiVersionsResponse, ProduceResponse]


def test_when_the_eldest_goes_away_the_next_one_is_read_on() -> None:
    world = a_world(**{"queued.max.request.bytes": "5000000"})
    world.create(world.node.connect(), "t")
    begun = begin(world, 6)
    for connection, _ in begun[:3]:
        world.node.disconnect(connection)
    for connection, rest in begun[3:]:
        connection.send_bytes(rest)
    world.settle()
    assert (held(world), listed_end(world)) == (0, (0, 3))


def test_an_unfinished_request_that_stalls_while_others_wait_for_it_is_closed_after_10_s() -> None:
    world = a_world(**{"queued.max.request.bytes": "5000000"})
    world.create(world.node.connect(), "t")
    (stalled, _), *others = begin(world, 6)
    for connection, rest in others:
        connection.send_bytes(rest)
    world.settle(ms=9_000)
    assert not stalled.is_closed
    assert listed_end(world) == (0, 0)
    world.settle(ms=2_000)
    assert stalled.is_closed
    assert "has not grown for 10 s" in next(
        line for line in reversed(world.node.trace) if line.startswith("session-closed")
    )
    assert not any(connection.is_closed for connection, _ in others)
    assert (held(world), listed_end(world)) == (0, (0, 5))


def test_a_request_that_was_not_read_on_has_10_s_from_when_it_is() -> None:
    world = a_world(**{"queued.max.request.bytes": "5000000"})
    world.create(world.node.connect(), "t")
    begun = begin(world, 6)
    for connection, rest in begun[1:]:
        connection.send_bytes(rest[:1])
    world.settle(ms=15_000)
    assert [connection.is_closed for connection, _ in begun] == [True, *[False] * 5]
    for connection, rest in begun[1:]:
        connection.send_bytes(rest[1:])
    world.settle()
    assert (held(world), listed_end(world)) == (0, (0, 5))


def test_a_muted_session_with_the_eldest_request_makes_way_and_is_not_closed() -> None:
    world = a_world(**{"queued.max.request.bytes": "5000000"})
    world.create(world.node.connect(), "t")
    frame, waiting = large_frame(world), world.node.connect()
    waiting.expects_anything = True
    # The parked Fetch mutes the session, so the broker itself does not read the rest of the Produce.
    wait = b"".join(
        bytes(chunk)
        for chunk in encode_request(
            fetch("t", 0, min_bytes=1 << 30, max_wait_ms=60_000), FETCH_BY_NAME, 1, "test"
        )
    )
    waiting.send_bytes(wait + frame[: VALUE_BYTES // 2])
    others = begin(world, 5)
    for connection, rest in others:
        connection.send_bytes(rest)
    world.settle(ms=15_000)
    assert not waiting.is_closed
    assert listed_end(world) == (0, 5)
    waiting.send_bytes(frame[VALUE_BYTES // 2 :])
    world.settle(ms=60_000)
    assert (held(world), listed_end(world)) == (0, (0, 6))


def test_an_unfinished_request_that_grows_is_not_closed() -> None:
    world = a_world(**{"queued.max.request.bytes": "5000000"})
    world.create(world.node.connect(), "t")
    begun = begin(world, 6, size=1_000_000)
    eldest, rest = begun[0]
    for connection, more in begun[1:]:
        connection.send_bytes(more[:1_000_000])
    for sent in range(0, len(rest), 1_000_000):
        world.settle(ms=4_000)
        eldest.send_bytes(rest[sent : sent + 1_000_000])
    world.settle()
    assert not any(connection.is_closed for connection, _ in begun)
    assert listed_end(world) == (0, 1)


def test_unfinished_requests_within_the_limit_may_stall() -> None:
    world = a_world(**{"queued.max.request.bytes": "50000000"})
    begun = begin(world, 6)
    world.settle(ms=60_000)
    assert not any(connection.is_closed for connection, _ in begun)


def test_bytes_of_a_session_that_is_closing_are_dropped() -> None:
    world = a_world(**{"queued.max.request.bytes": "1000000"})
    broker, now = world.node.running, world.clock.now
    closed = next(connection for connection, _ in begin(world, 40, size=300_000) if connection.is_closed)
    before = held(world)
    rest = large_frame(world)[:200_000]
    while rest:
        room = broker.buffer(closed.session_id)
        size = min(len(room), len(rest))
        room[:size], rest = rest[:size], rest[size:]
        assert broker.receive(closed.session_id, size, now) == []
    assert held(world) == before


def test_who_adds_beyond_twice_the_limit_is_closed_and_the_memory_is_free_again() -> None:
    world = a_world(**{"queued.max.request.bytes": "1000000"})
    begun = begin(world, 40, size=300_000)
    assert any(connection.is_closed for connection, _ in begun)
    assert held(world) <= 2_000_000
    assert "queued.max.request.bytes is 1000000" in world.node.trace[-1]
    for connection, _ in begun:
        world.node.disconnect(connection)
    assert held(world) == 0


def test_the_eldest_request_comes_to_its_end_however_much_younger_ones_hold() -> None:
    world = a_world(**{"queued.max.request.bytes": "1500000"})
    world.create(world.node.connect(), "t")
    ((eldest, rest),) = begin(world, 1, size=100_000)
    younger = begin(world, 6, size=300_000)
    eldest.send_bytes(rest)
    assert not eldest.is_closed
    assert any(connection.is_closed for connection, _ in younger)
    assert held(world) <= 3_000_000
    world.settle()
    assert listed_end(world) == (0, 1)


def test_what_waits_behind_a_muted_session_is_counted_until_it_has_run() -> None:
    world = a_world()
    client = world.node.connect()
    world.create(client, "t")
    wait = b"".join(
        bytes(chunk) for chunk in encode_request(fetch("t", 0, max_wait_ms=10_000), FETCH_BY_NAME, 1, "test")
    )
    batch = world.batch(b"x" * 1000)
    behind = b"".join(
        bytes(chunk) for chunk in encode_request(produce("t", batch), PRODUCE_BY_NAME, 2, "test")
    )
    client.expects_anything = True
    client.send_bytes(wait + behind * 20)
    assert held(world) == 20 * (len(behind) - 4)
    world.settle(ms=20_000)
    assert held(world) == 0
    assert listed_end(world) == (0, 20)


def test_what_a_job_works_on_is_counted_until_it_is_done() -> None:
    from sparklog.record.compression import Codec

    world = a_world()
    client = world.node.connect()
    world.create(client, "t")
    batch = bytes(build_batch([(None, bytes(VALUE_BYTES), (), world.clock.now.wall_ms)], codec=Codec.LZ4))
    client.send(produce("t", batch), PRODUCE_BY_NAME, ProduceResponse)
    assert held(world) == len(batch)
    world.settle()
    assert held(world) == 0
    assert produced(client.replies[-1]) == (0, 0)


def test_a_fetch_that_is_woken_late_does_not_keep_the_requests_behind_it_from_running() -> None:
    world = a_world(**{"queued.max.request.bytes": "200000"})
    reader, writer = world.node.connect(), world.node.connect()
    world.create(writer, "t")
    reader.send(fetch("t", 0, max_wait_ms=1000), FETCH_BY_NAME, FetchResponse)
    reader.send(produce("t", world.batch(b"x" * 300_000)), PRODUCE_BY_NAME, ProduceResponse)
    world.settle(ms=5000)
    assert [type(reply) for reply in reader.replies] == [FetchResponse, ProduceResponse]
