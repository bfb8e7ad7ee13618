"""The runtime of shards, over a partition made of a list: loading, gathering, parking, and what becomes of
everybody when it is lost.
"""

from collections.abc import Callable

import pytest

from sparklog.effects import FileSlice
from sparklog.errors import DecodeError, ErrorCode
from sparklog.kernels import scan
from sparklog.model import Instant, LeaderEpoch, Micros, Millis, Offset, Ticket, Uuid
from sparklog.record.batch import build_batch, decode_records, iterate_headers
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.runtime import CoordinatorRuntime
from sparklog_server.coordinator.shard import Answer, CoordinatorRecord, Decision, InTransaction
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.metadata.records import RemoveTopicRecord, TopicRecord
from sparklog_server.outcome import Refused

NOW = Instant(Micros(1_000_000), Millis(1_700_000_000_000))
LATER = Instant(Micros(2_000_000), Millis(1_700_000_001_000))
COMMAND = Command(HeartbeatRequest(group_id="g"), 4)
REPLY = HeartbeatResponse()


class Memory:
    """The bytes of a log, as a file of which a slice may be taken."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def pread(self, position: int, length: int) -> bytes:
        return self.content[position : position + length]

    def retain(self) -> None:
        """Memory has no descriptor."""

    def release(self) -> None:
        """Memory has no descriptor."""


class ListPartition:
    """A led partition whose batches are kept in a list; `commit` moves its high watermark."""

    def __init__(self, *, commits_at_once: bool = True, batch_bytes_max: int = 1 << 20) -> None:
        self.leader_epoch: LeaderEpoch | None = LeaderEpoch(0)
        self.log_start_offset = Offset(0)
        self.log_end_offset = Offset(0)
        self.high_watermark = Offset(0)
        self.batch_bytes_max = batch_bytes_max
        self.batches: list[bytes] = []
        self.parked: list[tuple[Offset, Callable[[Instant], None]]] = []
        self.refusal: Refused | None = None
        self._commits_at_once = commits_at_once

    def append(self, batch: bytearray, now: Instant) -> Offset:
        if self.refusal is not None:
            raise self.refusal
        base = self.log_end_offset
        scan.stamp(batch, base, 0)
        self.batches.append(bytes(batch))
        (_, header), *_ = iterate_headers(batch)
        self.log_end_offset = Offset(base + header.record_count)
        if self._commits_at_once:
            self.high_watermark = self.log_end_offset
        return base

    def append_in_transaction(self, batch: bytearray, proof: object, now: Instant) -> Offset:
        if proof != "proof":
            raise Refused(ErrorCode.INVALID_TXN_STATE)
        return self.append(batch, now)

    def append_marker(
        self, marker: Marker, producer: tuple[int, int], *, is_bumped: bool, now: Instant
    ) -> Offset:
        return self.append(
            build_marker(
                marker, producer_id=producer[0], producer_epoch=producer[1], timestamp_ms=now.wall_ms
            ),
            now,
        )

    def commit(self) -> list[Callable[[Instant], None]]:
        self.high_watermark = self.log_end_offset
        released = [wake for until, wake in self.parked if until <= self.high_watermark]
        self.parked = [(until, wake) for until, wake in self.parked if until > self.high_watermark]
        return released

    def park(self, until: Offset, wake: Callable[[Instant], None]) -> None:
        self.parked.append((until, wake))

    def read(self, start: Offset, limit: Offset, bytes_max: int) -> FileSlice | None:
        content = b""
        for batch in self.batches:
            (_, header), *_ = iterate_headers(batch)
            if header.next_offset <= start or header.base_offset >= limit:
                continue
            if content and len(content) + len(batch) > bytes_max:
                break
            content += batch
        return FileSlice(Memory(content), 0, len(content)) if content else None

    def offset_behind(self, part: FileSlice) -> Offset | None:
        return None

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for batch in self.batches for record in decode_records(batch)]


class WordShard:
    """A shard that keeps words under keys. A command's token says what to do: ("put", key, value),
    ("get",), or ("wait",).
    """

    def __init__(self) -> None:
        self.words: dict[bytes, bytes] = {}
        self.undecided: dict[int, list[tuple[bytes, bytes]]] = {}
        self.replayed: list[Offset] = []
        self.waits: list[object] = []
        self.is_loaded = False
        self.deleted: list[str] = []

    def replay(self, key: bytes, value: bytes | None, offset: Offset) -> None:
        if key == b"unreadable":
            raise DecodeError("a key that nobody writes", 0)
        self.replayed.append(offset)
        if value is None:
            self.words.pop(key, None)
        else:
            self.words[key] = value

    def replay_undecided(self, producer_id: int, key: bytes, value: bytes | None, offset: Offset) -> None:
        self.replayed.append(offset)
        self.undecided.setdefault(producer_id, []).append((key, value or b""))

    def replay_marker(self, producer_id: int, is_commit: bool, offset: Offset) -> None:
        self.replayed.append(offset)
        for key, value in self.undecided.pop(producer_id, []):
            if is_commit:
                self.words[key] = value

    def replay_own(self, message: object, offset: Offset) -> None:
        assert isinstance(message, tuple)
        self.replay(message[0], message[1], offset)

    def unfinished(self) -> dict[str, object]:
        return {}

    def loaded(self, image: MetadataImage, now: Instant) -> list[Decision]:
        self.is_loaded = True
        return []

    def decide(self, command: Command, token: object, now: Instant) -> Decision:
        assert isinstance(token, tuple)
        if token[0] == "put":
            records = tuple(CoordinatorRecord(key, value) for key, value in token[1:])
            return Decision(records, (Answer(token, REPLY),))
        if token[0] == "try":
            records = tuple(CoordinatorRecord(key, value) for key, value in token[2:])
            return Decision(records, (Answer(token, REPLY),), InTransaction(7, 0, token[1]))
        if token[0] == "wait":
            self.waits.append(token)
            return Decision()
        return Decision((), (Answer(token, REPLY),))

    def image_changed(self, delta: MetadataDelta, now: Instant) -> list[Decision]:
        assert self.is_loaded
        self.deleted += [topic.name for topic in delta.topics_deleted]
        return []

    def tick(self, now: Instant) -> list[Decision]:
        return []

    def deadline(self) -> Micros | None:
        return None

    def abandoned(self, token: object) -> None:
        self.waits.remove(token)

    def waiting(self) -> list[object]:
        return self.waits


class Stage:
    """A runtime with one shard, and the jobs and answers it gave."""

    def __init__(self) -> None:
        self.shards: list[WordShard] = []
        self.traces: list[str] = []
        self._last = 0
        self.runtime = CoordinatorRuntime(
            "__words",
            self._make,
            tickets=self._ticket,
            entropy=lambda count: bytes(range(count)),
            trace=lambda event, **_: self.traces.append(event),
        )

    def _make(self) -> WordShard:
        self.shards.append(WordShard())
        return self.shards[-1]

    def _ticket(self) -> Ticket:
        self._last += 1
        return Ticket(self._last)

    @property
    def shard(self) -> WordShard:
        return self.shards[-1]

    def elect(self, partition: ListPartition) -> None:
        self.runtime.elected(0, partition, NOW)
        self.load()

    def load(self) -> None:
        for _ in range(10_000):
            jobs, self.runtime.jobs = self.runtime.jobs, []
            for job in jobs:
                assert self.runtime.finished(job.ticket, job.job(), NOW)
            if self.runtime.deadline() is None and not self.runtime.jobs:
                return
            self.runtime.tick(NOW)
        raise AssertionError("the shard is never loaded")

    def decide(self, *token: object) -> ErrorCode:
        return self.runtime.decide(0, COMMAND, token, NOW)

    def turn_ends(self) -> list[object]:
        self.runtime.flush(NOW)
        answers, self.runtime.answers = self.runtime.answers, []
        return [answer.token for answer in answers]

    def refused(self) -> list[tuple[object, ErrorCode]]:
        refused, self.runtime.refused = self.runtime.refused, []
        return refused


@pytest.fixture
def stage() -> Stage:
    return Stage()


def put(key: bytes, value: bytes | None) -> tuple[object, ...]:
    return ("put", (key, value))


def test_the_decisions_of_a_turn_share_one_batch(stage: Stage) -> None:
    partition = ListPartition()
    stage.elect(partition)
    stage.decide(*put(b"a", b"1"))
    stage.decide(*put(b"b", b"2"))
    assert stage.shard.words == {b"a": b"1", b"b": b"2"}
    assert partition.batches == []
    assert stage.turn_ends() == [put(b"a", b"1"), put(b"b", b"2")]
    assert len(partition.batches) == 1
    assert stage.shard.replayed == [0, 1]


def test_an_answer_waits_until_what_it_rests_on_is_committed(stage: Stage) -> None:
    partition = ListPartition(commits_at_once=False)
    stage.elect(partition)
    stage.decide(*put(b"a", b"1"))
    assert stage.turn_ends() == []
    stage.decide("get")
    assert stage.turn_ends() == []
    for wake in partition.commit():
        wake(NOW)
    assert stage.turn_ends() == [put(b"a", b"1"), ("get",)]


def test_a_question_is_answered_at_once_when_nothing_is_pending(stage: Stage) -> None:
    stage.elect(ListPartition(commits_at_once=False))
    stage.decide("get")
    assert stage.turn_ends() == [("get",)]


def test_nobody_is_served_before_the_partition_is_replayed(stage: Stage) -> None:
    partition = ListPartition()
    partition.append(build_batch([(b"a", b"1", (), 1)]), NOW)
    stage.runtime.elected(0, partition, NOW)
    assert stage.decide("get") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.load()
    assert stage.decide("get") is ErrorCode.NONE
    assert stage.shard.words == {b"a": b"1"}


def test_a_new_shard_knows_what_the_old_one_wrote(stage: Stage) -> None:
    partition = ListPartition()
    stage.elect(partition)
    for number in range(300):
        stage.decide(*put(b"key-%d" % (number % 40), b"%d" % number if number % 7 else None))
        if number % 5 == 0:
            stage.turn_ends()
    stage.turn_ends()
    before = stage.shard.words
    stage.elect(partition)
    assert len(stage.shards) == 2
    assert stage.shard.words == before


def test_who_waits_when_leadership_is_lost_is_refused(stage: Stage) -> None:
    partition = ListPartition(commits_at_once=False)
    stage.elect(partition)
    stage.decide(*put(b"a", b"1"))
    stage.turn_ends()
    stage.decide("wait")
    partition.leader_epoch = None
    stage.runtime.check()
    assert stage.refused() == [
        (put(b"a", b"1"), ErrorCode.NOT_COORDINATOR),
        (("wait",), ErrorCode.NOT_COORDINATOR),
    ]
    assert stage.decide("get") is ErrorCode.NOT_COORDINATOR
    assert stage.turn_ends() == []


def test_an_append_that_is_refused_drops_the_shard_and_refuses_the_turn(stage: Stage) -> None:
    partition = ListPartition()
    stage.elect(partition)
    partition.refusal = Refused(ErrorCode.KAFKA_STORAGE_ERROR)
    stage.decide(*put(b"a", b"1"))
    stage.decide("get")
    assert stage.turn_ends() == []
    assert stage.refused() == [
        (put(b"a", b"1"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (("get",), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]
    assert stage.decide("get") is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_shard_whose_batch_was_refused_is_loaded_anew_with_what_is_in_the_log(stage: Stage) -> None:
    partition = ListPartition(batch_bytes_max=1_000)
    stage.elect(partition)
    stage.decide(*put(b"a", b"1"))
    assert stage.turn_ends() == [put(b"a", b"1")]
    partition.refusal = Refused(ErrorCode.MESSAGE_TOO_LARGE)
    stage.decide(*put(b"b", bytes(2_000)))
    assert stage.turn_ends() == []
    partition.refusal = None
    assert stage.runtime.deadline() == LATER.mono_us
    stage.runtime.tick(NOW)
    assert stage.decide("get") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.runtime.tick(LATER)
    stage.load()
    assert stage.decide(*put(b"c", b"3")) is ErrorCode.NONE
    assert stage.turn_ends() == [put(b"c", b"3")]
    assert stage.shard.words == {b"a": b"1", b"c": b"3"}


def write(stage: Stage, way: str) -> None:
    """Have something come to the end of the shard's log, in each way there is."""
    match way:
        case "batch":
            stage.decide(*put(b"b", b"2"))
        case "transaction":
            stage.decide("try", "proof", (b"k", b"2"))
        case "marker":
            end(stage, ControlType.COMMIT, "marker")


