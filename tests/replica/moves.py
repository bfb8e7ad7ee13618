"""A broker whose only replica moves between its log directories, with every job run by the test."""

from sparklog.errors import ErrorCode
from sparklog.record.batch import build_batch
from sparklog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from sparklog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.world import (
    ACKS_ALL,
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    fetch,
    fetched,
    latest,
    listed,
    produce,
    produced,
)
from tests.replica.by_hand import ByHand

BIG = 300_000
"""The size of a record; three fill a segment."""


class Mover(ByHand):
    """A broker with three log directories, and a topic of some segments in one of them."""

    def __init__(self, count: int = 7, **given: str) -> None:
        super().__init__(**{"log.dirs": "/a,/b,/c", "log.segment.bytes": str(1 << 20), **given})
        self.create("t")
        self.values: list[bytes] = []
        self.write(count)
        self.wait(50)
        self.home = self.places()[0]
        self.target, self.other = (directory for directory in ("/a", "/b", "/c") if directory != self.home)

    def write(self, count: int, *, size: int = BIG, key: bytes | None = None) -> None:
        for _ in range(count):
            value = b"%d-" % len(self.values) + bytes(size)
            assert self.send("t", value, key=key) == 0
            self.values.append(value)

    def in_transaction(
        self, producer_id: int, sequence: int, *, committed: bool, count: int = 1, key: bytes | None = None
    ) -> None:
        """Write a transaction of this many large records, and its end."""
        for number in range(count):
            records = [(key, bytes(BIG), (), self.now.wall_ms)]
            batch = build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence + number,
                is_transactional=True,
            )
            request = produce("t", bytes(batch), acks=ACKS_ALL)
            request.transactional_id = f"of {producer_id}"
            assert produced(self.ask(request, PRODUCE_BY_NAME, ProduceResponse))[0] == 0
        marker = WritableTxnMarker(producer_id, 0, committed, [WritableTxnMarkerTopic("t", [0])], 0)
        answer = self.ask(WriteTxnMarkersRequest([marker]), 1, WriteTxnMarkersResponse)
        assert isinstance(answer, WriteTxnMarkersResponse)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0

    def log_end(self) -> int:
        code, offset = listed(self.ask(latest("t"), 5, ListOffsetsResponse))
        assert code == 0
        return offset

    def places(self, topic: str = "t") -> list[str]:
        """The directories in which its log lies."""
        return [directory for directory in ("/a", "/b", "/c") if f"{topic}-0" in self.disk.list(directory)]

    def leftovers(self) -> list[str]:
        return [
            name
            for directory in ("/a", "/b", "/c")
            for name in self.disk.list(directory)
            if name.endswith(("-future", "-delete"))
        ]

    def all(self, start: int = 0) -> list[bytes]:
        """Every value from an offset on, one record to a batch."""
        found: list[bytes] = []
        while True:
            code, values = fetched(
                self.ask(fetch("t", start + len(found), max_wait_ms=0), FETCH_BY_NAME, FetchResponse)
            )
            assert code == 0
            if not values:
                return found
            found += values

    def move(self, path: str, topic: str = "t", partition: int = 0) -> ErrorCode:
        request = AlterReplicaLogDirsRequest(
            [AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [partition])])]
        )
        answer = self.ask(request, 2, AlterReplicaLogDirsResponse)
        assert isinstance(answer, AlterReplicaLogDirsResponse)
        return ErrorCode(answer.results[0].partitions[0].error_code)

    def begin_copy(self) -> None:
        """Let jobs end until the first has copied a piece."""
        while not self.leftovers():
            self.run(self.held[0])
            self.wait(1)

    def finish(self) -> None:
        """Let all jobs end, and advance to all deadlines."""
        for _ in range(20):
            self.run_all()
            self.wait(500)

    def delete_records(self, offset: int) -> None:
        topics = [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
        self.begin(request, 2)
        self.finish()
        answer = self.answer(2, DeleteRecordsResponse)
        assert isinstance(answer, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].error_code == 0

    def sizes(self) -> dict[str, tuple[int, int, bool]]:
        """(bytes, lag, whether it is a copy) by directory."""
        before = list(self.held)
        self.begin(DescribeLogDirsRequest(topics=None), 5)
        for run in [run for run in self.held if run not in before]:
            self.run(run)
        answer = self.answer(5, DescribeLogDirsResponse)
        assert isinstance(answer, DescribeLogDirsResponse)
        return {
            one.log_dir: (part.partition_size, part.offset_lag, part.is_future_key)
            for one in answer.results
            for topic in one.topics
            for part in topic.partitions
        }

    def leader(self) -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        answer = self.ask(request, 8, MetadataResponse)
        assert isinstance(answer, MetadataResponse)
        return answer.topics[0].partitions[0].leader_id

    def unanswered(self) -> bool:
        """Whether the last request has no response yet."""
        return self.answers == 0

    def slow_down(self, bytes_per_second: int) -> None:
        """Limit the rate of replica moves."""
        self.set(4, "", replica_alter_log_dirs_io_max_bytes_per_second=str(bytes_per_second))

    def set(self, kind: int, name: str, **values: str) -> None:
        configs = [AlterableConfig(key.replace("_", "."), 0, value) for key, value in values.items()]
        request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(kind, name, configs)])
        answer = self.ask(request, 1, IncrementalAlterConfigsResponse)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == 0

    def is_led_after_failure_of(self, path: str) -> bool:
        """Whether the controller finds a leader when a directory fails, given the directory in which it
        assumes the replica.
        """
        self.disk.fault = lambda _, at: "EIO" if at.startswith(f"{path}/") else None
        self.create("beside", 6)  # some of them in that directory
        for partition in range(6):
            self.ask(
                produce("beside", bytes(build_batch([(None, b"x", (), 0)])), partition=partition),
                PRODUCE_BY_NAME,
                ProduceResponse,
            )
        self.wait(100)
        self.disk.fault = None
        return self.leader() == 1
