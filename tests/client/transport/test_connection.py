"""One connection, without a socket: bytes out, bytes in, answers in order."""

import pytest

from sparklog.client.transport.connection import Answer, Connection, State, UnsupportedByBroker, broken
from sparklog.client.transport.frames import SMALL_BYTES, ReceiveBuffers
from sparklog.errors import ConnectionFailed, DecodeError, RequestTimeout
from sparklog.wire.header import encode_reply
from sparklog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse
from sparklog.wire.messages.produce import ProduceRequest
from tests.client.wire import joined, metadata, ms, reply_to, requests_in, versions


def connection(in_flight_max: int = 5) -> Connection:
    return Connection(client_id="tester", in_flight_max=in_flight_max, buffers=ReceiveBuffers())


def feed(machine: Connection, stream: bytes, step: int = 1 << 30) -> list[Answer]:
    answers: list[Answer] = []
    while stream:
        buffer = machine.buffer()
        size = min(len(buffer), len(stream), step)
        buffer[:size] = stream[:size]
        stream = stream[size:]
        answers += machine.received(size)
    return answers


def ready(reply: ApiVersionsResponse | None = None, in_flight_max: int = 5) -> Connection:
    machine = connection(in_flight_max)
    machine.opened(ms(1000))
    ((header, _),) = requests_in(machine.take_output())
    feed(machine, reply_to(header, reply or versions()))
    assert machine.state is State.READY
    return machine


def test_a_connection_first_asks_what_the_broker_speaks() -> None:
    machine = connection()
    assert not machine.has_room
    machine.opened(ms(1000))
    ((header, request),) = requests_in(machine.take_output())
    assert (header.api_key, header.api_version, header.client_id) == (18, 4, "tester")
    assert isinstance(request, ApiVersionsRequest)
    assert request.client_software_name == "sparklog"
    assert machine.state is State.HANDSHAKE


def test_a_broker_that_knows_only_older_api_versions_is_asked_again_in_v0() -> None:
    machine = connection()
    machine.opened(ms(1000))
    ((header, _),) = requests_in(machine.take_output())
    refusal = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 2)])
    feed(machine, joined(encode_reply(refusal, 18, 0, header.correlation_id)))
    ((again, _),) = requests_in(machine.take_output())
    assert again.api_version == 0
    feed(machine, reply_to(again, versions()))
    assert machine.state is State.READY


def test_the_newest_version_that_both_speak_is_used() -> None:
    machine = ready(versions(Metadata=(0, 7)))
    machine.request(MetadataRequest(), "a", ms(2000))
    ((header, _),) = requests_in(machine.take_output())
    assert header.api_version == 7


def test_an_api_that_the_broker_does_not_speak_is_refused_before_it_is_sent() -> None:
    machine = ready(versions(Produce=(100, 101)))
    with pytest.raises(UnsupportedByBroker, match="Produce"):
        machine.request(ProduceRequest(), "a", ms(2000))
    assert machine.take_output() == []


def test_answers_come_in_the_order_of_requests_whatever_the_pieces() -> None:
    for step in (1, 3, 7, 1 << 20):
        machine = ready()
        for token in "abc":
            machine.request(MetadataRequest(), token, ms(2000))
        stream = b"".join(
            reply_to(header, metadata({"t": [1]})) for header, _ in requests_in(machine.take_output())
        )
        answers = feed(machine, stream, step)
        assert [answer.token for answer in answers] == ["a", "b", "c"]
        assert all(isinstance(answer.message, MetadataResponse) for answer in answers)


def test_no_more_requests_than_allowed_are_in_flight() -> None:
    machine = ready(in_flight_max=2)
    machine.request(MetadataRequest(), "a", ms(2000))
    assert machine.has_room
    machine.request(MetadataRequest(), "b", ms(2000))
    assert not machine.has_room


def test_a_reply_to_another_request_breaks_the_connection() -> None:
    machine = ready()
    machine.request(MetadataRequest(), "a", ms(2000))
    ((header, _),) = requests_in(machine.take_output())
    header.correlation_id += 1
    with pytest.raises(DecodeError, match="was next"):
        feed(machine, reply_to(header, metadata()))


