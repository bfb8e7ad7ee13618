"""Produce, Fetch, ListOffsets and InitProducerId through the whole broker."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.world import (
    ACKS_ALL,
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    World,
    fetch,
    fetched,
    latest,
    listed,
    produce,
    produced,
)


def test_what_was_produced_is_fetched_from_any_offset_of_its_batch(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t", partitions=2)
    batch = world.batch(b"a", b"b", b"c")
    assert produced(
        world.ask(client, produce("t", batch, acks=ACKS_ALL, partition=1), PRODUCE_BY_NAME, ProduceResponse)
    ) == (0, 0)
    assert produced(
        world.ask(client, produce("t", batch, acks=ACKS_ALL, partition=1), PRODUCE_BY_NAME, ProduceResponse)
    ) == (0, 3)
    for offset in range(6):
        code, values = fetched(
            world.ask(client, fetch("t", offset, partition=1), FETCH_BY_NAME, FetchResponse)
        )
        assert (code, values) == (0, [b"a", b"b", b"c"] * (2 if offset < 3 else 1))


@pytest.mark.parametrize(
    ("offset", "code"),
    [(3, ErrorCode.NONE), (4, ErrorCode.OFFSET_OUT_OF_RANGE), (-1, ErrorCode.OFFSET_OUT_OF_RANGE)],
)
def test_a_fetch_beyond_the_log_end_is_out_of_range_and_at_the_end_it_waits(
    world: World, offset: int, code: ErrorCode
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    world.ask(client, produce("t", world.batch(b"a", b"b", b"c")), PRODUCE_BY_NAME, ProduceResponse)
    assert fetched(world.ask(client, fetch("t", offset), FETCH_BY_NAME, FetchResponse)) == (code, [])


def test_a_refused_partition_has_empty_records_not_null(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    by_id = fetch("t", 0)
    by_id.topics[0].topic_id = b"\x01" * 16
    for request, version, code in (
        (fetch("none", 0), FETCH_BY_NAME, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch("t", 0, partition=9), FETCH_BY_NAME, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (by_id, 13, ErrorCode.UNKNOWN_TOPIC_ID),
        (fetch("t", 4), FETCH_BY_NAME, ErrorCode.OFFSET_OUT_OF_RANGE),
    ):
        answer = world.ask(client, request, version, FetchResponse)
        assert isinstance(answer, FetchResponse)
        part = answer.responses[0].partitions[0]
        assert part.records is not None
        assert (part.error_code, len(part.records)) == (code, 0)


def test_the_first_batch_comes_whole_even_when_it_is_larger_than_asked_for(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    for _ in range(2):
        world.ask(client, produce("t", world.batch(b"x" * 1000)), PRODUCE_BY_NAME, ProduceResponse)
    assert fetched(world.ask(client, fetch("t", 0, max_bytes=10), FETCH_BY_NAME, FetchResponse)) == (
        0,
        [b"x" * 1000],
    )


def test_nothing_is_shown_before_it_is_durable(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    client.send(produce("t", world.batch(b"a"), acks=1), PRODUCE_BY_NAME, ProduceResponse)
    client.send(fetch("t", 0, max_wait_ms=0), FETCH_BY_NAME, FetchResponse)
    assert produced(client.replies[0]) == (0, 0)
    assert fetched(client.replies[1]) == (0, [])
    world.settle()
    assert fetched(world.ask(client, fetch("t", 0), FETCH_BY_NAME, FetchResponse)) == (0, [b"a"])


def test_acks_1_then_read_latest_does_not_miss_the_record(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    for expected in range(1, 20):
        client.replies.clear()
        client.send(produce("t", world.batch(b"a"), acks=1), PRODUCE_BY_NAME, ProduceResponse)
        client.send(latest("t"), 6, ListOffsetsResponse)
        world.settle(ms=20)
        assert listed(client.replies[1]) == (0, expected)


@pytest.mark.parametrize(
    ("timestamp", "version", "expected"),
    [
        (-2, 6, (0, 0)),
        (-4, 8, (0, 0)),
        (-5, 9, (0, -1)),
        (-5, 8, (ErrorCode.UNSUPPORTED_VERSION, -1)),
        (-9, 11, (ErrorCode.UNSUPPORTED_VERSION, -1)),
    ],
)
def test_the_special_timestamps_answer_at_the_versions_that_know_them(
    world: World, timestamp: int, version: int, expected: tuple[int, int]
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    world.ask(client, produce("t", world.batch(b"a")), PRODUCE_BY_NAME, ProduceResponse)
    assert (
        listed(world.ask(client, latest("t", timestamp=timestamp), version, ListOffsetsResponse)) == expected
    )


def test_an_offset_is_found_by_timestamp_and_the_greatest_timestamp_by_minus_3(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    stamps = []
    for _ in range(3):
        stamps.append(world.clock.now.wall_ms)
        world.ask(client, produce("t", world.batch(b"a")), PRODUCE_BY_NAME, ProduceResponse)
    assert listed(world.ask(client, latest("t", timestamp=stamps[1]), 7, ListOffsetsResponse)) == (0, 1)
    assert listed(world.ask(client, latest("t", timestamp=stamps[2] + 1), 7, ListOffsetsResponse)) == (0, -1)
    assert listed(world.ask(client, latest("t", timestamp=-3), 7, ListOffsetsResponse)) == (0, 2)


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (lambda world: produce("missing", world.batch(b"a")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda world: produce("t", world.batch(b"a"), partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda world: produce("t", world.batch(b"a"), acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
        (lambda _: produce("t", b""), ErrorCode.INVALID_RECORD),
        (lambda world: produce("t", world.batch(b"a")[:-1] + b"!"), ErrorCode.CORRUPT_MESSAGE),
        (lambda world: produce("t", world.batch(b"a") * 2), ErrorCode.INVALID_RECORD),
        (lambda world: produce("t", world.batch(b"x" * 2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["topic", "partition", "acks", "no records", "crc", "two batches", "too large"],
)
def test_a_refused_produce_says_why_and_appends_nothing(
    world: World, request_of: object, code: ErrorCode
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    assert produced(world.ask(client, request_of(world), PRODUCE_BY_NAME, ProduceResponse)) == (code, -1)
    assert listed(world.ask(client, latest("t"), 6, ListOffsetsResponse)) == (0, 0)


def test_idempotent_producers_get_ids_of_their_own_and_a_repeated_batch_is_stored_once(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    ids = set()
    for _ in range(1100):
        answer = world.ask(client, InitProducerIdRequest(transactional_id=None), 4, InitProducerIdResponse)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        ids.add(answer.producer_id)
    assert len(ids) == 1100
    producer = max(ids)
    first = world.batch(b"a", producer_id=producer, producer_epoch=0, base_sequence=0)
    gap = world.batch(b"c", producer_id=producer, producer_epoch=0, base_sequence=2)
    assert produced(world.ask(client, produce("t", first), PRODUCE_BY_NAME, ProduceResponse)) == (0, 0)
    assert produced(world.ask(client, produce("t", first), PRODUCE_BY_NAME, ProduceResponse)) == (0, 0)
    assert produced(world.ask(client, produce("t", gap), PRODUCE_BY_NAME, ProduceResponse)) == (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        -1,
    )
    assert listed(world.ask(client, latest("t"), 6, ListOffsetsResponse)) == (0, 1)


def test_a_full_disk_is_told_to_the_producer_and_what_was_acknowledged_is_still_there_after_a_restart(
    world: World,
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    assert produced(
        world.ask(client, produce("t", world.batch(b"kept"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    ) == (0, 0)
    world.disk.capacity_bytes = world.disk.used_bytes
    code, _ = produced(
        world.ask(
            client, produce("t", world.batch(b"refused"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
        )
    )
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    world.node.kill()
    world.disk.capacity_bytes = None
    world.node.start()
    world.settle()
    assert fetched(world.ask(world.node.connect(), fetch("t", 0), FETCH_BY_NAME, FetchResponse)) == (
        0,
        [b"kept"],
    )


def test_a_partition_whose_offset_is_asked_for_twice_is_refused_and_the_others_are_not(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t", partitions=2)
    parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=parts)])
    answer = world.ask(client, request, 7, ListOffsetsResponse)
    assert [part.error_code for part in answer.topics[0].partitions] == [
        ErrorCode.INVALID_REQUEST,
        0,
        ErrorCode.INVALID_REQUEST,
    ]


def test_many_partitions_are_written_without_acknowledgement_though_the_client_goes_away(
    world: World,
) -> None:
    client = world.node.connect()
    world.create(client, "t", partitions=300)
    batch = world.batch(b"a")
    parts = [PartitionProduceData(index=index, records=batch) for index in range(300)]
    request = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    client.send(request, PRODUCE_BY_NAME, None)
    world.node.disconnect(client)
    world.settle()
    reader = world.node.connect()
    asked = [latest("t", partition=index) for index in range(300)]
    ends = [listed(world.ask(reader, one, 5, ListOffsetsResponse)) for one in asked]
    assert ends == [(ErrorCode.NONE, 1)] * 300
