"""A data directory: its identity, its partitions, and the next open."""

import json
from collections.abc import Sequence
from random import Random

import pytest

from sparklog.model import ZERO_UUID, LeaderEpoch, NodeId, Offset, TopicPartition
from sparklog_server.disk import ballast
from sparklog_server.disk.checkpoint import parse_offsets, parse_properties
from sparklog_server.disk.door import DirectoryInUse, OutOfDescriptors, StorageError
from sparklog_server.log.directory.log_dir import (
    DirectoryRefused,
    LogDir,
    Wanted,
    decode_uuid,
    encode_uuid,
    new_uuid,
    partition_of,
)
from sparklog_server.log.directory.names import future_name
from sparklog_server.simulation.disk import NO_SPACE, SimulatedDisk
from tests.log.logs import EPOCH, NOW, SMALL, T0, TOPIC_ID, batch, read_all, sync


def open_dir(
    disk: SimulatedDisk, *, node_id: int = 1, cluster_id: str | None = None, seed: int = 1
) -> LogDir:
    return LogDir.open(
        disk,
        "data",
        node_id=NodeId(node_id),
        cluster_id=cluster_id,
        entropy=Random(seed).randbytes,
        defaults=SMALL,
        now=NOW,
    )


def test_a_new_directory_is_formatted_and_known_again() -> None:
    disk = SimulatedDisk()
    first = open_dir(disk)
    meta = parse_properties(disk.read("data/meta.properties") or b"")
    assert meta == {
        "version": "1",
        "cluster.id": first.cluster_id,
        "node.id": "1",
        "directory.id": encode_uuid(first.directory_id),
    }
    first.close({}, NOW)
    again = open_dir(disk, seed=2)
    assert (again.cluster_id, again.directory_id, again.was_clean) == (
        first.cluster_id,
        first.directory_id,
        True,
    )


def test_a_directory_of_another_cluster_or_node_is_refused_by_name() -> None:
    disk = SimulatedDisk()
    open_dir(disk, cluster_id="ours").close({}, NOW)
    with pytest.raises(
        DirectoryRefused,
        match=r"data/meta\.properties: belongs to cluster ours, but this node is of cluster theirs",
    ):
        open_dir(disk, cluster_id="theirs")
    with pytest.raises(DirectoryRefused, match="belongs to node 1, but this is node 2"):
        open_dir(disk, node_id=2)
    assert open_dir(disk).cluster_id == "ours"  # a refused directory is unlocked


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version=9\n",
        b"version=1\nnode.id=1\n",
        b"nonsense",
        b"\xff",
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n",
    ],
)
def test_a_meta_file_that_is_not_one_is_refused(content: bytes) -> None:
    disk = SimulatedDisk()
    disk.make_directory("data")
    disk.write("data/meta.properties", content)
    with pytest.raises(DirectoryRefused):
        open_dir(disk)


def test_a_directory_in_use_is_refused_with_its_path() -> None:
    disk = SimulatedDisk()
    open_dir(disk)
    with pytest.raises(DirectoryInUse, match="data"):
        open_dir(disk)


def test_a_directory_without_an_id_of_its_own_is_given_one() -> None:
    disk = SimulatedDisk()
    disk.make_directory("data")
    disk.write("data/meta.properties", b"#Kafka\nversion=1\ncluster.id=c\nnode.id=1\n")
    directory_id = open_dir(disk).directory_id
    disk.restart()
    assert open_dir(disk, seed=9).directory_id == directory_id != ZERO_UUID


def test_partitions_are_found_again_with_their_topic_ids_and_watermarks() -> None:
    disk = SimulatedDisk()
    log_dir = open_dir(disk)
    other = TopicPartition("with-dashes-1", 12)
    for topic_partition in (T0, other):
        log = log_dir.create(topic_partition, TOPIC_ID, SMALL, NOW)
        for _ in range(50):
            log.append(batch(2), EPOCH, NOW)
    log_dir.broker_epoch = 17
    log_dir.close({T0: Offset(100), other: Offset(40)}, NOW)
    assert json.loads(disk.read("data/.kafka_cleanshutdown") or b"") == {"version": 0, "brokerEpoch": 17}
    assert parse_offsets(disk.read("data/recovery-point-offset-checkpoint") or b"") == {T0: 100, other: 100}
    assert (
        disk.read("data/t-0/partition.metadata") == f"version: 0\ntopic_id: {encode_uuid(TOPIC_ID)}".encode()
    )
    again = open_dir(disk)
    assert sorted(again.logs) == sorted([T0, other])
    assert again.high_watermarks == {T0: 100, other: 40}
    assert [log.topic_id for log in again.logs.values()] == [TOPIC_ID] * 2
    assert [log.log_end_offset for log in again.logs.values()] == [100, 100]


