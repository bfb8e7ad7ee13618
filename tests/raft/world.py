"""A quorum of one on a disk that can lose power; syncs happen when a test says so."""

from random import Random

from sparklog.effects import Halt, Run, Sync
from sparklog.model import Instant, Micros, Millis, NodeId, Uuid
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, Feature
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.quorum import Quorum
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.features import SUPPORTED
from sparklog_server.simulation.disk import SimulatedDisk

NOW = Instant(Micros(0), Millis(1_700_000_000_000))
DIRECTORY = Uuid(b"D" * 16)
LOG = "/data/__cluster_metadata-0"


def topic(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
    )


def untold(_event: str, **_fields: object) -> None:
    """Discard an event."""


class World:
    """One disk and the successive processes of one node on it.

    `effects` are those not carried out yet, `replies` the replies by token, and `told` the events of the
    trace.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        capacity_bytes: int | None = None,
        given: dict[str, str] | None = None,
        disk: SimulatedDisk | None = None,
    ) -> None:
        self.random = Random(seed)
        self.disk = disk or SimulatedDisk(capacity_bytes=capacity_bytes)
        self.settings = BrokerSettings.of({"log.dirs": "/data", **(given or {})})
        self.now = NOW
        self.told: list[str] = []
        self.replies: dict[object, Message] = {}
        self.halts: list[str] = []
        self.open()

    def open(self) -> None:
        """Start a process."""
        self.sync_count = 0
        self.continuations = Continuations()
        self.effects = self.continuations.effects
        self.quorum = Quorum.open(
            self.disk,
            self.settings,
            DIRECTORY,
            "a-cluster",
            self.continuations,
            entropy=self.random.randbytes,
            trace=self._trace,
            now=self.now,
        )

    def propose(self, command: Message, token: object) -> None:
        def decided(reply: Message, now: Instant) -> None:
            self.replies[token] = reply

        self.quorum.propose(command, decided, "User:test", self.now)
        self._collect()

    def sync(self) -> int:
        """Carry out the pending syncs and jobs, and return the number of syncs."""
        due = self.continuations.take_effects()
        for run in (effect for effect in due if isinstance(effect, Run)):
            failed_job: object = None
            try:
                run.work()
            except StorageError as failed:
                failed_job = failed
            self.continuations.finished(run.ticket, failed_job, self.now)
        syncs = [effect for effect in due if isinstance(effect, Sync)]
        self.halts += [effect.reason for effect in due if isinstance(effect, Halt)]
        self.sync_count += len(syncs)
        for sync in syncs:
            error = None
            try:
                self.disk.sync(sync.files)
            except StorageError as failed:
                error = failed
            self.continuations.finished(sync.ticket, error, self.now)
        self._collect()
        return len(syncs)

    def settle(self) -> int:
        """Sync until no effect is pending, and return the number of syncs."""
        count = 0
        while self.effects:
            count += self.sync()
        return count

    def wait(self, ms: int) -> None:
        """Let time pass, and call the quorum's `tick` if it is due."""
        self.now = Instant(Micros(self.now.mono_us + ms * 1000), Millis(self.now.wall_ms + ms))
        deadline = self.quorum.deadline_us
        if deadline is not None and deadline <= self.now.mono_us:
            self.quorum.tick(self.now)
        self.settle()

    def stop(self) -> None:
        """Stop the process cleanly."""
        self.settle()
        assert self.quorum.is_quiet
        self.quorum.close(self.now)
        self.disk.restart()

    def join(self, life: bytes = b"L") -> None:
        """Register the broker of this node and unfence it."""
        registration = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="a-cluster",
            incarnation_id=life * 16,
            features=[Feature(name, *levels) for name, levels in SUPPORTED.items()],
            log_dirs=[DIRECTORY],
        )
        self.propose(registration, "registered")
        self.settle()
        epoch = self.replies["registered"].broker_epoch
        seen = self.quorum.image.brokers[NodeId(1)].registered_at
        self.propose(
            BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=seen), "unfenced"
        )
        self.settle()

    def crash(self) -> None:
        """Cut the power and start another process."""
        self.disk.crash(self.random)
        self.disk.restart()
        self.open()

    def _trace(self, event: str, **_fields: object) -> None:
        self.told.append(event)

    def _collect(self) -> None:
        self.quorum.take_deltas()
        for then, reply in self.quorum.take_committed():
            then(reply, self.now)