def test_a_reply_that_nobody_asked_for_breaks_the_connection() -> None:
    with pytest.raises(DecodeError, match="without a request in flight"):
        feed(ready(), b"\0\0\0\4\0\0\0\0")


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\0\2\2\x28", b"\xff\xff\xff\xff"]
)
def test_what_is_no_kafka_broker_is_noticed_in_the_handshake(garbage: bytes) -> None:
    machine = connection()
    machine.opened(ms(1000))
    with pytest.raises(DecodeError):
        feed(machine, garbage)


def test_a_reply_cut_short_is_a_decode_error() -> None:
    machine = ready()
    machine.request(MetadataRequest(), "a", ms(2000))
    ((header, _),) = requests_in(machine.take_output())
    whole = reply_to(header, metadata({"t": [1]}))[4:-3]
    with pytest.raises(DecodeError):
        feed(machine, len(whole).to_bytes(4, "big") + whole)


def test_replies_that_came_before_the_garbage_count() -> None:
    machine = ready()
    for token in "ab":
        machine.request(MetadataRequest(), token, ms(2000))
    first, _ = requests_in(machine.take_output())[0]
    with pytest.raises(DecodeError):
        feed(machine, reply_to(first, metadata()) + b"\0\0\0\1x")
    answers = machine.closed(broken("garbage"), ms(0))
    assert [(answer.token, answer.error is None) for answer in answers] == [("a", True), ("b", False)]


def test_a_frame_larger_than_allowed_is_refused_before_a_byte_of_it_is_kept() -> None:
    machine = ready()
    machine.request(MetadataRequest(), "a", ms(2000))
    with pytest.raises(DecodeError, match="are allowed"):
        feed(machine, (1 << 30).to_bytes(4, "big"))


def test_when_the_stream_ends_everything_in_flight_fails_and_the_overdue_by_timeout() -> None:
    machine = ready()
    machine.request(MetadataRequest(), "a", ms(2000))
    machine.request(MetadataRequest(), "b", ms(5000))
    assert machine.deadline() == ms(2000)
    answers = machine.closed(broken("gone"), ms(2000))
    assert [(answer.token, type(answer.error)) for answer in answers] == [
        ("a", RequestTimeout),
        ("b", ConnectionFailed),
    ]
    assert machine.state is State.CLOSED


def test_a_request_without_reply_is_not_in_flight() -> None:
    machine = ready()
    machine.request(ProduceRequest(acks=0), "a", ms(2000), expects_reply=False)
    assert machine.in_flight == 0
    assert len(requests_in(machine.take_output())) == 1


@pytest.mark.parametrize("size", [100, SMALL_BYTES // 2, SMALL_BYTES - 40, SMALL_BYTES * 3, 3 << 20])
def test_fetched_records_stay_as_they_are_when_more_arrives(size: int) -> None:
    machine = ready()
    for token in ("a", "b"):
        machine.request(FetchRequest(), token, ms(2000))
    replies = []
    for index, (header, _) in enumerate(requests_in(machine.take_output())):
        records = bytes([index + 1]) * size
        partition = PartitionData(records=records, high_watermark=1)
        replies.append(
            reply_to(
                header,
                FetchResponse(responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=[partition])]),
            )
        )
    kept = [answer.message for answer in feed(machine, b"".join(replies))]
    found = [
        message.responses[0].partitions[0].records for message in kept if isinstance(message, FetchResponse)
    ]
    assert [bytes(records) for records in found if isinstance(records, memoryview)] == [
        b"\1" * size,
        b"\2" * size,
    ]


def test_large_buffers_are_used_again_only_when_nobody_holds_a_view() -> None:
    buffers = ReceiveBuffers()
    first = buffers.take(100_000)
    view = memoryview(first)[10:20]
    assert buffers.take(100_000) is not first
    view.release()
    assert buffers.take(100_000) is first