@pytest.mark.parametrize("way", ["batch", "transaction", "marker"])
@pytest.mark.parametrize("is_marker", [True, False])
def test_a_shard_whose_log_holds_what_it_did_not_write_is_loaded_anew(
    stage: Stage, way: str, *, is_marker: bool
) -> None:
    partition = ListPartition()
    stage.elect(partition)
    stage.decide(*put(b"a", b"1"))
    stage.turn_ends()
    if is_marker:
        partition.append_marker(Marker(ControlType.ABORT, 0), (9, 0), is_bumped=False, now=NOW)
    else:
        partition.append(build_batch([(b"foreign", b"1", (), 1)]), NOW)
    write(stage, way)
    assert stage.turn_ends() == []
    assert stage.decide("get") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.runtime.tick(LATER)
    stage.load()
    write(stage, way)
    assert len(stage.turn_ends()) == 1
    assert stage.shard.words[b"a"] == b"1"
    assert (b"foreign" in stage.shard.words) is not is_marker


def test_a_shard_whose_batch_was_refused_is_left_alone_once_another_leads(stage: Stage) -> None:
    partition = ListPartition()
    stage.elect(partition)
    partition.refusal = Refused(ErrorCode.KAFKA_STORAGE_ERROR)
    stage.decide(*put(b"a", b"1"))
    stage.turn_ends()
    partition.leader_epoch = LeaderEpoch(2)
    stage.runtime.tick(LATER)
    assert stage.decide("get") is ErrorCode.NOT_COORDINATOR
    assert stage.runtime.deadline() is None