def test_the_epoch_of_the_former_life_is_known_after_a_clean_stop_only() -> None:
    disk = SimulatedDisk()
    for content, epoch in (
        (b'{"version":0,"brokerEpoch":17}', 17),
        (b"[]", -1),
        (b"{", -1),
        (b'{"version":0}', -1),
        (b'{"brokerEpoch":"1"}', -1),
    ):
        open_dir(disk).close({}, NOW)
        disk.write("data/.kafka_cleanshutdown", content)
        log_dir = open_dir(disk)
        assert (log_dir.was_clean, log_dir.previous_broker_epoch) == (True, epoch)
        disk.restart()
        assert open_dir(disk).previous_broker_epoch == -1
        disk.restart()


def test_a_killed_process_proves_its_epoch_within_the_boot_of_the_machine() -> None:
    disk = SimulatedDisk()
    open_dir(disk).registered(17)
    disk.restart()
    again = open_dir(disk)
    assert (again.was_clean, again.previous_broker_epoch) == (False, 17)
    disk.restart()
    open_dir(disk).failed()
    disk.restart()
    assert open_dir(disk).previous_broker_epoch == -1


def test_a_directory_that_failed_before_its_registration_claims_nothing() -> None:
    disk = SimulatedDisk()
    directory = open_dir(disk)
    directory.failed()
    directory.registers(TOPIC_ID)
    directory.registered(17)
    disk.restart()
    again = open_dir(disk)
    assert (again.previous_broker_epoch, again.unanswered_incarnation) == (-1, "")


def test_the_incarnation_of_a_process_without_an_answer_is_known_to_the_next_one() -> None:
    disk = SimulatedDisk()
    asking = open_dir(disk)
    asking.registers(TOPIC_ID)
    disk.restart()
    assert open_dir(disk).unanswered_incarnation == ""  # it has nothing to go on with: no epoch is proved
    disk.restart()
    open_dir(disk).registered(17)
    disk.restart()
    open_dir(disk).registers(TOPIC_ID)
    disk.restart()
    again = open_dir(disk)
    assert (again.previous_broker_epoch, again.unanswered_incarnation) == (17, encode_uuid(TOPIC_ID))
    again.registered(18)
    disk.restart()
    known = open_dir(disk)
    assert (known.previous_broker_epoch, known.unanswered_incarnation) == (18, "")


@pytest.mark.parametrize("seed", range(20))
def test_no_epoch_is_proved_after_a_loss_of_power(seed: int) -> None:
    disk = SimulatedDisk()
    open_dir(disk).registered(17)
    disk.crash(Random(seed))
    assert open_dir(disk).previous_broker_epoch == -1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":1,"bootId":"boot-0","brokerEpoch":17}'])
def test_a_boot_file_that_cannot_be_read_proves_nothing(content: bytes) -> None:
    disk = SimulatedDisk()
    open_dir(disk).registered(17)
    disk.write("data/.sparklog-boot", content)
    disk.restart()
    assert open_dir(disk).previous_broker_epoch == -1


def test_the_clean_mark_is_gone_as_soon_as_the_directory_is_open() -> None:
    disk = SimulatedDisk()
    open_dir(disk).close({}, NOW)
    assert open_dir(disk).was_clean
    disk.crash(Random(3))
    assert not open_dir(disk).was_clean


def test_the_metadata_log_and_strangers_are_not_partitions() -> None:
    disk = SimulatedDisk()
    for name in (
        "__cluster_metadata-0",
        "lost+found",
        "t-01",
        "t-x",
        "t-1.0123456789abcdef0123456789abcdef-delete",
        "-3",
    ):
        disk.make_directory(f"data/{name}")
    log_dir = open_dir(disk)
    assert log_dir.logs == {}
    assert "t-1.0123456789abcdef0123456789abcdef-delete" not in disk.list(
        "data"
    )  # an interrupted removal is completed
    assert "__cluster_metadata-0" in disk.list("data")


