"""The compiled codec equals the reference, on messages and on hostile bytes."""

import operator
import sys
from collections.abc import Callable
from functools import partial
from random import Random
from threading import Thread
from types import ModuleType
from typing import Annotated, Any, ClassVar

import msgspec
import pytest

from sparklog.kernels import codec_reference as reference
from sparklog.wire import schema
from sparklog.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from sparklog.wire.schema import Int16, Message, Versions, nullable, tagged
from tests.wire.arbitrary import arbitrary, every_version, kernels
from tests.wire.hostile import mutations

compiled = next((kernel for kernel in kernels() if kernel is not reference), None)
needs_compiled = pytest.mark.skipif(compiled is None, reason="the compiled kernels are not built")

Answer = tuple[str, Any]


class Leaf(Message):
    number: Int16 = 0


class Tagged(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    first: Annotated[Leaf | None, nullable(), tagged(0)] = msgspec.field(default_factory=Leaf)


def programs(cls: type[Message], version: int) -> list[Any]:
    is_flexible = version >= cls.versions.flexible
    return [schema.flatten(cls, version, is_flexible=is_flexible, kernel=kernel) for kernel in kernels()]


def answer(call: Callable[..., Any], *arguments: object) -> Answer:
    try:
        return "returned", call(*arguments)
    except ValueError as error:
        return "refused", error.args


@needs_compiled
def test_operation_codes_are_the_same_numbers() -> None:
    names = [
        name
        for name in dir(reference)
        if name.isupper() and not name.startswith("_") and name in dir(compiled)
    ]
    assert len(names) == 21
    assert [getattr(compiled, name) for name in names] == [getattr(reference, name) for name in names]


@needs_compiled
def test_both_kernels_weigh_every_program_alike() -> None:
    for cls, version in every_version():
        slow, fast = programs(cls, version)
        assert (fast.cost, fast.minimal_bytes) == (slow.cost, slow.minimal_bytes), (cls, version)


@needs_compiled
def test_both_kernels_write_every_message_alike() -> None:
    for cls, version in every_version():
        slow, fast = programs(cls, version)
        random = Random(f"write {cls.__name__} {version}")
        for _ in range(4):
            message = arbitrary(cls, version, random)
            assert compiled.encode(fast, message) == reference.encode(slow, message)


@pytest.mark.parametrize("kernel", kernels())
def test_null_in_the_tagged_field_0_is_a_zero(kernel: ModuleType) -> None:
    program = schema.flatten(Tagged, 0, is_flexible=True, kernel=kernel)
    written = b"".join(kernel.encode(program, Tagged(first=None)))
    assert written.hex(" ") == "01 00 01 00"
    assert kernel.decode(program, written) == Tagged(first=None)


@needs_compiled
def test_other_threads_run_while_a_long_array_is_written() -> None:
    parts = [
        PartitionResponse(active_producers=[ProducerState(producer_id=number) for number in range(200_000)])
    ]
    message = DescribeProducersResponse(topics=[TopicResponse(partitions=parts)])
    _, program = programs(DescribeProducersResponse, 0)
    turns: list[None] = []
    is_over = False

    def run() -> None:
        while not is_over:
            turns.append(None)

    other = Thread(target=run)
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # the other thread requests the GIL soon, well within one call of the kernel
    # Unpacked in one step: between the bytecodes that these would be otherwise, the other thread may run too.
    calls = (turns.__len__, partial(compiled.encode, program, message), turns.__len__)
    before = after = tries = 0
    while after == before and tries < 50:  # a busy machine may not wake the other thread in time
        before, _, after = map(operator.call, calls)
        tries += 1
    sys.setswitchinterval(interval)
    is_over = True
    other.join()
    assert after > before


@needs_compiled
def test_both_kernels_answer_hostile_bytes_alike() -> None:
    refused = 0
    for cls, version in every_version():
        slow, fast = programs(cls, version)
        random = Random(f"hostile {cls.__name__} {version}")
        octets = b"".join(reference.encode(slow, arbitrary(cls, version, random)))
        for mutated in mutations(octets, random, count=12):
            expected = answer(reference.decode, slow, mutated)
            found = answer(compiled.decode, fast, mutated)
            if expected[0] == "refused":
                refused += 1
                assert found == expected, (cls, version, mutated.hex())
            else:
                # Compared as they are written: NaN is not equal to itself.
                assert found[0] == "returned", (cls, version, mutated.hex())
                assert compiled.encode(fast, found[1]) == reference.encode(slow, expected[1])
    assert refused > 1000


@needs_compiled
def test_both_kernels_frame_alike() -> None:
    slow_header, fast_header = programs(Header, 0)
    for cls, version in list(every_version())[::7]:
        slow, fast = programs(cls, version)
        message = arbitrary(cls, version, Random(version))
        ours = compiled.encode_frame(fast_header, Header(9), fast, message)
        assert ours == reference.encode_frame(slow_header, Header(9), slow, message)
        assert int.from_bytes(ours[0][:4], "big") == sum(map(len, ours)) - 4


class Header(Message):
    versions = schema.Versions(0, 0)

    correlation_id: schema.Int32 = 0


@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.__name__.rpartition("_")[2])
def test_records_are_views_of_the_buffer_and_pass_through_as_chunks(kernel: ModuleType) -> None:
    program = schema.flatten(Batch, 0, is_flexible=True, kernel=kernel)
    large = b"r" * 1000
    chunks = kernel.encode(program, Batch([large, memoryview(b"tiny"), SizedThing(5)], 3))
    assert [type(chunk) for chunk in chunks] == [bytes, bytes, bytes, SizedThing, bytes]
    assert chunks[1] is large
    assert (chunks[0], chunks[2], chunks[4]) == (b"\xf2\x07", b"tiny", b"\0\0\0\3\0")
    buffer = bytearray(b"\xe9\x07" + large + b"\0\0\0\3\0")
    view = kernel.decode(program, memoryview(buffer)).records
    view[0] = ord("x")
    assert (len(view), buffer[2]) == (1000, ord("x"))


