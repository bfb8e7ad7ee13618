"""A scripted life of one data directory, and what it may look like after the power was cut at any call of
the disk's door.

    History       opens, appends, transactions, syncs, rolls, truncates, DeleteRecords, retention,
       │          compaction, deletes, stops
       ├────────► Witness, one for each partition: what was written, promised and taken away
       ▼
    PowerCut at the n-th changing call ──► disk.crash(seed) ──► `reopened` ──► Witness.agrees

The script depends on its seed alone, so every run is the same up to the cut.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from msgspec.structs import replace

from sparklog.effects import Steps, take_all
from sparklog.model import ZERO_UUID, LeaderEpoch, NodeId, Offset, TopicPartition, Uuid
from sparklog.record.batch import read_header
from sparklog.record.compression import Codec
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog_server.disk.checkpoint import parse_offsets, render_offsets
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.compacting import compact
from tests.log.logs import NOW, START_MS, Place, batch, truncate
from tests.log.witness import Witness

CHANGING = frozenset(("append", "mkdir", "remove", "rename", "replace", "sync", "truncate"))
CLUSTER_ID = "the-cluster-of-the-test"
NODE = NodeId(1)
SETTINGS = LogConfig(segment_bytes=1500, index_interval_bytes=150, retention_ms=-1)
COMPACTED = TopicPartition("k", 0)
CLEANER_CHECKPOINT = "data/cleaner-offset-checkpoint"
_CODECS = (Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD)


class PowerCut(BaseException):
    """The machine stops here: nothing that runs on it may catch this."""


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


def _take(job: Callable[[], Steps[None]]) -> None:
    take_all(job())


def reopened(disk: SimulatedDisk) -> LogDir:
    """The data directory, opened once more with the settings of the history."""
    return LogDir.open(
        disk, "data", node_id=NODE, cluster_id=CLUSTER_ID, entropy=Random(1).randbytes, defaults=SETTINGS, now=NOW  # noqa: E501
    )  # fmt: skip


class History:
    """The script. `live` once, in one or several lives of the process; cut short by a PowerCut from the
    disk.
    """

    def __init__(self, disk: SimulatedDisk, seed: int) -> None:
        self.disk = disk
        self.random = Random(seed)
        self.witnesses: dict[TopicPartition, Witness] = {}
        self.absent: dict[TopicPartition, None] = {}
        self.log_dir: LogDir | None = None
        self._jobs: list[Callable[[], None]] = []

    def live(self, *, steps: int = 18) -> None:
        """Three lives: one ends cleanly, one is killed, one ends cleanly."""
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
        """The directory, and how far its compacted log was clean, as the scheduler of compaction reads it."""
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
                self._jobs.append(partial(_take, self.log_dir.checkpoints.recovery_points_job()))
            else:
                self._jobs.append(self.log_dir.checkpoints.job(self._high_watermarks()))
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
        """Compaction, or DeleteRecords and retention, below what is durable and stable."""
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
                self.log_dir.checkpoints.write(self._high_watermarks())
                witness.start_kept = witness.start
        log.settings = replace(SETTINGS, retention_bytes=self.random.choice((0, 1500, 4000)))
        witness.start = max(witness.start, stable)  # it may come that far
        job = log.retire(stable, NOW)
        log.settings = SETTINGS
        self.log_dir.checkpoints.write(self._high_watermarks())
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
        """A sync as the thread beside the loop does it: early or late between `begin_sync` and `synced`,
        with other work going on.
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
        """As a follower does: the checkpoint must not vouch for what is written anew, so it is lowered
        first.
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
        self.log_dir.checkpoints.write(self._high_watermarks(), {topic_partition: offset})
        assert not self.log_dir.checkpoints.is_vouched(topic_partition, offset)
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
        if self.log_dir.checkpoints.is_vouched(topic_partition):
            self.log_dir.checkpoints.write(self._high_watermarks())  # else its directory would be missed
        removal()

    def _create(self, topic_partition: TopicPartition) -> None:
        assert self.log_dir is not None
        if self.log_dir.checkpoints.is_vouched(topic_partition):
            self.log_dir.checkpoints.write(self._high_watermarks())
        topic_id = Uuid(self.random.randbytes(16))
        witness = self.witnesses[topic_partition] = Witness(
            topic_id, is_compacted=topic_partition == COMPACTED
        )
        self.log_dir.create(topic_partition, topic_id, SETTINGS, NOW)
        witness.is_certain = True
        self.absent.pop(topic_partition, None)

    def die(self) -> None:
        """The process is gone, and all that only it knew."""
        self.log_dir = None
        self._jobs.clear()
        for witness in self.witnesses.values():
            if witness.attempt is not None:
                witness.attempt = bytes(witness.attempt)

    def check(self) -> LogDir:
        """Open what a crash left and hold it against the witnesses."""
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
        """After a crash: append, and have it promised."""
        for witness, log in self._pairs():
            witness.is_certain = True
            assert self.log_dir is not None
            if log.topic_id == ZERO_UUID:
                self.log_dir.identify(log.topic_partition, witness.topic_id)
            self._append(witness, log)
            self._sync(witness, log)

    def stop(self) -> None:
        """A clean stop, after which snapshots tell of all producers and the next open agrees."""
        assert self.log_dir is not None
        directories = {topic_partition: log.directory for topic_partition, log in self.log_dir.logs.items()}
        self.log_dir.close(self._high_watermarks(), NOW)
        for topic_partition, witness in self.witnesses.items():
            witness.kept = max((place.next_offset for place in witness.places), default=0)
            witness.producers_agree(self.disk, directories[topic_partition])
        self.check()
        assert self.log_dir.was_clean