def test_a_decision_that_no_batch_can_hold_is_split_and_a_smaller_one_is_not(stage: Stage) -> None:
    partition = ListPartition(batch_bytes_max=1_000)
    stage.elect(partition)
    stage.decide("put", *((b"k%d" % number, bytes(100)) for number in range(30)))
    assert len(stage.turn_ends()) == 1
    assert len(partition.batches) > 3
    assert all(len(batch) <= 1_000 for batch in partition.batches)
    assert len(partition.records()) == 30
    count = len(partition.batches)
    stage.decide(*put(b"x", bytes(700)))
    stage.decide("put", (b"y", bytes(300)), (b"z", bytes(300)))
    stage.turn_ends()
    assert [len(decode_records(batch)) for batch in partition.batches[count:]] == [1, 2]


def test_a_log_that_cannot_be_read_serves_nobody(stage: Stage) -> None:
    partition = ListPartition()
    partition.append(build_batch([(b"unreadable", b"", (), 1)]), NOW)
    stage.elect(partition)
    assert stage.decide("get") is ErrorCode.NOT_COORDINATOR
    assert "shard-unreadable" in stage.traces


def test_a_load_whose_file_was_closed_meanwhile_is_tried_again(stage: Stage) -> None:
    partition = ListPartition()
    partition.append(build_batch([(b"a", b"1", (), 1)]), NOW)
    stage.runtime.elected(0, partition, NOW)
    (job,) = stage.runtime.jobs
    stage.runtime.jobs.clear()
    assert stage.runtime.finished(
        job.ticket, StorageError("/data/t-0/0.log", "open", "the file was closed meanwhile"), NOW
    )
    stage.runtime.tick(LATER)
    stage.load()
    assert stage.decide("get") is ErrorCode.NONE
    assert stage.shard.words == {b"a": b"1"}


