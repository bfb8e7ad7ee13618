"""Replies leave in order, also if one waits; and nonsense costs one connection."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.broker.reply_sender import ANSWER_BYTES_MIN, SESSION_TURN_BYTES
from tests.broker.world import (
    ACKS_ALL,
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    World,
    fetch,
    fetched,
    produce,
    produced,
)

COUNT = 50
"""Requests that are answered with more than a session gets in one turn, and no more than may be
unanswered.
"""
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def test_a_produce_that_waits_for_its_sync_holds_back_the_answers_behind_it(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    client.send(produce("t", world.batch(b"a"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    client.send(produce("t", world.batch(b"b"), acks=1), PRODUCE_BY_NAME, ProduceResponse)
    client.send(VERSIONS, 3, ApiVersionsResponse)
    assert client.replies == []
    world.settle()
    assert [type(reply) for reply in client.replies] == [
        ProduceResponse,
        ProduceResponse,
        ApiVersionsResponse,
    ]
    assert [produced(reply) for reply in client.replies[:2]] == [(0, 0), (0, 1)]


def test_a_parked_fetch_holds_up_its_own_session_only_and_wakes_when_a_record_is_committed(
    world: World,
) -> None:
    reader, writer = world.node.connect(), world.node.connect()
    world.create(writer, "t")
    reader.send(fetch("t", 0, max_wait_ms=10_000), FETCH_BY_NAME, FetchResponse)
    reader.send(VERSIONS, 3, ApiVersionsResponse)
    world.settle(ms=100)
    assert reader.replies == []
    assert produced(
        world.ask(writer, produce("t", world.batch(b"new")), PRODUCE_BY_NAME, ProduceResponse)
    ) == (0, 0)
    assert fetched(reader.replies[0]) == (0, [b"new"])
    assert isinstance(reader.replies[1], ApiVersionsResponse)


def test_a_fetch_with_nothing_to_read_is_answered_empty_when_its_wait_is_over(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    client.send(fetch("t", 0, max_wait_ms=300), FETCH_BY_NAME, FetchResponse)
    world.settle(ms=299)
    assert client.replies == []
    world.settle(ms=2)
    assert fetched(client.replies[0]) == (0, [])


def test_a_fetch_waits_for_its_min_bytes(world: World) -> None:
    reader, writer = world.node.connect(), world.node.connect()
    world.create(writer, "t")
    batch = world.batch(b"x" * 100)
    reader.send(fetch("t", 0, min_bytes=2 * len(batch), max_wait_ms=60_000), FETCH_BY_NAME, FetchResponse)
    world.ask(writer, produce("t", batch), PRODUCE_BY_NAME, ProduceResponse)
    assert reader.replies == []
    world.ask(writer, produce("t", batch), PRODUCE_BY_NAME, ProduceResponse)
    assert fetched(reader.replies[0]) == (0, [b"x" * 100] * 2)


def test_requests_behind_a_parked_one_run_even_when_they_came_in_one_piece(world: World) -> None:
    reader, writer = world.node.connect(), world.node.connect()
    world.create(writer, "t")
    for _ in range(5):
        reader.send(fetch("t", 0, max_wait_ms=10), FETCH_BY_NAME, FetchResponse)
    world.settle()
    assert len(reader.replies) == 5


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x02\x00\x12",
        b"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff",
    ],
    ids=["http", "tls", "negative length", "huge length", "no whole header", "unknown api"],
)
def test_nonsense_closes_its_connection_with_one_line_and_disturbs_nobody_else(
    world: World, nonsense: bytes
) -> None:
    good, bad = world.node.connect(), world.node.connect()
    lines = len(world.node.trace)
    bad.send_bytes(nonsense)
    world.settle()
    assert bad.is_closed
    assert len(world.node.trace) == lines + 1
    assert isinstance(world.ask(good, VERSIONS, 3, ApiVersionsResponse), ApiVersionsResponse)


def test_an_api_versions_of_an_unknown_version_is_answered_in_version_0(world: World) -> None:
    client = world.node.connect()
    client._expected.append((7, ApiVersionsResponse, 0))
    client.send_bytes(b"\x00\x00\x00\x0b\x00\x12\x00\x63\x00\x00\x00\x07\xff\xff\x00")
    world.settle()
    (answer,) = client.replies
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [row.api_key for row in answer.api_keys] == [18]


def test_produce_is_advertised_from_0_and_refused_below_3(world: World) -> None:
    client = world.node.connect()
    answer = world.ask(client, VERSIONS, 3, ApiVersionsResponse)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert ranges[0] == (0, 13)
    client.send_bytes(b"\x00\x00\x00\x0a\x00\x00\x00\x02\x00\x00\x00\x01\xff\xff")
    world.settle()
    assert client.is_closed


def test_a_failed_produce_without_acknowledgement_closes_the_connection_since_nobody_would_hear_of_it(
    world: World,
) -> None:
    client = world.node.connect()
    client.send(produce("nowhere", world.batch(b"a"), acks=0), PRODUCE_BY_NAME, None)
    world.settle()
    assert client.is_closed


def test_a_producer_pauses_while_the_disk_is_too_far_behind_and_loses_nothing() -> None:
    world = World(seed=3, **{"sparklog.log.dir.unsynced.max.bytes": "1048576"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    for _ in range(40):
        client.send(produce("t", world.batch(b"x" * 100_000)), PRODUCE_BY_NAME, ProduceResponse)
    assert 10 <= len(client.replies) < 20
    world.settle()
    assert [produced(reply) for reply in client.replies] == [(0, offset) for offset in range(40)]


def test_the_settings_that_bound_a_session_let_its_requests_run_in_the_end() -> None:
    world = World(seed=5, **{"sparklog.session.in.flight.max": "4"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    for _ in range(50):
        client.send(produce("t", world.batch(b"a"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    world.settle()
    assert [produced(reply) for reply in client.replies] == [(0, offset) for offset in range(50)]


@pytest.mark.parametrize("is_behind_a_parked_request", [False, True])
def test_a_session_that_is_answered_much_in_a_turn_goes_on_in_the_next(
    world: World, is_behind_a_parked_request: bool
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    if is_behind_a_parked_request:
        client.send(produce("t", world.batch(b"a"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    broker = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    client.send_together(
        [DescribeConfigsRequest([broker], include_documentation=True)] * COUNT, 4, DescribeConfigsResponse
    )
    assert world.node.running.request_bytes > 0
    world.settle()
    assert len(client.replies) == COUNT + is_behind_a_parked_request
    assert world.node.running.request_bytes == 0


def test_a_session_with_many_small_requests_goes_on_in_the_next_turn(world: World) -> None:
    client = world.node.connect()
    client.replies.clear()
    client.send_together([ApiVersionsRequest()] * 200, 0, ApiVersionsResponse)
    assert 0 < len(client.replies) <= SESSION_TURN_BYTES // ANSWER_BYTES_MIN + 1
    world.settle()
    assert len(client.replies) == 200


def test_bytes_behind_a_request_are_passed_over_as_kafka_does(world: World) -> None:
    client = world.node.connect()
    client._expected.append((7, ApiVersionsResponse, 0))
    client.send_bytes(b"\x00\x00\x00\x0d\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff\x00\x01\x02")
    assert [reply.error_code for reply in client.replies] == [0]


def test_nothing_is_appended_once_a_stop_has_begun(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    client.send(produce("t", world.batch(b"before"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    broker = world.node.running
    world.node.begin_stop()
    for _ in range(40):
        client.send(produce("t", world.batch(b"after"), acks=1), PRODUCE_BY_NAME, ProduceResponse)
        world.clock.run(until_us=world.clock.now.mono_us + 500)
    assert broker.is_stopped
    assert [produced(reply) for reply in client.replies] == [(0, 0)]