@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.__name__.rpartition("_")[2])
def test_a_request_has_a_limited_number_of_unknown_tags(kernel: ModuleType) -> None:
    """A reply of a newer broker may have one for each of many partitions."""
    program = schema.flatten(Batch, 0, is_flexible=True, kernel=kernel)
    message, most = b"\0\0\0\0\3", reference.REQUEST_UNKNOWN_TAGS_MAX
    whole = message + b"\x80\x80\4" + b"\1\0" * most
    assert kernel.decode_prefix(program, whole) == (Batch(None, 3), len(whole))
    more = message + b"\x81\x80\4" + b"\1\0" * (most + 1)
    assert kernel.decode(program, more) == Batch(None, 3)
    with pytest.raises(ValueError, match="too many unknown tagged fields") as refused:
        kernel.decode_prefix(program, more)
    assert refused.value.args[1] == len(more)


@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.__name__.rpartition("_")[2])
def test_a_request_has_a_limited_number_of_elements_in_all_its_arrays(kernel: ModuleType) -> None:
    """A reply of a broker has as many as there are partitions in its cluster."""
    program = schema.flatten(Numbers, 0, is_flexible=False, kernel=kernel)
    most = reference.REQUEST_ELEMENTS_MAX

    def encoded(first: int, second: int) -> bytes:
        return b"".join(count.to_bytes(4, "big") + bytes(4 * count) for count in (first, second))

    assert kernel.decode_prefix(program, encoded(most - 1, 1))[0] == Numbers([0] * (most - 1), [0])
    assert len(kernel.decode(program, encoded(most, 1)).first) == most
    with pytest.raises(ValueError, match="too many elements") as refused:
        kernel.decode_prefix(program, encoded(most, 1))
    assert refused.value.args[1] == 4 * most + 8


class Numbers(Message):
    versions = schema.Versions(0, 0)

    first: list[schema.Int32] = []
    second: list[schema.Int32] = []


class Batch(Message):
    versions = schema.Versions(0, 0, flexible=0)

    records: schema.Records = None
    number: schema.Int32 = 0


class SizedThing:
    """A stand-in for a slice of a file: all that the codec knows of it is its length."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size
