"""Bytes from a hostile peer: decoding answers or raises the one error, in bounded memory and linear time."""

import gc
import time
from collections.abc import Callable, Iterator
from random import Random
from types import ModuleType
from typing import Any

import pytest

from sparklog.errors import DecodeError
from sparklog.wire import schema
from sparklog.wire.codec import decode, encode
from sparklog.wire.messages.api_versions import ApiVersionsRequest
from sparklog.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.messages.list_groups import ListGroupsResponse
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.messages.produce import ProduceRequest
from sparklog.wire.schema import Field, Message
from tests.wire import fuzz
from tests.wire.arbitrary import arbitrary, every_version, kernels
from tests.wire.fuzz import ALLOCATION_BASE, ALLOCATION_FACTOR, Case, Fuzzer, allocated
from tests.wire.hostile import truncations

MIB = 1 << 20
with_each_kernel = pytest.mark.parametrize(
    "kernel", kernels(), ids=lambda kernel: kernel.__name__.rpartition("_")[2]
)


def program(cls: type[Message], version: int, kernel: ModuleType) -> Any:
    return schema.flatten(cls, version, is_flexible=version >= cls.versions.flexible, kernel=kernel)


def varint(value: int) -> bytes:
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*octets, value])


@pytest.mark.parametrize(("name", "case"), fuzz.corpus().items(), ids=list(fuzz.corpus()))
def test_every_case_of_the_corpus_has_the_answer_on_file(name: str, case: Case) -> None:
    fuzzer = Fuzzer()
    assert fuzzer.run(case) == case.answer
    fuzzer.check_allocation(case)


def test_a_short_fuzz_finds_nothing() -> None:
    assert fuzz.fuzz(seconds=2.0, seed=1).total() > 1000


def test_a_message_cut_at_any_byte_is_refused() -> None:
    for cls, version in every_version():
        octets = b"".join(bytes(chunk) for chunk in encode(arbitrary(cls, version, Random(version)), version))
        for cut in truncations(octets[-1500:] if len(octets) < 1500 else octets[:700]):
            with pytest.raises(DecodeError):
                decode(cls, version, cut)


def test_whatever_is_refused_says_which_message_and_where() -> None:
    with pytest.raises(DecodeError, match=r"^MetadataRequest v1: invalid UTF-8 at byte 6$") as caught:
        decode(MetadataRequest, 1, bytes.fromhex("00000001 0003 61 c3 28"))
    assert caught.value.position == 6


def test_a_name_longer_than_any_may_be_is_refused() -> None:
    name = varint(32769) + b"x" * 32768
    with pytest.raises(DecodeError, match="string too long"):
        decode(MetadataRequest, 9, b"\x02" + name + bytes(5))


# -- memory --------------------------------------------------------------------------------------------------


def fullest(cls: type[Message], version: int, count: int) -> Iterator[Message]:
    """For every array of a message, at any depth, the message in which it has `count` elements of defaults
    and every other array one.
    """
    for path in array_paths(cls, version):
        yield grown(cls, version, path, count)


def array_paths(cls: type[Message], version: int) -> Iterator[tuple[str, ...]]:
    for field in present(cls, version):
        if field.is_array:
            yield (field.name,)
        if field.struct is not None:
            yield from ((field.name, *inner) for inner in array_paths(field.struct, version))


def grown(cls: type[Message], version: int, path: tuple[str, ...], count: int) -> Message:
    message = cls()
    for field in present(cls, version):
        if field.name == path[0]:
            value = element(field, version, path[1:], count)
            setattr(
                message, field.name, [value] * (count if len(path) == 1 else 1) if field.is_array else value
            )
    return message


def element(field: Field, version: int, path: tuple[str, ...], count: int) -> object:
    if field.struct is not None:
        return grown(field.struct, version, path, count) if path else field.struct()
    return {schema.STRING: "", schema.UUID: bytes(16)}.get(field.wire_type, 0)  # type: ignore[call-overload]


def present(cls: type[Message], version: int) -> list[Field]:
    return [field for field in schema.fields(cls) if field.since <= version <= field.until]


@with_each_kernel
def test_arrays_of_the_smallest_elements_allocate_no_more_than_64_times_the_frame(kernel: ModuleType) -> None:
    for cls, version in every_version():
        if version not in (cls.versions.since, cls.versions.until):
            continue
        made = program(cls, version, kernel)
        for message in fullest(cls, version, 200):
            octets = b"".join(bytes(chunk) for chunk in kernel.encode(made, message))
            peak = allocated(lambda made=made, octets=octets: fuzz.outcome(kernel.decode, made, octets))  # type: ignore[misc]
            assert peak <= ALLOCATION_FACTOR * len(octets) + ALLOCATION_BASE, (cls, version, message)


