"""A Produce that takes long to check is checked beside the loop: nothing overtakes it, and nothing of it
is lost or torn.
"""

import gc
import tracemalloc
import zlib
from random import Random

import pytest

from sparklog.errors import DecodeError, ErrorCode
from sparklog.record.batch import build_batch, decode_records
from sparklog.record.compression import Codec
from sparklog.wire.header import encode_request
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog_server.log.producers.validate import RecordsRefused
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
from tests.kernels.hostile import reseal

VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
LARGE = bytes(600_000)


def compressed(world: World, *values: bytes, codec: Codec = Codec.ZSTD, later_ms: int = 0) -> bytes:
    """A batch that is small on the wire, however large its values are."""
    return bytes(
        build_batch([(b"k", value, (), world.clock.now.wall_ms + later_ms) for value in values], codec=codec)
    )


def create_with(world: World, name: str, **config: str) -> None:
    """A topic with settings, `_` for `.` in their names."""
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)]
    answer = world.ask(
        world.node.connect(), CreateTopicsRequest(topics=topics, timeout_ms=1000), 7, CreateTopicsResponse
    )
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0


@pytest.mark.parametrize("acks", [1, ACKS_ALL])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_large_compressed_batch_is_answered_after_its_job_and_can_be_fetched(
    world: World, codec: Codec, acks: int
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    client.send(
        produce("t", compressed(world, LARGE, b"x", codec=codec), acks=acks), PRODUCE_BY_NAME, ProduceResponse
    )
    assert client.replies == []
    world.settle()
    assert produced(client.replies[0]) == (0, 0)
    assert fetched(world.ask(client, fetch("t", 0), FETCH_BY_NAME, FetchResponse)) == (0, [LARGE, b"x"])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_a_large_request_is_not_copied_for_its_job_and_its_batches_stay_as_they_came(
    world: World, codec: Codec
) -> None:
    client, other = world.node.connect(), world.node.connect()
    world.create(client, "t", 4)
    noise = Random(1)
    values = [noise.randbytes(900_000) for _ in range(4)]
    data = [
        PartitionProduceData(index=index, records=compressed(world, value, codec=codec))
        for index, value in enumerate(values)
    ]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    frame = b"".join(bytes(chunk) for chunk in encode_request(request, PRODUCE_BY_NAME, 1, "test"))
    client.expects_anything = True
    client.send_bytes(frame[:-1])
    tracemalloc.start()
    client.send_bytes(frame[-1:])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < len(frame) // 10
    assert world.node.running.request_bytes > len(frame) * 9 // 10
    other.send(produce("t", world.batch(bytes(300_000)), partition=3), PRODUCE_BY_NAME, ProduceResponse)
    world.settle()
    assert world.node.running.request_bytes == 0
    for index, value in enumerate(values):
        answer = world.ask(
            other, fetch("t", 1 if index == 3 else 0, partition=index), FETCH_BY_NAME, FetchResponse
        )
        assert fetched(answer) == (0, [value])


def test_a_job_does_not_hold_a_large_request_of_which_it_needs_little(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    needed = PartitionProduceData(index=0, records=compressed(world, LARGE))
    refused = PartitionProduceData(index=1, records=world.batch(Random(1).randbytes(900_000)))
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[needed, *[refused] * 4])],
    )
    frame = b"".join(bytes(chunk) for chunk in encode_request(request, PRODUCE_BY_NAME, 1, "test"))
    client.expects_anything = True
    tracemalloc.start()
    client.send_bytes(frame)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < len(frame) // 10 < most


