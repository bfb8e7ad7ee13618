"""The coordinator runtime over a partition made of a list: loading, batching, parking, and the end of parked
requests when the partition is lost.
"""

import pytest

from sparklog.effects import FileSlice
from sparklog.errors import ErrorCode
from sparklog.model import LeaderEpoch, Offset, Uuid
from sparklog.record.batch import build_batch, decode_records
from sparklog.record.control import ControlType, Marker
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import RemoveTopicRecord, TopicRecord
from sparklog_server.outcome import Refused
from tests.coordinator.stage import LATER, NOW, ListPartition, Stage


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
    assert stage.shard.is_dropped
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
    """Append to the shard's log, in each possible way."""
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
    assert stage.decide("get") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.runtime.shards() == [0]  # a list of keys must not be taken for complete
    assert "coordinator-load-failed" in stage.traces
    partition.leader_epoch = None
    assert stage.decide("get") is ErrorCode.NOT_COORDINATOR
    assert stage.runtime.shards() == []


def test_a_log_in_which_the_next_window_is_not_found_serves_nobody(stage: Stage) -> None:
    class Broken(ListPartition):
        def read(self, start: Offset, limit: Offset, bytes_max: int) -> FileSlice | None:
            raise StorageError("d/log", "read", "no batch begins at byte 0", remedy="repair it")

    partition = Broken()
    partition.append(build_batch([(b"a", b"1", (), 1)]), NOW)
    stage.elect(partition)
    assert stage.decide("get") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "coordinator-load-failed" in stage.traces


def test_a_load_whose_file_was_closed_meanwhile_is_tried_again(stage: Stage) -> None:
    partition = ListPartition()
    partition.append(build_batch([(b"a", b"1", (), 1)]), NOW)
    stage.runtime.elected(0, partition, NOW)
    (job,) = stage.jobs()
    stage.finished(job, StorageError("/data/t-0/0.log", "open", "the file was closed meanwhile"))
    stage.runtime.tick(LATER)
    stage.load()
    assert stage.decide("get") is ErrorCode.NONE
    assert stage.shard.words == {b"a": b"1"}


def test_a_job_of_an_earlier_leadership_is_not_taken_for_one_of_this(stage: Stage) -> None:
    partition = ListPartition()
    partition.append(build_batch([(b"old", b"1", (), 1)]), NOW)
    stage.runtime.elected(0, partition, NOW)
    (late,) = stage.jobs()
    stage.elect(ListPartition())
    stage.finished(late, late.job())
    stage.load()
    assert stage.shard.words == {}


def test_a_large_partition_is_replayed_in_slices(stage: Stage) -> None:
    partition = ListPartition()
    for base in range(0, 1_000, 100):
        partition.append(build_batch([(b"%d" % (base + number), b"v", (), 1) for number in range(100)]), NOW)
    stage.runtime.elected(0, partition, NOW)
    (job,) = stage.jobs()
    stage.finished(job, job.job())
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
    with_topic, _ = MetadataImage().apply([(Offset(0), topic)])
    without, delta = with_topic.apply([(Offset(1), RemoveTopicRecord(topic_id=topic.topic_id))])
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
