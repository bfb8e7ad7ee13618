"""A scripted life of one data directory, and what it may look like after the power was cut at any call of the disk's door.

    History: opens, appends, syncs, rolls, truncates, deletes, stops ──► Witness per partition: what was written and promised
                               │
                          PowerCut at the n-th changing call ──► disk.crash(seed) ──► `reopened` ──► Witness.agrees

The script depends on its seed alone, so every run is the same up to the cut.
"""

from collections.abc import Callable
from random import Random

from sparklog.kernels import scan
from sparklog.model import ZERO_UUID, LeaderEpoch, NodeId, Offset, TopicPartition, Uuid
from sparklog.record.batch import read_header
from sparklog.record.compression import Codec
from sparklog_server.log.log_dir import LogDir
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.producer_state import ProducerState
from sparklog_server.log.settings import LogSettings
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import NOW, START_MS, Place, batch, read_all
from tests.log.test_crashes import agrees_with_a_full_scan

CHANGING = frozenset(("append", "mkdir", "remove", "rename", "replace", "sync", "truncate"))
CLUSTER_ID = "the-cluster-of-the-test"
NODE = NodeId(1)
SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=150)
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


class Witness:
    """What was written to one partition, and how much of it was promised.

    `attempt` is a batch whose append did not return; `kept` is how much of `places` must still be there. `is_certain` is false while the
    partition is being made or removed.
    """

    def __init__(self, topic_id: Uuid) -> None:
        self.topic_id = topic_id
        self.places: list[Place] = []
        self.attempt: memoryview | None = None
        self.kept = 0
        self.is_certain = False
        self.sequences: dict[int, int] = {}
        self.epoch = 0

    def promised(self, recovery_point: int) -> None:
        """Everything below the recovery point is durable."""
        self.kept = max(self.kept, sum(place.next_offset <= recovery_point for place in self.places))

    def cut(self, end_offset: int) -> None:
        """The log was truncated."""
        self.places = [place for place in self.places if place.next_offset <= end_offset]
        self.kept = min(self.kept, len(self.places))
        self.know_sequences()

    def know_sequences(self) -> None:
        """The next sequence of each producer, by the batches that are there."""
        headers = [read_header(place.content) for place in self.places]
        self.sequences = {header.producer_id: header.last_sequence + 1 for header in headers}
        self.epoch = max(self.epoch, *(header.leader_epoch for header in headers), 0)

    def agrees(self, log: PartitionLog) -> None:
        """Whether an opened log holds what it must and nothing else; from then on what it holds is what was written."""
        found = read_all(log)
        written = list(self.places)
        if self.attempt is not None and len(found) > len(written):
            header = read_header(self.attempt)
            written.append(Place(header.base_offset, header.next_offset, bytes(self.attempt)))
        assert len(found) >= self.kept, f"{self.kept - len(found)} batches that were promised are gone"
        assert found == written[: len(found)], "not a prefix of what was written"
        ends = [0, *(place.next_offset for place in found)]
        assert [place.base_offset for place in found] == ends[:-1], "a hole"
        assert log.log_end_offset == ends[-1]
        assert log.recovery_point <= log.log_end_offset
        if found and self.kept:
            assert log.topic_id == self.topic_id
        assert log.topic_id in (self.topic_id, ZERO_UUID)
        agrees_with_a_full_scan(log, found)
        self.places, self.attempt = found, None
        self.know_sequences()

    def producers_agree(self, disk: SimulatedDisk, directory: str) -> None:
        """Whether the snapshot of a clean stop says what every batch of the log would."""
        end_offset = self.places[-1].next_offset if self.places else 0
        content = disk.read(f"{directory}/{end_offset:020d}.snapshot")
        if end_offset == 0:
            return
        assert content is not None, "no snapshot at the end of the log"
        assert known(content) == known(self._replayed())

    def _replayed(self) -> bytes:
        state = ProducerState()
        for place in self.places:
            for _, header in scan.headers(memoryview(place.content), True):
                if header[9] >= 0:
                    state.appended(header, header[0], header[8])
        return state.render()


def known(snapshot: bytes) -> dict[int, tuple[int, int, list[object]]]:
    """What a snapshot says of each producer: epoch, time, and its last batch."""
    producers = ProducerState.parse(snapshot).producers
    return {key: (value.epoch, value.last_timestamp, list(value.batches[-1:])) for key, value in producers.items()}


