"""The wire codec: processor time to decode and encode Produce and Fetch of one partition and of a hundred,
and to frame them.

Subjects are the compiled kernel, the reference kernel and `struct`: the code one would write by hand for
these two messages, one version each, with the same message classes and the same bounds checked. Nothing
here does I/O.
"""

import struct
import time
import timeit
from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any

from benchmarks import harness
from sparklog.kernels import load
from sparklog.wire import header, schema
from sparklog.wire.frame import Framer
from sparklog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from sparklog.wire.schema import Message

PRODUCE_VERSION, FETCH_VERSION = 9, 12
SECONDS_PER_SAMPLE = 0.1

# (topics, partitions of each, bytes of records in each partition of a Produce, the same in a Fetch reply)
ONE = (1, 1, 11_700, 75_000)
HUNDRED = (10, 10, 1_100, 1_100)

# One and a half times the time of a prototype without any checks on the project's machine kind (2 shared
# cores), for one and a hundred.
BOUNDS = {
    "Produce request decode": ("<= 0.83", "<= 25.4"),
    "Produce request encode": ("<= 0.33", "<= 6.75"),
    "Fetch reply build + encode": ("<= 1.5", "<= 27.9"),
}
FRAMING_BOUNDS = {
    "request header decode": "<= 0.7",
    "Produce reply frame": "<= 0.7",
    "frame received": "<= 0.5",
}


def main() -> None:
    options = harness.options(__doc__, repeats=5)
    figures = harness.Figures("codec")
    kernels = {name: load("codec", name) for name in ("compiled", "reference")}
    for _ in range(options.repeats):
        for index, shape in enumerate((ONE, HUNDRED)):
            for subject, calls in [
                *((name, kernel_calls(kernel, shape)) for name, kernel in kernels.items()),
                ("struct", struct_calls(shape)),
            ]:
                for what, call in calls.items():
                    bound = BOUNDS.get(what, ("", ""))[index] if subject == "compiled" else ""
                    label = f"{what}, {shape[0] * shape[1]} partition{'s' if index else ''}"
                    figures.add(label, "µs", subject, microseconds(call), bound=bound)
        for what, call in framing_calls().items():
            figures.add(what, "µs", "compiled", microseconds(call), bound=FRAMING_BOUNDS[what])
    figures.note(
        f"Produce v{PRODUCE_VERSION}, Fetch v{FETCH_VERSION}; records are views when read and passed through "
        f"when written"
    )
    figures.report(options)


def microseconds(call: Callable[[], object]) -> float:
    """Processor time, the best of a few runs: the cost of the code on an idle core."""
    timer = timeit.Timer(call, timer=time.process_time)
    number = max(1, int(SECONDS_PER_SAMPLE / 3 / (min(timer.repeat(3, 100)) / 100)))
    return min(timer.repeat(3, number)) / number * 1e6


# -- the measured parts --------------------------------------------------------------------------------------


def produce_request(shape: tuple[int, int, int, int]) -> ProduceRequest:
    topics, partitions, records_bytes, _ = shape
    records = Random(1).randbytes(records_bytes)
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=f"topic-{topic}",
                partition_data=[PartitionProduceData(index, records) for index in range(partitions)],
            )
            for topic in range(topics)
        ],
    )


def fetch_request(shape: tuple[int, int, int, int]) -> FetchRequest:
    topics, partitions, _, _ = shape
    return FetchRequest(
        max_wait_ms=500,
        topics=[
            FetchTopic(
                topic=f"topic-{topic}",
                partitions=[FetchPartition(index, 5, 70_000, -1, -1, 1 << 20) for index in range(partitions)],
            )
            for topic in range(topics)
        ],
    )


def fetch_reply(shape: tuple[int, int, int, int], records: memoryview) -> FetchResponse:
    topics, partitions, _, _ = shape
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=f"topic-{topic}",
                partitions=[
                    PartitionData(
                        partition_index=index,
                        high_watermark=5,
                        last_stable_offset=5,
                        log_start_offset=0,
                        aborted_transactions=None,
                        records=records,
                    )
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ]
    )


def kernel_calls(kernel: ModuleType, shape: tuple[int, int, int, int]) -> dict[str, Callable[[], object]]:
    def program(cls: type[Message], version: int) -> Any:
        return schema.flatten(cls, version, is_flexible=version >= cls.versions.flexible, kernel=kernel)

    produce, fetch, reply = (
        program(ProduceRequest, PRODUCE_VERSION),
        program(FetchRequest, FETCH_VERSION),
        program(FetchResponse, FETCH_VERSION),
    )
    request, asked, records = (
        produce_request(shape),
        fetch_request(shape),
        memoryview(Random(2).randbytes(shape[3])),
    )
    octets, asked_octets = (
        memoryview(b"".join(kernel.encode(*of))) for of in ((produce, request), (fetch, asked))
    )
    return {
        "Produce request decode": lambda: kernel.decode(produce, octets),
        "Produce request encode": lambda: kernel.encode(produce, request),
        "Fetch request decode": lambda: kernel.decode(fetch, asked_octets),
        "Fetch request encode": lambda: kernel.encode(fetch, asked),
        "Fetch reply build + encode": lambda: kernel.encode(reply, fetch_reply(shape, records)),
    }