def test_a_job_of_an_earlier_leadership_is_not_taken_for_one_of_this(stage: Stage) -> None:
    partition = ListPartition()
    partition.append(build_batch([(b"old", b"1", (), 1)]), NOW)
    stage.runtime.elected(0, partition, NOW)
    (late,) = stage.runtime.jobs
    stage.runtime.jobs.clear()
    stage.elect(ListPartition())
    assert stage.runtime.finished(late.ticket, late.job(), NOW)
    stage.load()
    assert stage.shard.words == {}


def test_a_large_partition_is_replayed_in_slices(stage: Stage) -> None:
    partition = ListPartition()
    for base in range(0, 1_000, 100):
        partition.append(build_batch([(b"%d" % (base + number), b"v", (), 1) for number in range(100)]), NOW)
    stage.runtime.elected(0, partition, NOW)
    (job,) = stage.runtime.jobs
    stage.runtime.jobs.clear()
    stage.runtime.finished(job.ticket, job.job(), NOW)
    stage.runtime.tick(NOW)
    assert 0 < len(stage.shard.words) < 200
    assert stage.runtime.deadline() == 0
    stage.load()
    assert len(stage.shard.words) == 1_000


def test_topics_that_were_deleted_while_a_shard_was_loaded_are_told_to_it_then(stage: Stage) -> None:
    partition = ListPartition()
    partition.append(build_batch([(b"a", b"1", (), 1)]), NOW)
    stage.runtime.elected(0, partition, NOW)
    topic = TopicRecord(name="t", topic_id=Uuid(b"t" * 16))
    with_topic, _ = MetadataImage().apply([(Offset(0), topic)], LeaderEpoch(1))
    without, delta = with_topic.apply(
        [(Offset(1), RemoveTopicRecord(topic_id=topic.topic_id))], LeaderEpoch(1)
    )
    assert without.topics_by_name == {}
    stage.runtime.image_changed(delta, NOW)
    assert stage.shard.deleted == []
    stage.load()
    assert stage.shard.deleted == ["t"]
    stage.runtime.image_changed(delta, NOW)
    assert stage.shard.deleted == ["t", "t"]