def reopened(disk: SimulatedDisk) -> LogDir:
    """The data directory, opened once more with the settings of the history."""
    return LogDir.open(
        disk, "data", node_id=NODE, cluster_id=CLUSTER_ID, entropy=Random(1).randbytes, defaults=SETTINGS, now=NOW
    )  # fmt: skip


class History:
    """The script. `live` once, in one or several lives of the process; cut short by a PowerCut from the disk."""

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
            log_dir = self.log_dir = reopened(self.disk)
            for witness, log in self._pairs():
                witness.agrees(log)
            if not log_dir.logs:
                self._create(TopicPartition("a", 0))
                self._create(TopicPartition("b-c", 1))
            for _ in range(steps):
                self._step()
            self._jobs.clear()
            if life == 1:
                self.disk.restart()
            else:
                log_dir.close(self._high_watermarks(), NOW)

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
            self._jobs.append(self.log_dir.checkpoint_job(self._high_watermarks()))
            if self.random.random() < 0.7:
                self._jobs.pop(0)()
        elif fate < 0.97:
            self._truncate(topic_partition)
        else:
            self._delete(topic_partition)
            self._create(topic_partition)

    def _append(self, witness: Witness, log: PartitionLog) -> None:
        random = self.random
        for _ in range(random.randrange(1, 4)):
            count, producer_id = random.randrange(1, 4), random.choice((-1, 5, 6))
            sent = batch(
                count,
                value=b"%d" % len(witness.places) + random.randbytes(random.randrange(150)),
                timestamp=START_MS + random.randrange(1000),
                producer_id=producer_id,
                sequence=witness.sequences.get(producer_id, 0),
                codec=random.choice(_CODECS),
            )
            witness.attempt = sent
            if random.random() < 0.85:
                result = log.append(sent, LeaderEpoch(witness.epoch), NOW)
            else:
                own = bytearray(sent)
                witness.attempt = memoryview(own)
                result = log.append_own(own, LeaderEpoch(witness.epoch), NOW)
            witness.places.append(Place(result.base_offset, result.last_offset + 1, bytes(witness.attempt)))
            witness.attempt = None
            if producer_id >= 0:
                witness.sequences[producer_id] = witness.sequences.get(producer_id, 0) + count

    def _sync(self, witness: Witness, log: PartitionLog) -> None:
        """A sync as the thread beside the loop does it: early or late between `begin_sync` and `synced`, with other work going on."""
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
        """As a follower does: the checkpoint must not vouch for what is written anew, so it is lowered first."""
        assert self.log_dir is not None
        witness, log = self.witnesses[topic_partition], self.log_dir.logs[topic_partition]
        ends = [0, *(place.next_offset for place in witness.places)][-15:]
        offset = Offset(self.random.choice(ends))
        witness.kept = sum(place.next_offset <= offset for place in witness.places[: witness.kept])
        self._jobs.clear()
        self.log_dir.checkpoint(self._high_watermarks(), {topic_partition: offset})
        assert not self.log_dir.is_vouched(topic_partition, offset)
        log.truncate_to(offset)
        witness.cut(log.log_end_offset)

    def _delete(self, topic_partition: TopicPartition) -> None:
        assert self.log_dir is not None
        witness = self.witnesses[topic_partition]
        witness.is_certain = False
        self._jobs.clear()
        removal = self.log_dir.delete_job([topic_partition])()
        self.absent[topic_partition] = None
        del self.witnesses[topic_partition]
        removal()

    def _create(self, topic_partition: TopicPartition) -> None:
        assert self.log_dir is not None
        if self.log_dir.is_vouched(topic_partition):
            self.log_dir.checkpoint(self._high_watermarks())
        topic_id = Uuid(self.random.randbytes(16))
        witness = self.witnesses[topic_partition] = Witness(topic_id)
        self.log_dir.create(topic_partition, topic_id, SETTINGS, NOW)
        witness.is_certain = True
        self.absent.pop(topic_partition, None)

    def check(self) -> LogDir:
        """Open what a crash left and hold it against the witnesses."""
        log_dir = self.log_dir = reopened(self.disk)
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
            witness.kept = len(witness.places)
            witness.producers_agree(self.disk, directories[topic_partition])
        self.check()
        assert self.log_dir.was_clean