def framing_calls() -> dict[str, Callable[[], object]]:
    """The cost of every request beside its message, through the public functions and the kernel in use."""
    request = ProduceRequest(
        acks=1,
        topic_data=[TopicProduceData(name="topic", partition_data=[PartitionProduceData(0, bytes(170))])],
    )
    reply = ProduceResponse(
        responses=[
            TopicProduceResponse(name="topic", partition_responses=[PartitionProduceResponse(0, 0, 70_000)])
        ]
    )
    octets = b"".join(
        bytes(chunk) for chunk in header.encode_request(request, PRODUCE_VERSION, 7, "producer-1")
    )
    frame, framer = memoryview(bytearray(octets[4:])), Framer(frame_bytes_max=1 << 20)
    framer.buffer()[: len(octets)] = octets
    return {
        "request header decode": lambda: header.decode_request_header(frame),
        "Produce reply frame": lambda: header.encode_reply(reply, 0, PRODUCE_VERSION, 7),
        "frame received": lambda: framer.received(len(octets)),
    }


# -- by hand -------------------------------------------------------------------------------------------------

I32 = struct.Struct(">i")
PRODUCE_HEAD, FETCH_PARTITION_HEAD, FETCH_HEAD = (
    struct.Struct(">hi"),
    struct.Struct(">ihqqq"),
    struct.Struct(">ihi"),
)


def struct_calls(shape: tuple[int, int, int, int]) -> dict[str, Callable[[], object]]:
    request, records = produce_request(shape), memoryview(Random(2).randbytes(shape[3]))
    octets = memoryview(b"".join(encode_produce(request)))
    assert decode_produce(octets) == request
    return {
        "Produce request decode": lambda: decode_produce(octets),
        "Produce request encode": lambda: encode_produce(request),
        "Fetch reply build + encode": lambda: encode_fetch_reply(fetch_reply(shape, records)),
    }


def decode_produce(view: memoryview) -> ProduceRequest:
    name, position = read_string(view, 0)
    acks, timeout_ms = PRODUCE_HEAD.unpack_from(view, position)
    count, position = read_varint(view, position + 6)
    topics = []
    for _ in range(count - 1):
        topic, position = read_string(view, position)
        partition_count, position = read_varint(view, position)
        partitions = []
        for _ in range(partition_count - 1):
            (index,) = I32.unpack_from(view, position)
            length, position = read_varint(view, position + 4)
            if position + length - 1 > len(view):
                raise ValueError("truncated")
            partitions.append(PartitionProduceData(index, view[position : position + length - 1]))
            position = skip_tags(view, position + length - 1)
        topics.append(TopicProduceData(topic or "", bytes(16), partitions))
        position = skip_tags(view, position)
    skip_tags(view, position)
    return ProduceRequest(name, acks, timeout_ms, topics)


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = view[position]
        position += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise ValueError("varint too long")


def read_string(view: memoryview, position: int) -> tuple[str | None, int]:
    length, position = read_varint(view, position)
    if length == 0:
        return None, position
    if position + length - 1 > len(view):
        raise ValueError("truncated")
    return str(view[position : position + length - 1], "utf-8"), position + length - 1


def skip_tags(view: memoryview, position: int) -> int:
    count, position = read_varint(view, position)
    for _ in range(count):
        _, position = read_varint(view, position)
        size, position = read_varint(view, position)
        position += size
    return position


def write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_string(out: bytearray, text: str | None) -> None:
    octets = b"" if text is None else text.encode()
    write_varint(out, 0 if text is None else len(octets) + 1)
    out += octets


def write_records(chunks: list[Any], out: bytearray, records: Any) -> bytearray:
    write_varint(out, len(records) + 1)
    chunks += (bytes(out), records)
    return bytearray()


def encode_produce(request: ProduceRequest) -> list[Any]:
    chunks: list[Any] = []
    out = bytearray()
    write_string(out, request.transactional_id)
    out += PRODUCE_HEAD.pack(request.acks, request.timeout_ms)
    write_varint(out, len(request.topic_data) + 1)
    for topic in request.topic_data:
        write_string(out, topic.name)
        write_varint(out, len(topic.partition_data) + 1)
        for partition in topic.partition_data:
            out += I32.pack(partition.index)
            out = write_records(chunks, out, partition.records)
            out.append(0)
        out.append(0)
    out.append(0)
    return [*chunks, bytes(out)]


def encode_fetch_reply(reply: FetchResponse) -> list[Any]:
    chunks: list[Any] = []
    out = bytearray(FETCH_HEAD.pack(reply.throttle_time_ms, reply.error_code, reply.session_id))
    write_varint(out, len(reply.responses) + 1)
    for topic in reply.responses:
        write_string(out, topic.topic)
        write_varint(out, len(topic.partitions) + 1)
        for part in topic.partitions:
            offsets = part.high_watermark, part.last_stable_offset, part.log_start_offset
            out += FETCH_PARTITION_HEAD.pack(part.partition_index, part.error_code, *offsets)
            write_varint(out, 0 if part.aborted_transactions is None else len(part.aborted_transactions) + 1)
            out += I32.pack(part.preferred_read_replica)
            out = write_records(chunks, out, part.records)
            out.append(0)
        out.append(0)
    out.append(0)
    return [*chunks, bytes(out)]


if __name__ == "__main__":
    main()