def end(stage: Stage, kind: ControlType, token: str) -> ErrorCode:
    return stage.runtime.end_transaction(0, Marker(kind, 0), (7, 0), is_bumped=False, token=token, now=NOW)


@pytest.mark.parametrize(
    ("kind", "expected"), [(ControlType.COMMIT, {b"a": b"1", b"k": b"2"}), (ControlType.ABORT, {b"a": b"1"})]
)
def test_what_a_transaction_wrote_counts_once_its_marker_says_so(
    stage: Stage, kind: ControlType, expected: dict[bytes, bytes]
) -> None:
    partition = ListPartition()
    stage.elect(partition)
    stage.decide(*put(b"a", b"1"))
    stage.decide("try", "proof", (b"k", b"2"))
    assert stage.shard.words == {b"a": b"1"}
    assert end(stage, kind, "marker") is ErrorCode.NONE
    assert stage.turn_ends() == [put(b"a", b"1"), ("try", "proof", (b"k", b"2")), "marker"]
    assert stage.shard.words == expected
    assert stage.shard.replayed == [0, 1, 2]
    stage.elect(partition)
    assert stage.shard.words == expected


def test_what_the_log_refuses_of_a_transaction_leaves_the_shard_as_it_was(stage: Stage) -> None:
    stage.elect(ListPartition())
    stage.decide(*put(b"a", b"1"))
    stage.decide("try", "nothing", (b"k", b"2"))
    assert stage.turn_ends() == [put(b"a", b"1")]
    assert stage.refused() == [(("try", "nothing", (b"k", b"2")), ErrorCode.INVALID_TXN_STATE)]
    assert stage.shard.undecided == {}
    assert stage.decide("get") is ErrorCode.NONE


def test_a_marker_waits_until_it_is_committed_and_is_refused_by_a_shard_that_is_not_up_to_date(
    stage: Stage,
) -> None:
    partition = ListPartition(commits_at_once=False)
    partition.append(build_batch([(b"a", b"1", (), 1)]), NOW)
    stage.runtime.elected(0, partition, NOW)
    assert end(stage, ControlType.COMMIT, "marker") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.load()
    assert end(stage, ControlType.COMMIT, "marker") is ErrorCode.NONE
    assert stage.turn_ends() == []
    for wake in partition.commit():
        wake(NOW)
    assert stage.turn_ends() == ["marker"]
