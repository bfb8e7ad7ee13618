"""Requests that claim more than they have or ask for too much, and clients that read no responses."""

import contextlib
import struct
from functools import cache

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.header import encode_request
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.hostile.conftest import EVERY_DOOR, MIB, SERVED, Door, Target, frame

VERSIONS = ApiVersionsRequest(client_software_name="hostile", client_software_version="1")
FLEXIBLE_METADATA = 9
TAGS = 1_000_000
SILENT_READERS = 16


def uvarint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes((value & 127 | 128,)), value >> 7
    return out + bytes((value,))


ARRAYS = {
    "2^31-1 topics": frame(3, 1, struct.pack(">i", 2**31 - 1)),
    "-2 topics": frame(3, 1, struct.pack(">i", -2)),
    "2^32-1 topics": frame(3, FLEXIBLE_METADATA, b"\0" + uvarint(2**32 - 1)),
    "an endless length": frame(3, FLEXIBLE_METADATA, b"\0" + b"\xff" * 32),
    "topics within topics": frame(
        1, 4, struct.pack(">iiiib", -1, 0, 0, 1 << 20, 0) + struct.pack(">i", 1 << 20) + bytes(1 << 10)
    ),
    "a name of 2^31 bytes": frame(3, FLEXIBLE_METADATA, b"\0\x02" + uvarint(2**31) + b"name"),
    "a name that is not UTF-8": frame(3, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"),
}


@SERVED
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_nothing_closes_the_connection(target: Target, door: Door, name: str) -> None:
    with target.client(door) as client:
        client.send(ARRAYS[name])
        assert client.is_closed()


@cache
def tagged(count: int) -> bytes:
    """ApiVersions with so many tagged fields in its header."""
    tags = b"".join(uvarint(tag) + b"\0" for tag in range(count))
    return frame(18, 3, uvarint(count) + tags + b"\x02a\x02b\0")


@EVERY_DOOR
def test_many_tagged_fields_are_skipped_up_to_a_limit(target: Target, door: Door) -> None:
    with target.client(door) as client:
        client.send(tagged(1000))
        assert isinstance(client.reply(ApiVersionsResponse, 3), ApiVersionsResponse)
    with target.client(door) as client:
        client.send(tagged(TAGS))
        assert client.is_closed()


@EVERY_DOOR
def test_bytes_behind_a_request_do_not_reach_the_next_one(target: Target, door: Door) -> None:
    with target.client(door) as client:
        client.send(frame(18, 0, b"trailing"))
        told = client.receive(4)
        client.receive(int.from_bytes(told, "big"))


def names_of(count: int) -> MetadataRequest:
    from sparklog.wire.messages.metadata import MetadataRequestTopic

    return MetadataRequest(
        topics=[MetadataRequestTopic(name=f"{index:0240}") for index in range(count)],
        allow_auto_topic_creation=False,
    )


@SERVED
def test_responses_that_are_never_read_hold_bounded_memory(target: Target, door: Door) -> None:
    """Each client asks for 20 responses of 5 MB, and reads none."""
    asked = b"".join(bytes(chunk) for chunk in encode_request(names_of(20_000), 9, 1, "hostile"))
    with contextlib.ExitStack() as connected:
        for _ in range(SILENT_READERS):
            client = connected.enter_context(target.client(door))
            for _ in range(4):
                client.send_at_once(asked)
        with target.client(door) as other:
            assert isinstance(other.ask(VERSIONS, 3, ApiVersionsResponse), ApiVersionsResponse)


@SERVED
def test_a_pipeline_without_end_is_answered_in_order_or_waits(target: Target, door: Door) -> None:
    """A client that never reads is muted, and costs the others nothing."""
    requests = frame(18, 0) * (MIB // len(frame(18, 0)))
    with target.client(door) as client, target.client(door) as other:
        for _ in range(16):
            client.send_at_once(requests)
            assert isinstance(other.ask(VERSIONS, 3, ApiVersionsResponse), ApiVersionsResponse)
        client.socket.settimeout(20)
        for _ in range(1000):
            assert isinstance(client.reply(ApiVersionsResponse, 0), ApiVersionsResponse)


@SERVED
def test_a_request_for_more_than_there_is_gets_what_there_is(target: Target, door: Door) -> None:
    with target.client(door) as client:
        told = client.ask(names_of(1000), 9, MetadataResponse)
        assert isinstance(told, MetadataResponse)
        assert {one.error_code for one in told.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
