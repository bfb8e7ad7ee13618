"""A broker whose jobs end when the test says so; syncs, and jobs that only write recovery points, end at
once. Time passes only by calls of the test.
"""

from random import Random

from sparklog.effects import Effect, FileSlice, Reply, Run, Sync
from sparklog.model import Instant, Micros, Millis, SessionId
from sparklog.record.batch import build_batch
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.broker import Broker
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.door import StorageError
from sparklog_server.log.directory.checkpoints import write_recovery_points
from sparklog_server.raft.recovery_point import write as write_recovery_point
from sparklog_server.simulation.disk import SimulatedDisk
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, fetch, fetched, produce, produced

SESSION = SessionId(1)


class ByHand:
    """One broker and one client. `held` has the jobs in flight, oldest first."""

    def __init__(self, **given: str) -> None:
        self.settings = BrokerSettings.of(
            {"log.dirs": "/data", "listeners": "PLAINTEXT://127.0.0.1:9092", **given}
        )
        self.disk = SimulatedDisk()
        self.now = Instant(Micros(0), Millis(1_700_000_000_000))
        self.trace: list[str] = []
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.held: list[Run] = []
        self._replies: list[bytes] = []
        self.broker = Broker.open(
            self.settings, self.disk, entropy=Random(1).randbytes, trace=self._note, now=self.now
        )
        self._carry_out(self.broker.start(self.now))
        assert self.broker.is_ready
        self.broker.connected(SESSION, "PLAINTEXT", "client:1", self.now)

    def power_cut(self, seed: int) -> None:
        """Cut the power, and start the next process."""
        self.disk.crash(Random(seed))
        self.start()
        self.wait(1000)  # the recovered records are synced and served

    # -- time and jobs

    def wait(self, ms: int) -> None:
        """Let time pass, one deadline after the other."""
        end_us = self.now.mono_us + ms * 1000
        while (deadline := self.broker.deadline()) is not None and deadline <= end_us:
            self._pass_until(max(deadline, self.now.mono_us))
            self._carry_out(self.broker.tick(self.now))
        self._pass_until(Micros(end_us))

    def _pass_until(self, mono_us: int) -> None:
        self.now = Instant(Micros(mono_us), Millis(1_700_000_000_000 + mono_us // 1000))

    def run(self, run: Run) -> None:
        """Run a job and end it."""
        self.held.remove(run)
        try:
            result = run.work()
        except StorageError as error:
            result = error
        self.end(run, result)

    def end(self, run: Run, result: object) -> None:
        """Report the result of a job to the broker."""
        self._carry_out(self.broker.finished(run.ticket, result, self.now))

    def run_all(self) -> None:
        """Let every job end, and the jobs that follow."""
        while self.held:
            self.run(self.held[0])
            self.wait(0)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Sync(ticket, files, _):
                    self.disk.sync(files)
                    self._carry_out(self.broker.finished(ticket, None, self.now))
                case Run():
                    self.held.append(effect)
                    if getattr(effect.job, "func", None) in (write_recovery_point, write_recovery_points):
                        self.run(effect)
                case Reply(_, chunks):
                    self._replies.append(
                        b"".join(
                            chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in chunks
                        )
                    )
                case _:
                    raise AssertionError(effect)

    def _note(self, event: str, **fields: object) -> None:
        self.trace.append(" ".join((event, *(f"{name}={value}" for name, value in fields.items()))))

    # -- the client

    def ask(self, request: Message, version: int, reply: type[Message]) -> Message:
        """Send a request, and return its response."""
        self.begin(request, version)
        return self.answer(version, reply)

    def begin(self, request: Message, version: int) -> None:
        """Send a request."""
        frame = b"".join(bytes(chunk) for chunk in encode_request(request, version, 1, "by hand"))  # type: ignore[arg-type]
        room = self.broker.buffer(SESSION)
        while frame:
            size = min(len(room), len(frame))
            room[:size] = frame[:size]
            frame = frame[size:]
            self._carry_out(self.broker.receive(SESSION, size, self.now))
            room = self.broker.buffer(SESSION)
        self.wait(20)

    @property
    def answers(self) -> int:
        """The number of responses that the test has not read yet."""
        return len(self._replies)

    def answer(self, version: int, reply: type[Message]) -> Message:
        """The response to the last request."""
        return decode_reply(reply, version, self._replies.pop()[4:])[1]

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic."""
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)],
            timeout_ms=1000,
        )
        answer = self.ask(request, 7, CreateTopicsResponse)
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        answer = self.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 4, DeleteTopicsResponse)
        assert isinstance(answer, DeleteTopicsResponse)
        assert answer.responses[0].error_code == 0

    def send(self, topic: str, value: bytes, *, partition: int = 0, key: bytes | None = None) -> int:
        """Produce one record with acks=all; returns the error code."""
        batch = bytes(build_batch([(key, value, (), self.now.wall_ms)]))
        return produced(
            self.ask(
                produce(topic, batch, acks=ACKS_ALL, partition=partition), PRODUCE_BY_NAME, ProduceResponse
            )
        )[0]

    def read(self, topic: str, *, partition: int = 0) -> tuple[int, list[bytes]]:
        """The error code and all values of a partition."""
        return fetched(
            self.ask(fetch(topic, 0, partition=partition, max_wait_ms=0), FETCH_BY_NAME, FetchResponse)
        )
