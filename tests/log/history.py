"""A scripted history of one data directory, and the states in which a power cut at any call of the disk may
leave it.

    History: opens, appends, transactions, syncs, rolls, truncates, DeleteRecords, retention, compaction,
             deletes, stops
        │  ──► Witness per partition: the records written, guaranteed and removed
        ▼
    PowerCut at the n-th changing call ──► disk.crash(seed) ──► `reopened` ──► Witness.agrees

The script depends on its seed alone, so every run is the same up to the cut.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from msgspec.structs import replace

from sparklog.effects import Steps, take_all
from sparklog.kernels import scan
from sparklog.model import ZERO_UUID, LeaderEpoch, NodeId, Offset, TopicPartition, Uuid
from sparklog.record.batch import Record, decode_records, read_header
from sparklog.record.compression import Codec
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog_server.disk.checkpoint import parse_offsets, render_offsets
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.log_dir import LogDir
from sparklog_server.log.ongoing_transactions import marker_of
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.producer_state import ProducerState
from sparklog_server.log.txn_index import AbortedTxn
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.compacting import compact
from tests.log.logs import NOW, START_MS, Place, batch, read_all, truncate
from tests.log.test_crashes import agrees_with_a_full_scan

CHANGING = frozenset(("append", "mkdir", "remove", "rename", "replace", "sync", "truncate"))
CLUSTER_ID = "the-cluster-of-the-test"
NODE = NodeId(1)
SETTINGS = LogConfig(segment_bytes=1500, index_interval_bytes=150, retention_ms=-1)
COMPACTED = TopicPartition("k", 0)
CLEANER_CHECKPOINT = "data/cleaner-offset-checkpoint"
_CODECS = (Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD)


class PowerCut(BaseException):
    """The process ends here: no code that runs in it may catch this."""


class Fuse:
    """A fault that counts the changing calls and cuts the power before the one with index `at`."""

    def __init__(self, at: int | None = None) -> None:
        self.count = 0
        self.at = at

    def __call__(self, call: str, path: str) -> None:
        if call in CHANGING:
            if self.count == self.at:
                raise PowerCut(f"{call} {path}")
            self.count += 1


class Witness:
    """The records written to one partition, and those of them that must survive.

    `attempt` is a batch whose append did not return. All records below `kept` must still exist, except those
    below `start`, which were deleted; the deletion is durable up to `start_kept`, the least log start offset.
    `places` has every batch as it was written, though compaction may have removed records of those below
    `compacted`. `is_certain` is false while the partition is being created or removed.
    """

    def __init__(self, topic_id: Uuid, *, is_compacted: bool = False) -> None:
        self.topic_id = topic_id
        self.is_compacted = is_compacted
        self.places: list[Place] = []
        self.attempt: memoryview | bytes | None = None
        self.kept = 0
        self.start = 0
        self.start_kept = 0
        self.compacted = 0
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTxn] = []
        self.is_certain = False
        self.sequences: dict[int, int] = {}
        self.epoch = 0

    def promised(self, recovery_point: int) -> None:
        """All records below the recovery point are durable."""
        self.kept = max(
            self.kept, *(place.next_offset for place in self.places if place.next_offset <= recovery_point), 0
        )

    def cut(self, end_offset: int) -> None:
        """The log was truncated."""
        self.places = [place for place in self.places if place.next_offset <= end_offset]
        self.kept = min(self.kept, end_offset)
        self.know()

    def know(self) -> None:
        """The next sequence of each producer, and the transactions, after the written batches."""
        self.sequences, self.open, self.aborted = {}, {}, []
        for place in self.places:
            self.note(place)

    def note(self, place: Place) -> None:
        """One more batch."""
        header = read_header(place.content)
        self.epoch = max(self.epoch, header.leader_epoch)
        producer_id = header.producer_id
        if header.is_control:
            first = self.open.pop(producer_id, None)
            marker = marker_of(place.content)
            assert marker is not None
            if first is not None and marker.type is ControlType.ABORT:
                stable = min(self.open.values(), default=place.next_offset)
                self.aborted.append(AbortedTxn(producer_id, first, place.base_offset, stable))
        elif producer_id >= 0:
            self.sequences[producer_id] = header.last_sequence + 1
            if header.is_transactional:
                self.open.setdefault(producer_id, place.base_offset)

    def next_sequence(self, log: PartitionLog, producer_id: int) -> int:
        """The next sequence of a producer. Recovery has no sequence of a producer whose records were deleted,
        as in Kafka: it begins anew.
        """
        headers = (read_header(place.content) for place in self.places if place.next_offset > self.start)
        if any(header.producer_id == producer_id and not header.is_control for header in headers):
            return self.sequences.get(producer_id, 0)
        known = log.producers.producers.get(producer_id)
        return known.batches[-1][1] + 1 if known is not None and known.batches else 0

    def agrees(self, log: PartitionLog) -> None:
        """Check that an opened log has the records that it must have and no others; from then on its records
        are the written ones.
        """
        found = read_all(log)
        if self.attempt is not None and log.log_end_offset > (
            self.places[-1].next_offset if self.places else 0
        ):
            header = read_header(self.attempt)
            self.places.append(Place(header.base_offset, header.next_offset, bytes(self.attempt)))
        start, end = log.log_start_offset, log.log_end_offset
        assert self.start_kept <= start <= self.start, "the log starts where nobody said"
        assert end >= self.kept, f"what was promised in [{end}, {self.kept}) is gone"
        assert log.recovery_point <= end
        assert end in (0, start, *(place.next_offset for place in self.places)), (
            "ends with no batch that was written"
        )
        self.places = [place for place in self.places if place.next_offset <= end]
        written = [place for place in self.places if place.next_offset > start]
        if self.is_compacted:
            self._compacted_agrees(found, written)
        else:
            assert found == written, "not what was written"
        ends = [start, *(place.next_offset for place in found)]
        assert end == ends[-1]
        if found and self.kept:
            assert log.topic_id == self.topic_id
        assert log.topic_id in (self.topic_id, ZERO_UUID)
        agrees_with_a_full_scan(log, found, by_time=not self.is_compacted)
        self.start, self.attempt = start, None
        self.know()
        self._transactions_agree(log, found)

    def _compacted_agrees(self, found: list[Place], written: list[Place]) -> None:
        """No record exists that was not written; a missing one has a successor, or was aborted."""
        before, after = _records_of(written), _records_of(found)
        assert all(before.get(offset) == record for offset, record in after.items()), (
            "a record that nobody wrote"
        )
        aborted = {
            record.offset
            for place in written
            for one in self.aborted_in(written)
            if one.first_offset <= place.base_offset < one.last_offset
            and read_header(place.content).producer_id == one.producer_id
            for record in decode_records(place.content)
        }
        newest = {
            record.key: offset
            for offset, record in before.items()
            if offset < self.compacted and offset not in aborted
        }
        for offset, record in before.items():
            is_gone = offset not in after
            assert not is_gone or offset in aborted or newest.get(record.key, -1) > offset, (
                f"{offset} is gone, though nothing follows it"
            )
            assert not is_gone or offset < self.compacted, f"{offset} is gone, and nobody compacted so far"

    def aborted_in(self, written: list[Place]) -> list[AbortedTxn]:
        """The aborted transactions, if these were all batches."""
        other = Witness(self.topic_id)
        for place in written:
            other.note(place)
        return other.aborted

    def _transactions_agree(self, log: PartitionLog, found: list[Place]) -> None:
        end = log.log_end_offset
        told = log.aborted_transactions(log.log_start_offset, end)
        left = [(place.base_offset, read_header(place.content)) for place in found]
        due = [
            one
            for one in self.aborted
            if any(
                one.first_offset <= base < one.last_offset and header.producer_id == one.producer_id
                for base, header in left
            )
        ]
        written = {one.last_offset: one for one in self.aborted}
        for one in told:
            # A replay after compaction, retention or DeleteRecords does not see the beginning of a
            # transaction if that was removed, as in Kafka: a reader gets no record of it there.
            whole = written[one.last_offset]
            assert one._replace(first_offset=whole.first_offset) == whole
            gone = range(whole.first_offset, one.first_offset)
            assert not [
                base for base, header in left if base in gone and header.producer_id == one.producer_id
            ]
        assert [one.last_offset for one in told] == sorted(one.last_offset for one in told)
        assert all(one.last_offset in {other.last_offset for other in told} for one in due)
        assert log.last_stable_offset(end) == max(min(self.open.values(), default=end), self.start)

    def producers_agree(self, disk: SimulatedDisk, directory: str) -> None:
        """Whether the snapshot of a clean stop equals a replay of all batches of the log."""
        end_offset = self.places[-1].next_offset if self.places else 0
        content = disk.read(f"{directory}/{end_offset:020d}.snapshot")
        if end_offset == 0:
            return
        assert content is not None, "no snapshot at the end of the log"
        told, replayed = known(content), known(self._replayed())
        if self.start or self.is_compacted:
            # A producer whose batches were deleted may be forgotten.
            last = {
                read_header(place.content).producer_id: place.base_offset
                for place in self.places
                if not _is_control(place)
            }
            told, replayed = (
                {
                    key: value
                    for key, value in some.items()
                    if last.get(key, -1) >= self.start and not self.is_compacted
                }
                for some in (told, replayed)
            )
        assert told == replayed

    def _replayed(self) -> bytes:
        state = ProducerState()
        for place in self.places:
            for _, header in scan.headers(memoryview(place.content), True):
                if header.producer_id >= 0:
                    state.appended(header, header.base_offset, header.max_timestamp, header.max_timestamp)
        return state.render()


def _take(job: Callable[[], Steps[None]]) -> None:
    take_all(job())


def _is_control(place: Place) -> bool:
    return read_header(place.content).is_control


def _records_of(places: list[Place]) -> dict[int, Record]:
    """The records of data, by offset."""
    return {record.offset: record for place in places for record in decode_records(place.content)}


def known(snapshot: bytes) -> dict[int, tuple[int, list[object]]]:
    """The state of each producer in a snapshot: epoch, sequences and offsets of its last batch. Batches do
    not contain the time of their append.
    """
    producers = ProducerState.parse(snapshot).producers
    return {
        key: (value.epoch, [batch[:4] for batch in value.batches[-1:]]) for key, value in producers.items()
    }


def reopened(disk: SimulatedDisk) -> LogDir:
    """The data directory, opened once more with the settings of the history."""
    return LogDir.open(
        disk, "data", node_id=NODE, cluster_id=CLUSTER_ID, entropy=Random(1).randbytes, defaults=SETTINGS, now=NOW  # noqa: E501
    )  # fmt: skip


class History:
    """The script. Call `live` once, for one or several processes; a PowerCut from the disk ends it early."""

    def __init__(self, disk: SimulatedDisk, seed: int) -> None:
        self.disk = disk
        self.random = Random(seed)
        self.witnesses: dict[TopicPartition, Witness] = {}
        self.absent: dict[TopicPartition, None] = {}
        self.log_dir: LogDir | None = None
        self._jobs: list[Callable[[], None]] = []

    def live(self, *, steps: int = 18) -> None:
        """Three processes: one ends cleanly, one is killed, one ends cleanly."""
        for life in range(3):
            log_dir = self._open()
            for witness, log in self._pairs():
                witness.agrees(log)
            if not log_dir.logs:
                self._create(TopicPartition("a", 0))
                self._create(TopicPartition("b-c", 1))
                self._create(COMPACTED)
            for _ in range(steps):
                self._step()
            self._jobs.clear()
            if life == 1:
                self.disk.restart()
            else:
                log_dir.close(self._high_watermarks(), NOW)

    def _open(self) -> LogDir:
        """The directory, and the clean offset of its compacted log, as the scheduler of compaction
        reads it.
        """
        self.log_dir = reopened(self.disk)
        assert not self.log_dir.damaged, (
            f"damaged by no more than a crash: {[str(one.error) for one in self.log_dir.damaged.values()]}"
        )
        content, log = self.disk.read(CLEANER_CHECKPOINT), self.log_dir.logs.get(COMPACTED)
        if content is not None and log is not None:
            clean_to = parse_offsets(content).get(COMPACTED, Offset(0))
            assert clean_to <= log.log_end_offset, "clean beyond what is there"
            log.first_dirty_offset = max(clean_to, log.log_start_offset)
        return self.log_dir

    def _pairs(self) -> list[tuple[Witness, PartitionLog]]:
        assert self.log_dir is not None
        return [(self.witnesses[topic_partition], log) for topic_partition, log in self.log_dir.logs.items()]

    def _high_watermarks(self) -> dict[TopicPartition, Offset]:
        assert self.log_dir is not None
        return {topic_partition: log.recovery_point for topic_partition, log in self.log_dir.logs.items()}

    def _step(self) -> None:
        assert self.log_dir is not None
        topic_partition = self.random.choice(list(self.log_dir.logs))
        witness, log = self.witnesses[topic_partition], self.log_dir.logs[topic_partition]
        fate = self.random.random()
        if fate < 0.60:
            self._append(witness, log)
        elif fate < 0.80:
            self._sync(witness, log)
        elif fate < 0.87:
            witness.epoch += 1
            log.assign_epoch(LeaderEpoch(witness.epoch), log.log_end_offset)
        elif fate < 0.92:
            if len(self.witnesses[topic_partition].places) % 3 == 0:
                self._jobs.append(partial(_take, self.log_dir.recovery_points_job()))
            else:
                self._jobs.append(self.log_dir.checkpoint_job(self._high_watermarks()))
            if self.random.random() < 0.7:
                self._jobs.pop(0)()
        elif fate < 0.95 and not witness.is_compacted:
            self._truncate(topic_partition)
        elif fate < 0.985:
            self._forget(witness, log)
        elif not witness.is_compacted:
            self._delete(topic_partition)
            self._create(topic_partition)

    def _forget(self, witness: Witness, log: PartitionLog) -> None:
        """Compaction, or DeleteRecords and retention, below the durable and stable offset."""
        assert self.log_dir is not None
        stable = log.last_stable_offset(log.recovery_point)
        if witness.is_compacted:
            witness.compacted = max(witness.compacted, stable)
            if compact(self.disk, log, high_watermark=log.recovery_point):
                self.disk.write(CLEANER_CHECKPOINT, render_offsets({COMPACTED: log.first_dirty_offset}))
            return
        self._jobs.clear()
        ends = [place.next_offset for place in witness.places if place.next_offset <= stable]
        if ends and self.random.random() < 0.7:
            witness.start = max(witness.start, self.random.choice(ends))
            log.move_log_start(Offset(witness.start))
            if self.random.random() < 0.7:
                self.log_dir.checkpoint(self._high_watermarks())
                witness.start_kept = witness.start
        log.settings = replace(SETTINGS, retention_bytes=self.random.choice((0, 1500, 4000)))
        witness.start = max(witness.start, stable)  # it may reach this offset
        job = log.retire(stable, NOW)
        log.settings = SETTINGS
        self.log_dir.checkpoint(self._high_watermarks())
        witness.start = witness.start_kept = log.log_start_offset
        if job is not None:
            job()()

    def _append(self, witness: Witness, log: PartitionLog) -> None:
        random = self.random
        for _ in range(random.randrange(1, 4)):
            count, producer_id = random.randrange(1, 4), random.choice((-1, 5, 6))
            if producer_id in witness.open and random.random() < 0.4:
                kind = random.choice((ControlType.ABORT, ControlType.ABORT, ControlType.COMMIT))
                sent = memoryview(
                    build_marker(
                        Marker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=START_MS
                    )
                )
            else:
                sent = batch(
                    count,
                    value=b"%d" % len(witness.places) + random.randbytes(random.randrange(150)),
                    timestamp=START_MS + random.randrange(1000),
                    producer_id=producer_id,
                    sequence=witness.next_sequence(log, producer_id),
                    codec=random.choice(_CODECS),
                    key=b"%d" % random.randrange(4),
                    is_transactional=producer_id in witness.open
                    or (producer_id >= 0 and random.random() < 0.3),
                )
            witness.attempt = sent
            if random.random() < 0.85 and not read_header(sent).is_control:
                result = log.append(sent, LeaderEpoch(witness.epoch), NOW)
            else:
                own = bytearray(sent)
                witness.attempt = memoryview(own)
                result = log.append_own(own, LeaderEpoch(witness.epoch), NOW)
            witness.places.append(Place(result.base_offset, result.last_offset + 1, bytes(witness.attempt)))
            witness.note(witness.places[-1])
            witness.attempt = None

    def _sync(self, witness: Witness, log: PartitionLog) -> None:
        """A sync as by the sync thread: early or late between `begin_sync` and `synced`, with other
        operations in between.
        """
        files, end_offset = log.begin_sync()
        is_early = self.random.random() < 0.5
        if is_early:
            self.disk.sync(files)
        if self.random.random() < 0.5:
            self._append(witness, log)
        if not is_early:
            self.disk.sync(files)
        log.synced(end_offset)
        witness.promised(log.recovery_point)

    def _truncate(self, topic_partition: TopicPartition) -> None:
        """Truncate as a follower does: the checkpoint must not cover the new records, so it is
        lowered first.
        """
        assert self.log_dir is not None
        witness, log = self.witnesses[topic_partition], self.log_dir.logs[topic_partition]
        ends = [
            witness.start,
            *(place.next_offset for place in witness.places if place.next_offset > witness.start),
        ][-15:]
        offset = Offset(self.random.choice(ends))
        witness.kept = min(witness.kept, offset)
        self._jobs.clear()
        self.log_dir.checkpoint(self._high_watermarks(), {topic_partition: offset})
        assert not self.log_dir.is_vouched(topic_partition, offset)
        truncate(log, offset)
        witness.cut(log.log_end_offset)

    def _delete(self, topic_partition: TopicPartition) -> None:
        assert self.log_dir is not None
        witness = self.witnesses[topic_partition]
        witness.is_certain = False
        self._jobs.clear()
        removal = self.log_dir.delete_job([topic_partition])()
        self.absent[topic_partition] = None
        del self.witnesses[topic_partition]
        if self.log_dir.is_vouched(topic_partition):
            self.log_dir.checkpoint(self._high_watermarks())  # else its directory would be missed
        removal()

    def _create(self, topic_partition: TopicPartition) -> None:
        assert self.log_dir is not None
        if self.log_dir.is_vouched(topic_partition):
            self.log_dir.checkpoint(self._high_watermarks())
        topic_id = Uuid(self.random.randbytes(16))
        witness = self.witnesses[topic_partition] = Witness(
            topic_id, is_compacted=topic_partition == COMPACTED
        )
        self.log_dir.create(topic_partition, topic_id, SETTINGS, NOW)
        witness.is_certain = True
        self.absent.pop(topic_partition, None)

    def die(self) -> None:
        """The process has ended, with all state that was only in memory."""
        self.log_dir = None
        self._jobs.clear()
        for witness in self.witnesses.values():
            if witness.attempt is not None:
                witness.attempt = bytes(witness.attempt)

    def check(self) -> LogDir:
        """Open the directory after a crash and compare it with the witnesses."""
        log_dir = self._open()
        for topic_partition, log in log_dir.logs.items():
            assert topic_partition in self.witnesses, f"{topic_partition} was deleted"
            self.witnesses[topic_partition].agrees(log)
        for topic_partition, witness in list(self.witnesses.items()):
            if topic_partition not in log_dir.logs:
                assert not witness.is_certain, f"{topic_partition} is gone"
                del self.witnesses[topic_partition]
        for topic_partition, offset in log_dir.high_watermarks.items():
            if topic_partition in log_dir.logs:
                assert offset <= log_dir.logs[topic_partition].log_end_offset
        return log_dir

    def live_on(self) -> None:
        """After a crash: append, and make the records durable."""
        for witness, log in self._pairs():
            witness.is_certain = True
            assert self.log_dir is not None
            if log.topic_id == ZERO_UUID:
                self.log_dir.identify(log.topic_partition, witness.topic_id)
            self._append(witness, log)
            self._sync(witness, log)

    def stop(self) -> None:
        """A clean stop, after which snapshots have all producers and the next open agrees."""
        assert self.log_dir is not None
        directories = {topic_partition: log.directory for topic_partition, log in self.log_dir.logs.items()}
        self.log_dir.close(self._high_watermarks(), NOW)
        for topic_partition, witness in self.witnesses.items():
            witness.kept = max((place.next_offset for place in witness.places), default=0)
            witness.producers_agree(self.disk, directories[topic_partition])
        self.check()
        assert self.log_dir.was_clean