@pytest.mark.parametrize("epoch", [-1, 0, 3])
def test_the_first_epoch_of_a_log_that_a_job_begins_is_on_disk_before_its_first_record(epoch: int) -> None:
    disk = SimulatedDisk()
    log_dir = open_dir(disk)
    (log,) = log_dir.create_job([Wanted(T0, TOPIC_ID, SMALL, LeaderEpoch(epoch))], NOW)()
    log_dir.adopt(log)
    log.assign_epoch(LeaderEpoch(max(epoch, 0)), Offset(0))
    log.append(batch(), LeaderEpoch(max(epoch, 0)), NOW)
    files, _ = log.begin_sync()
    assert any("leader-epoch-checkpoint" in file.path for file in files) == (epoch < 0)
    disk.sync(files)
    disk.crash(Random(1))
    assert open_dir(disk).logs[T0].epochs.entries == [(max(epoch, 0), 0)]


def test_a_deleted_partition_is_renamed_by_one_job_and_removed_by_the_next() -> None:
    disk = SimulatedDisk()
    log_dir = open_dir(disk)
    log = log_dir.create(T0, TOPIC_ID, SMALL, NOW)
    log.append(batch(), EPOCH, NOW)
    found = log.read(Offset(0), Offset(1), 100_000, at_least_one=True)
    assert found is not None
    found.file.retain()
    removal = log_dir.delete_job([T0])()
    (doomed,) = [name for name in disk.list("data") if name.startswith("t-0")]
    assert doomed.endswith("-delete")
    assert len(doomed) == len("t-0.") + 32 + len("-delete")
    removal()
    assert not [name for name in disk.list("data") if name.startswith("t-0")]
    assert len(found.read()) == found.length  # a slice in flight is still whole
    found.file.release()
    with pytest.raises(StorageError, match="closed"):
        found.read()
    again = log_dir.create(T0, TOPIC_ID, SMALL, NOW)
    assert again.log_end_offset == 0


def test_a_long_topic_name_can_be_deleted() -> None:
    disk = SimulatedDisk()
    log_dir = open_dir(disk)
    long = TopicPartition("x" * 249, 0)
    log_dir.create(long, TOPIC_ID, SMALL, NOW)
    log_dir.delete_job([long])()
    assert max(len(name) for name in disk.list("data")) == 255


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"],
)
def test_a_damaged_checkpoint_costs_a_scan_and_nothing_else(name: str) -> None:
    disk = SimulatedDisk()
    log_dir = open_dir(disk)
    log = log_dir.create(T0, TOPIC_ID, SMALL, NOW)
    for _ in range(100):
        log.append(batch(), EPOCH, NOW)
    sync(disk, log)
    log_dir.checkpoints.write({T0: Offset(100)})
    places = read_all(log)
    disk.restart()
    disk.write(f"data/{name}", b"0\n7\nt 0")
    assert read_all(open_dir(disk).logs[T0]) == places


