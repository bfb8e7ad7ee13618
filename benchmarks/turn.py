"""The cost of one request inside the broker: microseconds and instructions of a Produce, Fetch,
OffsetCommit and Heartbeat.

No sockets and no threads: whole frames are put into the broker's buffer, and a turn is the daemon's
calls for them, `receive` and then `deadline`. The data lie in memory (/dev/shm, where there is one) and
nothing waits for a sync, so the figures are those of Python, the kernels and the system calls of the log.
Instructions are counted by Linux `perf`, if it is installed, in user space, less those of a run without
requests: they are nearly the same on a machine that has other things to do.

    python -m benchmarks.turn
"""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import harness, raw
from sparklog.effects import Chunk, Effect, FileSlice, Reply, Run, Sync
from sparklog.model import Instant, Micros, Millis, SessionId
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from sparklog.wire.schema import Message
from sparklog_server.broker.broker import Broker
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.os_disk import OsDisk

REQUESTS = 20_000
FRAMES_PER_TURN = (1, 16)
SESSION = SessionId(1)
TOPIC = "turn"
VALUE_BYTES = 100
STEP_US = 20
BOUNDS = {("produce", 16): "<= 14.5", ("fetch", 16): "<= 12", ("offset commit", 16): "<= 20"}


class Driver:
    """A broker without a daemon: its syncs and jobs are done at once, and its time goes on by a little
    each turn.
    """

    def __init__(self, directory: Path, more: Mapping[str, str] | None = None) -> None:
        settings = BrokerSettings.of(
            {
                "log.dirs": str(directory / "data"),
                "listeners": "PLAINTEXT://127.0.0.1:9092",
                "sparklog.ack.flush": "never",
                "offsets.topic.num.partitions": "50",
                "group.initial.rebalance.delay.ms": "0",
                **(more or {}),
            }
        )
        (directory / "data").mkdir()
        self._now = Instant(Micros(1_000_000), Millis(int(time.time() * 1000)))
        self._disk = OsDisk()
        self.broker = Broker.open(
            settings, self._disk, entropy=os.urandom, trace=lambda *_, **__: None, now=self._now
        )
        self.replies: list[list[Chunk]] = []
        self._carry_out(self.broker.start(self._now))
        self.pass_time(1_000)
        assert self.broker.is_ready
        self._carry_out(self.broker.connected(SESSION, "PLAINTEXT", "127.0.0.1:4000", self._now))

    def pass_time(self, milliseconds: int) -> None:
        """Let the broker do all that is due until then."""
        end_us = self._now.mono_us + milliseconds * 1000
        while (deadline_us := self.broker.deadline()) is not None and deadline_us <= end_us:
            self._advance(max(0, deadline_us - self._now.mono_us))
            self._carry_out(self.broker.tick(self._now))
        self._advance(end_us - self._now.mono_us)

    def turn(self, frames: bytes) -> None:
        """Do the daemon's work for these received bytes."""
        broker, size = self.broker, len(frames)
        broker.buffer(SESSION)[:size] = frames
        self._advance(STEP_US)
        self._carry_out(broker.receive(SESSION, size, self._now))
        deadline_us = broker.deadline()
        if deadline_us is not None and deadline_us <= self._now.mono_us:
            self._carry_out(broker.tick(self._now))

    def ask(self, request: Message, version: int, reply: type[Message]) -> Message:
        """One request and its answer."""
        self.replies.clear()
        self.turn(frame_of(request, version))
        self.pass_time(100)
        (chunks,) = self.replies
        return decode_reply(reply, version, b"".join(map(_bytes_of, chunks))[4:])[1]

    def _advance(self, microseconds: int) -> None:
        self._now = Instant(Micros(self._now.mono_us + microseconds), self._now.wall_ms)

    def _carry_out(self, effects: list[Effect]) -> None:
        replies = self.replies
        for effect in effects:
            match effect:
                case Reply(chunks=chunks):
                    replies.append(chunks)
                case Sync(ticket=ticket, files=files):
                    self._disk.sync(files)
                    self._carry_out(self.broker.finished(ticket, None, self._now))
                case Run(ticket=ticket):
                    self._carry_out(self.broker.finished(ticket, effect.work(), self._now))
                case _:
                    raise RuntimeError(f"unexpected: {effect!r}")


def frame_of(request: Message, version: int) -> bytes:
    """A whole request frame."""
    return b"".join(map(_bytes_of, encode_request(request, version, 7, "turn")))


def _bytes_of(chunk: Chunk) -> bytes:
    return chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk)


def create_topic(driver: Driver) -> None:
    """The topic that all is about."""
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    answer = driver.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7, CreateTopicsResponse)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0


