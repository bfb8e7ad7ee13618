"""Headers and whole frames."""

import pytest

from sparklog.errors import DecodeError
from sparklog.wire.api_keys import API_BY_KEY, API_VERSIONS
from sparklog.wire.codec import decode
from sparklog.wire.header import (
    RequestHeader,
    UnsupportedVersion,
    decode_reply,
    decode_request_header,
    encode_reply,
    encode_request,
)
from sparklog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


def frame_of(chunks: list[bytes]) -> bytes:
    """The frame behind its length prefix, which must be true."""
    octets = b"".join(chunks)
    assert int.from_bytes(octets[:4], "big") == len(octets) - 4
    return octets[4:]


def test_a_plain_request_has_header_v1() -> None:
    frame = frame_of(encode_request(HeartbeatRequest("g", 3, "m"), 0, 77, "me"))
    assert frame.hex(" ") == "00 0c 00 00 00 00 00 4d 00 02 6d 65 00 01 67 00 00 00 03 00 01 6d"
    header, body = decode_request_header(frame)
    assert header == RequestHeader(api_key=12, api_version=0, correlation_id=77, client_id="me")
    assert bytes(body) == frame[12:]


def test_a_flexible_request_has_header_v2_whose_client_id_is_not_compact() -> None:
    frame = frame_of(encode_request(HeartbeatRequest("g", 3, "m"), 4, 77, "me"))
    assert frame.hex(" ") == "00 0c 00 04 00 00 00 4d 00 02 6d 65 00 02 67 00 00 00 03 02 6d 00 00"
    assert bytes(decode_request_header(frame)[1]) == frame[13:]


def test_a_client_may_have_no_name_and_headers_may_carry_unknown_tags() -> None:
    header, body = decode_request_header(bytes.fromhex("00 0c 00 04 00 00 00 4d ff ff 02 00 01 aa 09 00 dd"))
    assert (header.client_id, bytes(body)) == (None, b"\xdd")


def test_records_stay_in_the_received_buffer_down_to_the_message() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(0, b"r" * 600)])]
    )
    received = bytearray(frame_of(encode_request(request, 9, 1, None)))
    _, body = decode_request_header(memoryview(received))
    records = decode(ProduceRequest, 9, body).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:5] = b"stamp"
    assert b"stamp" + b"r" * 595 in received


@pytest.mark.parametrize(("version", "header"), [(3, "00 00 00 05"), (4, "00 00 00 05 00")])
def test_a_reply_to_a_flexible_request_has_tags_in_its_header(version: int, header: str) -> None:
    chunks = encode_reply(HeartbeatResponse(error_code=27), 12, version, 5)
    assert len(chunks) == 1
    frame = frame_of(chunks)
    assert frame.hex(" ").startswith(header + " 00 00 00 00 00 1b")
    assert decode_reply(HeartbeatResponse, version, frame) == (5, HeartbeatResponse(error_code=27))


def test_the_reply_to_api_versions_never_has_tags_in_its_header() -> None:
    reply = ApiVersionsResponse(api_keys=[ApiVersion(0, 3, 13)])
    for version in range(5):
        frame = frame_of(encode_reply(reply, API_VERSIONS, version, 5))
        assert frame[:6].hex() == "000000050000"
        assert decode_reply(ApiVersionsResponse, version, frame) == (5, reply)


def test_an_unknown_version_is_told_with_a_header_that_can_be_answered() -> None:
    frame = frame_of(encode_request(ApiVersionsRequest("kafka", "9"), 4, 8, "new"))
    with pytest.raises(UnsupportedVersion) as caught:
        decode_request_header(frame[:2] + b"\0\x63" + frame[4:])
    assert caught.value.header == RequestHeader(API_VERSIONS, 99, 8, "new")


@pytest.mark.parametrize(("key", "version"), [(4, 0), (999, 0), (-1, 0), (0, 2), (22, 7), (1, -1)])
def test_what_the_table_lacks_is_unsupported(key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        decode_request_header(
            key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(7)
        )


@pytest.mark.parametrize(
    "octets",
    [
        "",
        "00",
        "00 12 00",
        "00 12 00 00 00 00 00",
        "00 12 00 00 00 00 00 01 00 05 61",
        "00 12 00 00 00 00 00 01 ff fe",
    ],
)
def test_a_frame_too_short_for_its_header_is_undecodable(octets: str) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(bytes.fromhex(octets))


def test_bytes_behind_a_reply_are_refused() -> None:
    with pytest.raises(DecodeError, match="left over"):
        decode_reply(ProduceResponse, 9, frame_of(encode_reply(ProduceResponse(), 0, 9, 1)) + b"\0")


def test_the_table_names_every_api_once() -> None:
    assert len({api.name for api in API_BY_KEY.values()}) == len(API_BY_KEY) == 75
    assert all(API_BY_KEY[key].key == key for key in API_BY_KEY)