def test_a_small_compressed_batch_is_answered_at_once(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    client.send(produce("t", compressed(world, b"x" * 1000)), PRODUCE_BY_NAME, ProduceResponse)
    assert produced(client.replies[0]) == (0, 0)


def test_what_a_session_sends_behind_a_batch_under_check_is_appended_behind_it_and_answered_in_order(
    world: World,
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    large = compressed(world, LARGE)
    client.send(produce("t", large), PRODUCE_BY_NAME, ProduceResponse)
    client.send(produce("t", world.batch(b"second")), PRODUCE_BY_NAME, ProduceResponse)
    client.send(produce("t", large, acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    client.send(VERSIONS, 3, ApiVersionsResponse)
    client.send(produce("t", world.batch(b"fourth")), PRODUCE_BY_NAME, ProduceResponse)
    world.settle()
    assert [produced(reply) for reply in client.replies if isinstance(reply, ProduceResponse)] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
    ]
    assert isinstance(client.replies[3], ApiVersionsResponse)


def test_other_sessions_go_on_meanwhile_in_the_buffer_that_the_batch_came_in(world: World) -> None:
    slow, quick = world.node.connect(), world.node.connect()
    world.create(slow, "t")
    slow.replies.clear()
    noise = Random(1).randbytes(300_000)
    slow.send(produce("t", compressed(world, noise + LARGE)), PRODUCE_BY_NAME, ProduceResponse)
    for _ in range(20):
        quick.send(produce("t", world.batch(b"\xff" * 50_000)), PRODUCE_BY_NAME, ProduceResponse)
    assert [produced(reply) for reply in quick.replies] == [(0, offset) for offset in range(20)]
    assert slow.replies == []
    world.settle()
    assert produced(slow.replies[0]) == (0, 20)
    assert fetched(world.ask(slow, fetch("t", 20), FETCH_BY_NAME, FetchResponse)) == (0, [noise + LARGE])


def test_batches_without_acknowledgement_keep_their_order_too_and_count_when_their_session_is_gone(
    world: World,
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.send(produce("t", compressed(world, LARGE, b"1"), acks=0), PRODUCE_BY_NAME, None)
    client.send(produce("t", world.batch(b"2"), acks=0), PRODUCE_BY_NAME, None)
    world.settle()
    client.send(produce("t", compressed(world, LARGE, b"3"), acks=0), PRODUCE_BY_NAME, None)
    world.node.disconnect(client)
    world.settle()
    reader = world.node.connect()
    code, values = fetched(world.ask(reader, fetch("t", 0, max_bytes=10 << 20), FETCH_BY_NAME, FetchResponse))
    assert (code, values) == (0, [LARGE, b"1", b"2", LARGE, b"3"])


def test_a_batch_without_acknowledgement_that_is_refused_by_its_job_closes_the_session(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.send(produce("t", compressed(world, LARGE, later_ms=10_000_000), acks=0), PRODUCE_BY_NAME, None)
    world.settle()
    assert client.is_closed


def test_of_several_partitions_each_is_answered_by_itself(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t", partitions=4)
    batches = [
        world.batch(b"plain"),
        compressed(world, LARGE),
        compressed(world, LARGE, later_ms=10_000_000),
        compressed(world, b"small"),
    ]
    data = [
        PartitionProduceData(index=index, records=batch)
        for index, batch in enumerate([*batches, world.batch(b"nowhere")])
    ]
    request = ProduceRequest(
        acks=ACKS_ALL, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    answer = world.ask(client, request, PRODUCE_BY_NAME, ProduceResponse)
    assert isinstance(answer, ProduceResponse)
    parts = answer.responses[0].partition_responses
    refused, unknown = ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(part.index, part.error_code) for part in parts] == [
        (0, 0),
        (1, 0),
        (2, refused),
        (3, 0),
        (4, unknown),
    ]
    assert [record.batch_index for record in parts[2].record_errors] == [0]
    ends = [
        listed(world.ask(client, latest("t", partition=index), 6, ListOffsetsResponse)) for index in range(4)
    ]
    assert ends == [(0, 1), (0, 1), (0, 0), (0, 1)]


def test_many_small_batches_that_are_large_together_are_a_job(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t", partitions=10)
    client.replies.clear()
    data = [
        PartitionProduceData(index=index, records=compressed(world, bytes(100_000))) for index in range(10)
    ]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    client.send(request, PRODUCE_BY_NAME, ProduceResponse)
    assert client.replies == []
    world.settle()
    assert [part.error_code for part in client.replies[0].responses[0].partition_responses] == [0] * 10


def test_a_bomb_is_refused_with_the_limit_named_and_appends_nothing() -> None:
    world = World(1, **{"sparklog.decompress.ratio.max": "100"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    answer = world.ask(
        client, produce("t", compressed(world, bytes(8 << 20))), PRODUCE_BY_NAME, ProduceResponse
    )
    assert produced(answer) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert "sparklog.decompress.ratio.max = 100" in answer.responses[0].partition_responses[0].error_message
    assert listed(world.ask(client, latest("t"), 6, ListOffsetsResponse)) == (0, 0)


def test_a_topic_with_a_codec_of_its_own_has_large_batches_compressed_by_a_job(world: World) -> None:
    create_with(world, "t", compression_type="gzip", message_timestamp_type="LogAppendTime")
    client = world.node.connect()
    text = b"some text " * 4000
    client.send(produce("t", world.batch(text, b"2")), PRODUCE_BY_NAME, ProduceResponse)
    assert client.replies == []
    world.settle()
    assert produced(client.replies[0]) == (0, 0)
    answer = world.ask(client, fetch("t", 0), FETCH_BY_NAME, FetchResponse)
    records = answer.responses[0].partitions[0].records
    assert len(records) < 2000
    assert [record.value for record in decode_records(records)] == [text, b"2"]
    assert {record.timestamp for record in decode_records(records)} == {
        client.replies[0].responses[0].partition_responses[0].log_append_time_ms
    }


def test_a_batch_whose_topic_is_deleted_while_it_is_checked_is_told_so() -> None:
    codes = set()
    for seed in range(30):
        world = World(seed)
        world.node.start()
        world.settle()
        client, other = world.node.connect(), world.node.connect()
        world.create(client, "t")
        client.send(produce("t", compressed(world, LARGE)), PRODUCE_BY_NAME, ProduceResponse)
        other.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5, DeleteTopicsResponse)
        world.settle()
        codes.add(produced(client.replies[-1])[0])
        assert world.node.halted is None
    assert codes == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_batch_under_check_when_the_stop_begins_is_not_appended_and_the_stop_comes_to_its_end(
    world: World,
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    client.send(produce("t", compressed(world, LARGE)), PRODUCE_BY_NAME, ProduceResponse)
    world.node.stop()
    assert client.replies == []
    world.node.start()
    world.settle()
    assert listed(world.ask(world.node.connect(), latest("t"), 6, ListOffsetsResponse)) == (0, 0)


def test_a_batch_whose_check_runs_out_of_memory_is_refused_and_can_be_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*arguments: object) -> None:
        raise MemoryError

    client = world.node.connect()
    world.create(client, "t")
    request = produce("t", compressed(world, LARGE, codec=Codec.GZIP))
    monkeypatch.setattr(zlib, "decompressobj", no_memory)
    assert produced(world.ask(client, request, PRODUCE_BY_NAME, ProduceResponse)) == (
        ErrorCode.REQUEST_TIMED_OUT,
        -1,
    )
    monkeypatch.undo()
    assert produced(world.ask(client, request, PRODUCE_BY_NAME, ProduceResponse)) == (0, 0)


@pytest.mark.parametrize("size", [1000, 600_000], ids=["at once", "in a job"])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_refused_batch_leaves_no_exception_behind_that_holds_its_bytes(
    world: World, codec: Codec, size: int
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    batch = bytearray(compressed(world, bytes(size), codec=codec))
    batch[23:27], batch[57:61] = (
        (1).to_bytes(4, "big"),
        (2).to_bytes(4, "big"),
    )  # one record more than there is
    reseal(batch, 0)
    known = {id(one) for one in gc.get_objects() if isinstance(one, Exception)}
    gc.disable()
    try:
        answer = world.ask(client, produce("t", bytes(batch)), PRODUCE_BY_NAME, ProduceResponse)
        assert produced(answer) == (ErrorCode.INVALID_RECORD, -1)
        left = [
            one
            for one in gc.get_objects()
            if isinstance(one, (RecordsRefused, DecodeError, ValueError)) and id(one) not in known
        ]
        assert left == []
    finally:
        gc.enable()


def test_of_batches_compressed_anew_those_that_do_not_fit_the_memory_of_one_request_are_refused() -> None:
    world = World(1, **{"sparklog.decompress.memory.max": str(32 << 20)})
    world.node.start()
    world.settle()
    client = world.node.connect()
    configs = [CreatableTopicConfig(name="compression.type", value="uncompressed")]
    topics = [CreatableTopic(name="t", num_partitions=20, replication_factor=1, configs=configs)]
    world.ask(client, CreateTopicsRequest(topics=topics, timeout_ms=1000), 7, CreateTopicsResponse)
    data = [
        PartitionProduceData(index=index, records=compressed(world, bytes(900_000))) for index in range(20)
    ]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    answer = world.ask(client, request, PRODUCE_BY_NAME, ProduceResponse)
    assert isinstance(answer, ProduceResponse)
    codes = [part.error_code for part in answer.responses[0].partition_responses]
    accepted = codes.index(ErrorCode.MESSAGE_TOO_LARGE)
    assert 10 <= accepted <= 16
    assert codes == [0] * accepted + [ErrorCode.MESSAGE_TOO_LARGE] * (20 - accepted)