def join_group(driver: Driver) -> str:
    """A group of one member in its first generation; the id of the member."""
    driver.ask(FindCoordinatorRequest(key="g"), 3, FindCoordinatorResponse)
    driver.pass_time(1_000)
    joining = JoinGroupRequest(
        "g", 45_000, 300_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]
    )
    joined = driver.ask(joining, 3, JoinGroupResponse)
    assert isinstance(joined, JoinGroupResponse)
    assert joined.error_code == 0
    driver.turn(
        frame_of(
            SyncGroupRequest(
                "g", 1, joined.member_id, assignments=[SyncGroupRequestAssignment(joined.member_id, b"all")]
            ),
            3,
        )
    )
    return joined.member_id


def produce(driver: Driver) -> bytes:
    """One record of 100 bytes, acks=1."""
    create_topic(driver)
    return raw.produce_request(TOPIC, value_bytes=VALUE_BYTES)


def fetch(driver: Driver) -> bytes:
    """From the last record but one, as a consumer that keeps up asks."""
    create_topic(driver)
    for _ in range(100):
        driver.turn(raw.produce_request(TOPIC, value_bytes=VALUE_BYTES))
    part = FetchPartition(partition=0, fetch_offset=98, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[part])],
    )
    frame = frame_of(request, 12)
    answer = driver.ask(request, 12, FetchResponse)
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].records
    return frame


def offset_commit(driver: Driver) -> bytes:
    """One partition, by a member of a group."""
    create_topic(driver)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, 1_000)])
    return frame_of(OffsetCommitRequest("g", 1, join_group(driver), topics=[topic]), 8)


def heartbeat(driver: Driver) -> bytes:
    """Of a member of a group."""
    return frame_of(HeartbeatRequest("g", 1, join_group(driver)), 4)


KINDS: dict[str, Callable[[Driver], bytes]] = {
    "produce": produce,
    "fetch": fetch,
    "offset commit": offset_commit,
    "heartbeat": heartbeat,
}


def drive(kind: str, frames_per_turn: int, requests: int) -> float:
    """Microseconds of processor time per request, in this process."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="sparklog-turn-", dir=memory if memory.is_dir() else None
    ) as directory:
        driver = Driver(Path(directory))
        frames = KINDS[kind](driver) * frames_per_turn
        turn, replies = driver.turn, driver.replies
        for _ in range(200):
            turn(frames)
        size = sum(map(len, replies[-1]))
        replies.clear()
        gc.collect()
        # as the daemon does: else one full collection, which falls into some runs by chance, adds 3 µs to a
        # request
        gc.freeze()
        started_s = time.process_time()
        for _ in range(requests // frames_per_turn):
            turn(frames)
        elapsed_s = time.process_time() - started_s
        assert len(replies) == requests // frames_per_turn * frames_per_turn
        assert not replies or abs(sum(map(len, replies[-1])) - size) < 64, "answers of another kind"
        return elapsed_s / max(requests, 1) * 1e6


def measured(kind: str, frames_per_turn: int, requests: int) -> tuple[float, float]:
    """(microseconds, instructions of the whole process or NaN) of `drive` in a process of its own."""
    arguments: Sequence[str] = (
        sys.executable,
        "-m",
        "benchmarks.turn",
        "--drive",
        kind,
        str(frames_per_turn),
        str(requests),
    )
    perf = shutil.which("perf")
    if perf is not None:
        arguments = (perf, "stat", "-x", ",", "-e", "instructions:u", *arguments)
    done = subprocess.run(
        arguments,
        check=True,
        capture_output=True,
        text=True,
        env={**harness.ENVIRONMENT, "PYTHONHASHSEED": "0"},
    )
    counted = [line for line in done.stderr.splitlines() if "instructions" in line]
    count = counted[0].split(",")[0] if counted else ""
    return float(done.stdout), float(count) if count.isdigit() else float("nan")


def main() -> None:
    """Measure, and print the table."""
    options = harness.options(__doc__)
    figures = harness.Figures("turn")
    for _ in range(options.repeats):
        for kind in KINDS:
            for frames_per_turn in FRAMES_PER_TURN:
                _, without = measured(kind, frames_per_turn, 0)
                microseconds, instructions = measured(kind, frames_per_turn, REQUESTS)
                what = f"{kind}, {frames_per_turn} in a turn"
                figures.add(
                    what, "µs", "sparklog", microseconds, bound=BOUNDS.get((kind, frames_per_turn), "")
                )
                if instructions == instructions and without == without:
                    figures.add(f"{what}: instructions", "1", "sparklog", (instructions - without) / REQUESTS)
    figures.note("processor time of one process; sparklog.ack.flush=never, the data in memory")
    figures.report(options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        print(drive(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        main()
