"""A quorum of one on a disk that can lose power; syncs happen when a test says so."""

from random import Random

from sparklog.effects import Effect, Halt, Sync
from sparklog.model import Instant, Micros, Millis, NodeId, Ticket, Uuid
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, Feature
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.quorum import Quorum
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.door import StorageError
from sparklog_server.simulation.disk import SimulatedDisk

NOW = Instant(Micros(0), Millis(1_700_000_000_000))
DIRECTORY = Uuid(b"D" * 16)
LOG = "/data/__cluster_metadata-0"


def topic(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])


def untold(_event: str, **_fields: object) -> None:
    """Nobody reads the trace here."""


class World:
    """One disk and the lives of one node on it. `effects` are those not carried out yet, `replies` what was told, by token."""

    def __init__(self, seed: int = 0, *, capacity_bytes: int | None = None) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(capacity_bytes=capacity_bytes)
        self.settings = BrokerSettings.of({"log.dirs": "/data"})
        self.replies: dict[object, Message] = {}
        self.halts: list[str] = []
        self._tickets = 0
        self.open()

    def open(self) -> None:
        """Begin a life."""
        self.sync_count = 0
        self.effects: list[Effect] = []
        self.quorum, effects = Quorum.open(
            self.disk,
            self.settings,
            DIRECTORY,
            "a-cluster",
            tickets=self._ticket,
            entropy=self.random.randbytes,
            trace=untold,
            now=NOW,
        )
        self.effects += effects

    def propose(self, command: Message, token: object) -> None:
        self.effects += self.quorum.propose(command, token, "User:test", NOW)
        self._collect()

    def sync(self) -> int:
        """Carry out the syncs asked for so far, and return how many."""
        due, self.effects = self.effects, []
        syncs = [effect for effect in due if isinstance(effect, Sync)]
        self.halts += [effect.reason for effect in due if isinstance(effect, Halt)]
        self.sync_count += len(syncs)
        for sync in syncs:
            error = None
            try:
                self.disk.sync(sync.files)
            except StorageError as failed:
                error = failed
            self.effects += self.quorum.synced(sync.ticket, error, NOW)
        self._collect()
        return len(syncs)

    def settle(self) -> int:
        """Sync until nothing is asked for any more, and return how many syncs that took."""
        count = 0
        while synced := self.sync():
            count += synced
        return count

    def join(self, life: bytes = b"L") -> None:
        """Register the broker of this node and unfence it."""
        registration = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="a-cluster",
            incarnation_id=life * 16,
            features=[Feature("metadata.version", 30, 30)],
            log_dirs=[DIRECTORY],
        )
        self.propose(registration, "registered")
        self.settle()
        epoch = self.replies["registered"].broker_epoch
        seen = self.quorum.image.brokers[NodeId(1)].registered_at
        self.propose(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=seen), "unfenced")
        self.settle()

    def crash(self) -> None:
        """Lose power and begin another life."""
        self.disk.crash(self.random)
        self.disk.restart()
        self.open()

    def _ticket(self) -> Ticket:
        self._tickets += 1
        return Ticket(self._tickets)

    def _collect(self) -> None:
        self.quorum.take_deltas()
        self.replies.update(self.quorum.take_committed())
