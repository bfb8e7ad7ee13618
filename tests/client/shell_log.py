"""A broker of one partition that keeps produced records, for tests of the client over real sockets."""

import threading
from collections.abc import Callable

from sparklog.model import TopicPartition
from sparklog.record.batch import build_batch, decode_records
from sparklog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from sparklog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from sparklog.wire.schema import Message
from tests.client.wire import TOPIC_ID, ScriptedBroker, metadata

T0 = TopicPartition("t", 0)


class Log:
    """A partition in memory behind a scripted broker; `trouble` are answers to Produce that come before it
    works.
    """

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.start = 0
        self.trouble: list[Callable[[], Message | bytes | None]] = []
        self.is_known = True

    def metadata(self, broker: ScriptedBroker, request: Message) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        told = metadata({"t": [1]}, nodes=[(1, broker.port)])
        if request.topics is not None:
            for topic in request.topics:
                if topic.name != "t":
                    told.topics.append(MetadataResponseTopic(error_code=3, name=topic.name))
        return told

    def produce(self, request: Message) -> Message | bytes | None:
        assert isinstance(request, ProduceRequest)
        if self.trouble:
            return self.trouble.pop(0)()
        (partition,) = request.topic_data[0].partition_data
        assert isinstance(partition.records, memoryview)
        base = self.append(bytearray(partition.records))
        return produced(base_offset=base)

    def append(self, batch: bytearray) -> int:
        base = self.end
        batch[:8] = base.to_bytes(8, "big")
        self.batches.append(bytes(batch))
        self.end += len(decode_records(batch))
        return base

    def fetch(self, request: Message) -> Message:
        assert isinstance(request, FetchRequest)
        if not request.topics:
            return FetchResponse()
        asked = request.topics[0].partitions[0]
        out_of_range = not self.start <= asked.fetch_offset <= self.end
        found = b"".join(
            batch for batch in self.batches if decode_records(batch)[-1].offset >= asked.fetch_offset
        )
        if not found and not out_of_range:
            threading.Event().wait(min(request.max_wait_ms, 20) / 1000)
        told = PartitionData(
            partition_index=0,
            error_code=int(out_of_range),
            high_watermark=self.end,
            records=b"" if out_of_range else found,
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[told])])

    def list_offsets(self, request: Message) -> Message:
        assert isinstance(request, ListOffsetsRequest)
        timestamp = request.topics[0].partitions[0].timestamp
        offset = {-1: self.end, -2: self.start}.get(timestamp, -1)
        told = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[told])])

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in decode_records(batch)]


def produced(base_offset: int = 0, code: int = 0) -> ProduceResponse:
    told = PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset)
    return ProduceResponse(responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[told])])


def fill(log: Log, count: int = 10, per_batch: int = 4) -> None:
    for start in range(0, count, per_batch):
        log.append(
            build_batch([(b"k", b"%d" % n, (), 5) for n in range(start, min(start + per_batch, count))])
        )