TINY: list[tuple[type[Message], int, bytes, bytes, bytes]] = [
    (MetadataRequest, 9, b"", b"\x01\x00", bytes(4)),
    (MetadataRequest, 9, b"", b"\x03ab\x00", bytes(4)),
    (ProduceRequest, 9, bytes(7), b"\x01\x01\x00", b"\x00"),
    (ProduceRequest, 9, bytes(7), b"\x01\x02\0\0\0\0\x01\x00\x00", b"\x00"),
    (FetchRequest, 12, bytes(25), b"\x01\x01\x00", b"\x01\x01\x00"),
    (ListGroupsResponse, 5, bytes(6), b"\x01\x01\x01\x01\x00", b"\x00"),
    (FetchRequest, 13, bytes(25), bytes(16) + b"\x01\x00", b"\x01\x01\x00"),
    (
        ConsumerGroupDescribeResponse,
        0,
        bytes(4),
        bytes(2) + b"\x00\x01\x01\0\0\0\0\0\0\0\0\x01\x01\x80\0\0\0\x00",
        b"\x00",
    ),
]
tiny_elements = pytest.mark.parametrize(
    ("cls", "version", "before", "element", "after"),
    TINY,
    ids=[f"{row[0].__name__}-{len(row[3])}" for row in TINY],
)


@with_each_kernel
@tiny_elements
def test_a_frame_of_tiny_elements_allocates_in_proportion(
    kernel: ModuleType, cls: type[Message], version: int, before: bytes, element: bytes, after: bytes
) -> None:
    made = program(cls, version, kernel)
    octets = before + varint(20_001) + element * 20_000 + after
    peak = allocated(lambda: fuzz.outcome(kernel.decode, made, octets))
    assert peak <= ALLOCATION_FACTOR * len(octets) + ALLOCATION_BASE


def test_no_frame_allocates_more_than_256_mib() -> None:
    element, kernel = b"\x01\x01\x00", kernels()[-1]
    made = program(ProduceRequest, 9, kernel)
    octets = bytes(7) + varint(2_500_001) + element * 2_500_000 + b"\x00"
    results: list[tuple[str, Any]] = []
    assert allocated(lambda: results.append(fuzz.outcome(kernel.decode, made, octets))) <= 256 * MIB
    assert results[0][0] == "refused"
    assert results[0][1][0] == "takes too much memory for its size"


@with_each_kernel
def test_a_million_unknown_tags_are_skipped_and_allocate_nothing(kernel: ModuleType) -> None:
    octets = b"\x02a\x02b" + varint(1_000_000) + b"\x05\x01\xaa" * 1_000_000
    made = program(ApiVersionsRequest, 3, kernel)
    started = time.process_time()
    assert kernel.decode(made, octets) == ApiVersionsRequest("a", "b")
    assert time.process_time() - started < 5.0
    few = b"\x02a\x02b" + varint(10_000) + b"\x05\x01\xaa" * 10_000
    assert allocated(lambda: kernel.decode(made, few)) < ALLOCATION_BASE


def test_a_known_tag_repeated_a_hundred_thousand_times_allocates_in_proportion() -> None:
    plain = b"".join(bytes(chunk) for chunk in encode(FetchRequest(cluster_id="x"), 12))
    repeated = plain[:-5] + varint(100_000) + b"\x00\x03\x03ab" * 100_000
    assert decode(FetchRequest, 12, plain[:-5] + varint(1) + b"\x00\x03\x03ab").cluster_id == "ab"
    peak = allocated(lambda: decoded_or_refused(FetchRequest, 12, repeated))
    assert peak <= ALLOCATION_FACTOR * len(repeated) + ALLOCATION_BASE


def decoded_or_refused(cls: type[Message], version: int, octets: bytes) -> Message | None:
    try:
        return decode(cls, version, octets)
    except DecodeError:
        return None


# -- time ----------------------------------------------------------------------------------------------------


@tiny_elements
def test_time_grows_with_the_frame_and_no_faster(
    cls: type[Message], version: int, before: bytes, element: bytes, after: bytes
) -> None:
    kernel = kernels()[-1]
    made = program(cls, version, kernel)

    def seconds(count: int) -> float:
        octets = before + varint(count + 1) + element * count + after
        return min(timed(lambda: fuzz.outcome(kernel.decode, made, octets)) for _ in range(3))

    # Eight times the frame in less than forty times the time: a quadratic decode takes sixty-four times, on a
    # busy machine too.
    assert any(seconds(40_000) < 40 * max(seconds(5_000), 1e-4) for _ in range(5))


def timed(call: Callable[[], object]) -> float:
    gc.disable()  # a full collection grows with all that the tests hold
    started = time.process_time()
    call()
    took = time.process_time() - started
    gc.enable()
    return took