@pytest.mark.parametrize("seed", range(30))
def test_a_whole_directory_survives_power_cuts(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk()
    log_dir = open_dir(disk)
    partitions = [TopicPartition("t", index) for index in range(4)]
    durable = dict.fromkeys(partitions, 0)
    for life in range(4):
        for topic_partition in partitions:
            if topic_partition not in log_dir.logs:
                assert durable[topic_partition] == 0, "a partition with durable records is gone"
                log_dir.create(topic_partition, TOPIC_ID, SMALL, NOW)
            log = log_dir.logs[topic_partition]
            assert log.log_end_offset >= durable[topic_partition]
            assert len(read_all(log)) == log.log_end_offset
            if durable[topic_partition]:
                assert log.topic_id == TOPIC_ID
            elif log.topic_id == ZERO_UUID:
                log_dir.identify(topic_partition, TOPIC_ID)
            for _ in range(random.randrange(60)):
                log.append(batch(), LeaderEpoch(life), NOW)
            if random.random() < 0.6:
                sync(disk, log)
                durable[topic_partition] = log.log_end_offset
            if random.random() < 0.3:
                log_dir.checkpoints.write(durable)
        if random.random() < 0.3:
            log_dir.close(durable, NOW)
            durable = {topic_partition: log.log_end_offset for topic_partition, log in log_dir.logs.items()}
        disk.crash(random)
        log_dir = open_dir(disk)


def test_a_failing_disk_leaves_no_clean_mark() -> None:
    disk = SimulatedDisk()
    log_dir = open_dir(disk)
    log_dir.create(T0, TOPIC_ID, SMALL, NOW).append(batch(), EPOCH, NOW)
    disk.fault = lambda call, _: "Input/output error" if call == "sync" else None
    with pytest.raises(StorageError):
        log_dir.close({}, NOW)
    disk.fault = None
    disk.restart()
    assert not open_dir(disk).was_clean


def test_uuids_are_written_as_kafka_writes_them_and_never_begin_with_a_dash() -> None:
    random = Random(1)
    texts = [encode_uuid(new_uuid(random.randbytes)) for _ in range(500)]
    assert all(len(text) == 22 and text[0] != "-" for text in texts)
    assert [encode_uuid(decode_uuid(text)) for text in texts] == texts
    for wrong in ("", "short", "x" * 30):
        with pytest.raises(ValueError, match=r"UUID|base64|padding|characters"):
            decode_uuid(wrong)


def test_directory_names_tell_partitions_from_everything_else() -> None:
    assert partition_of("a-b-3") == TopicPartition("a-b", 3)
    assert [partition_of(name) for name in ("a", "-1", "a-", "a-01", "a-1.x-delete", "a-٣")] == [None] * 6


def test_a_killed_process_finds_its_unsynced_partitions_whole() -> None:
    disk = SimulatedDisk()
    log_dir = open_dir(disk)
    log = log_dir.create(T0, TOPIC_ID, SMALL, NOW)
    for _ in range(100):
        log.append(batch(), EPOCH, NOW)
    places = read_all(log)
    disk.restart()
    again = open_dir(disk).logs[T0]
    assert (again.topic_id, read_all(again)) == (TOPIC_ID, places)


def test_a_sealed_segment_asks_for_a_sync_until_it_has_one() -> None:
    disk = SimulatedDisk()
    log = open_dir(disk).create(T0, TOPIC_ID, SMALL, NOW)
    log.append(batch(), EPOCH, NOW)
    assert not log.has_sealed_unsynced
    for _ in range(60):
        log.append(batch(), EPOCH, NOW)
    assert log.has_sealed_unsynced
    sync(disk, log)
    assert not log.has_sealed_unsynced


def test_a_log_that_is_set_aside_without_a_descriptor_for_the_sync_keeps_its_name_and_the_ballast() -> None:
    class Scarce(SimulatedDisk):
        def rename_all(self, moves: Sequence[tuple[str, str]]) -> None:
            super().rename_all(moves)
            raise OutOfDescriptors("data", "sync", "Too many open files")

    disk = Scarce()
    log_dir = open_dir(disk)
    log_dir.create(T0, TOPIC_ID, SMALL, NOW)
    with pytest.raises(OutOfDescriptors):
        log_dir.set_aside(T0)
    assert disk.list(f"data/{T0}")
    assert disk.size(f"data/{ballast.FILE_NAME}") == ballast.BALLAST_BYTES


@pytest.mark.parametrize("is_ballast_there", [True, False])
def test_a_copy_that_a_full_disk_lets_neither_open_nor_have_its_name_back_is_tried_again(
    *, is_ballast_there: bool
) -> None:
    disk = SimulatedDisk()
    log_dir = open_dir(disk)
    log = log_dir.create(T0, TOPIC_ID, SMALL, NOW)
    log.append(batch(), EPOCH, NOW)
    sync(disk, log)
    log_dir.checkpoints.write({})
    disk.restart()
    disk.rename(f"data/{T0}", f"data/{future_name(T0, bytes(16))}")
    log_dir = open_dir(disk)
    if not is_ballast_there:
        disk.remove(f"data/{ballast.FILE_NAME}")
    (future,) = log_dir.futures[T0]
    refused = {"open": iter([NO_SPACE]), "rename": iter([NO_SPACE])}
    disk.fault = lambda call, path: (
        next(refused.get(call, iter(())), None)
        if path.startswith(f"data/{T0}") and "-future" not in path
        else None
    )
    with pytest.raises(StorageError):
        log_dir.promote(T0, future, SMALL, NOW)
    assert [next(left, None) for left in refused.values()] == [None, None]
    disk.fault = None
    (again,) = log_dir.futures[T0]
    assert (again == future) is is_ballast_there
    log_dir.promote(T0, again, SMALL, NOW)
    assert log_dir.logs[T0].log_end_offset == 1
