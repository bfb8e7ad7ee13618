"""A coordinator runtime over a partition that is a list, and a shard that keeps the words it replays."""

from collections.abc import Callable

from sparklog.effects import FileSlice, Run
from sparklog.errors import DecodeError, ErrorCode
from sparklog.kernels import scan
from sparklog.model import Instant, LeaderEpoch, Micros, Millis, Offset
from sparklog.record.batch import decode_records, iterate_headers
from sparklog.record.control import Marker, build_marker
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog_server.agenda import Agenda
from sparklog_server.continuations import Continuations
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.runtime import CoordinatorRuntime
from sparklog_server.coordinator.shard import Answer, CoordinatorRecord, Decision, InTransaction
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.outcome import Refused

NOW = Instant(Micros(1_000_000), Millis(1_700_000_000_000))
LATER = Instant(Micros(2_000_000), Millis(1_700_000_001_000))
COMMAND = Command(HeartbeatRequest(group_id="g"), 4)
REPLY = HeartbeatResponse()


class Memory:
    """The bytes of a log, as a file that can be sliced."""

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

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for batch in self.batches for record in decode_records(batch)]


class WordShard:
    """A shard that stores words under keys. A command's token is the command: ("put", key, value), ("get",),
    or ("wait",).
    """

    def __init__(self) -> None:
        self.words: dict[bytes, bytes] = {}
        self.undecided: dict[int, list[tuple[bytes, bytes]]] = {}
        self.replayed: list[Offset] = []
        self.waits: list[object] = []
        self.is_loaded = self.is_dropped = False
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

    def dropped(self) -> None:
        self.is_dropped = True


class Stage:
    """A runtime with one shard, and its jobs and replies."""

    def __init__(self) -> None:
        self.shards: list[WordShard] = []
        self.traces: list[str] = []
        self.continuations = Continuations()
        self.runtime = CoordinatorRuntime(
            "__words",
            self._make,
            self.continuations,
            Agenda(),
            entropy=lambda count: bytes(range(count)),
            trace=lambda event, **_: self.traces.append(event),
        )

    def _make(self) -> WordShard:
        self.shards.append(WordShard())
        return self.shards[-1]

    def jobs(self) -> list[Run]:
        """The jobs requested since the last call."""
        return [effect for effect in self.continuations.take_effects() if isinstance(effect, Run)]

    def finished(self, job: Run, result: object) -> None:
        self.continuations.finished(job.ticket, result, NOW)

    @property
    def shard(self) -> WordShard:
        return self.shards[-1]

    def elect(self, partition: ListPartition) -> None:
        self.runtime.elected(0, partition, NOW)
        self.load()

    def load(self) -> None:
        for _ in range(10_000):
            for job in self.jobs():
                self.finished(job, job.job())
            if self.runtime.deadline() is None and not self.continuations.effects:
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
