"""A broker whose jobs end when the test says so; syncs, and what writes down recovery points alone, end at
once. Time passes when told.
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
from sparklog_server.log.recovery_points import write_recovery_points
from sparklog_server.raft.recovery_point import write as write_recovery_point
from sparklog_server.simulation.disk import SimulatedDisk
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, fetch, fetched, produce, produced

SESSION = SessionId(1)


class ByHand:
    """One broker and one client. `held` has the jobs that were begun and have not ended, oldest first."""

    def __init__(self, **given: str) -> None:
        self.settings = BrokerSettings.of(
            {"log.dirs": "/data", "listeners": "PLAINTEXT://127.0.0.1:9092", **given}
        )
        self.disk = SimulatedDisk()
        self.now = Instant(Micros(0), Millis(1_700_000_000_000))
        self.trace: list[str] = []
        self.start()

    def start(self) -> None:
        """Begin a life of the process."""
        self.held: list[Run] = []
        self._replies: list[bytes] = []
        self.broker = Broker(self.settings, self.disk, entropy=Random(1).randbytes, trace=self._note)
        self._carry_out(self.broker.start(self.now))
        assert self.broker.is_ready
        self.broker.connected(SESSION, "PLAINTEXT", "client:1", self.now)

    def power_cut(self, seed: int) -> None:
        """End this life as a power cut does, and begin the next."""
        self.disk.crash(Random(seed))
        self.start()
        self.wait(1000)  # what was recovered is synced, and shown

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
        """Let a job that was begun do its work and end."""
        self.held.remove(run)
        try:
            result = run.work()
        except StorageError as error:
            result = error
        self.end(run, result)

    def end(self, run: Run, result: object) -> None:
        """Tell what a job has come to."""
        self._carry_out(self.broker.finished(run.ticket, result, self.now))

    def run_all(self) -> None:
        """Let every job end, and those that follow."""
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
        """Send a request, and give its answer."""
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
        """How many answers nobody has looked at yet."""
        return len(self._replies)

    def answer(self, version: int, reply: type[Message]) -> Message:
        """The answer to what was sent last."""
        return decode_reply(reply, version, self._replies.pop()[4:])[1]

    def create(self, topic: str, partitions: int = 1) -> None:
        """Have a topic created."""
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)],
            timeout_ms=1000,
        )
        answer = self.ask(request, 7, CreateTopicsResponse)
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0

    def delete(self, topic: str) -> None:
        """Have a topic deleted."""
        answer = self.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 4, DeleteTopicsResponse)
        assert isinstance(answer, DeleteTopicsResponse)
        assert answer.responses[0].error_code == 0

    def send(self, topic: str, value: bytes, *, partition: int = 0, key: bytes | None = None) -> int:
        """Produce one record with acks=all; gives the error code."""
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
