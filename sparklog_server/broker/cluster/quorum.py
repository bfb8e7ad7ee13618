"""The metadata quorum as the broker uses it: the raft node, the metadata log that follows it, and the active
controller while this node leads.

    elected ──► the metadata log follows up to the high watermark ──► `ActiveController`: the tail on top of
                that as the pending image, then the first records of the leadership, then commands
    leadership lost ──► no active controller; the metadata log goes on from the high watermark

The only voter always becomes the leader, so its controller is prepared when the log is opened, and commands
wait for it. One of several voters reads its log ahead then.
"""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from sparklog.effects import Loss
from sparklog.errors import DecodeError
from sparklog.model import Instant, LeaderEpoch, Micros, NodeId, Offset, Uuid, earlier
from sparklog.record.control import VoterEndpoint
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.active_controller import (
    ActiveController,
    Decided,
    Probing,
    Replies,
    refused_here,
)
from sparklog_server.broker.cluster.metadata_log import MetadataLog
from sparklog_server.broker.cluster.snapshot_generator import SnapshotGenerator
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.controller.controller import Controller
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.peers import Endpoint, Peers
from sparklog_server.raft.quorum_config import QuorumConfig
from sparklog_server.raft.quorum_state import ENDED
from sparklog_server.raft.roles import Role
from sparklog_server.raft.voters import VoterSet

_RESIGNING_US: Final = 200_000
"""How long a stop waits at most for the voters that it tells of the end of the epoch."""


_COMMITS_KEPT: Final = 32


class Port(Peers, Protocol):
    """The way to other nodes: to those of the quorum, and to brokers that the controller suspects."""

    def probe(
        self, address: tuple[str, int], then: Callable[[Loss | None, Instant], None], now: Instant
    ) -> None:
        """Connect to a broker; `then` takes None if a process answers there, else the loss."""

    def serve(self, quorum: "Quorum") -> None:
        """Give responses to this quorum."""


class QuorumSetup(msgspec.Struct, frozen=True):
    """The quorum of a node that has other nodes: `voters` by the settings, the own `endpoints` for raft
    requests, and where a node that is no voter finds the quorum. `kraft_version` is that of a new log.
    """

    voters: VoterSet
    endpoints: tuple[VoterEndpoint, ...]
    bootstrap: tuple[Endpoint, ...]
    port: Port
    config: QuorumConfig
    kraft_version: int = 0


class Quorum:
    """`deltas` and `committed` wait to be taken by the broker.

    Invariant: after `turned`, which follows each turn of the raft node, everything below the high watermark
    is published, and a controller is active exactly while this node leads.
    """

    def __init__(
        self,
        raft: RaftNode,
        controller: Controller,
        snapshots: SnapshotGenerator,
        probe: Probing | None,
        trace: Callable[..., None],
    ) -> None:
        self.raft: Final = raft
        self.log: Final = MetadataLog(raft, snapshots)
        self.deltas: Final = self.log.deltas
        self.committed: Final[Replies] = []
        self.deadline_us: Micros | None = None  # when `tick` is wanted: changes with each call
        self.commits: list[int] = []
        """How long, in us, the latest decisions of this node took until they were committed."""
        self._undecided: tuple[Offset, Micros] | None = (
            None  # the end of a decision that is measured, and its time
        )
        self._resigning_until_us: Micros | None = None
        self._snapshots = snapshots
        self._controller = controller
        self._probe = probe
        self._trace = trace
        self._active: ActiveController | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        settings: BrokerSettings,
        directory_id: Uuid,
        cluster_id: str,
        continuations: Continuations,
        *,
        entropy: Callable[[int], bytes],
        trace: Callable[..., None],
        now: Instant,
        setup: QuorumSetup | None = None,
    ) -> "Quorum":
        """Open the metadata log and take part in the quorum, whose only voter is this node where no `setup`
        is given. `directory_id` is that of the directory of the metadata log.

        Raises StorageError, and DecodeError for a log or snapshot with records that
        this release does not know.
        """
        node_id = NodeId(settings.node_id)
        scope = continuations.followed_by(lambda now: quorum.turned(now))
        raft = RaftNode.open(
            disk,
            settings.metadata_log_dir,
            # Snapshots decide which segments are removed, never their age or size.
            LogConfig(
                segment_bytes=settings.metadata_log.segment_bytes,
                segment_ms=max(settings.metadata_log.segment_ms, 1),
                is_deleted=False,
            ),
            node_id=node_id,
            directory_id=directory_id,
            voters=VoterSet({node_id: directory_id}) if setup is None else setup.voters,
            kraft_version=int(not settings.quorum.voters_given) if setup is None else setup.kraft_version,
            continuations=scope,
            trace=trace,
            now=now,
            cluster_id=cluster_id,
            endpoints=() if setup is None else setup.endpoints,
            peers=None if setup is None else setup.port,
            bootstrap=() if setup is None else setup.bootstrap,
            config=None if setup is None else setup.config,
            random=lambda limit: int.from_bytes(entropy(8)) % limit,
        )
        snapshots = SnapshotGenerator(disk, raft, settings, scope, trace=trace, now=now)
        probe = None if setup is None else setup.port.probe
        idle_ms = settings.metadata_log.idle_interval_ms_max
        controller = Controller(settings, cluster_id, entropy, raft, idle_interval_ms=idle_ms)
        quorum = cls(raft, controller, snapshots, probe, trace)
        if quorum.is_alone:
            quorum._prepare()
        elif raft.state.is_voter:
            quorum.log.read_ahead()
        raft.start(now)
        quorum.deadline_us = quorum._deadline()
        return quorum

    @property
    def image(self) -> MetadataImage:
        """The published metadata."""
        return self.log.image

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits for the disk, and no voter to be told of a resignation; records that wait for
        room on a full disk do not count.
        """
        is_settled = self.raft.retry_at_us is not None or self._active is None or self._active.is_quiet
        is_resignation_known = self._resigning_until_us is None
        return self.raft.is_quiet and self._snapshots.is_quiet and is_settled and is_resignation_known

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter."""
        return self.raft.state.is_voter and self.raft.state.voters.majority == 1

    @property
    def is_leader(self) -> bool:
        """Whether this node decides."""
        return self.raft.is_leader

    @property
    def epoch(self) -> LeaderEpoch:
        """The epoch of the metadata quorum."""
        return self.raft.epoch

    @property
    def kraft_version(self) -> int:
        """The committed kraft.version."""
        return self.raft.membership(self.high_watermark).kraft_version

    @property
    def directory_id(self) -> Uuid:
        """The directory of the metadata log."""
        return self.raft.directory_id

    @property
    def high_watermark(self) -> Offset:
        """The end of the committed metadata log."""
        return self.raft.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """The end of the metadata log."""
        return self.raft.log_end_offset

    def controller_address(self) -> Endpoint | None:
        """Where the active controller is reached; None while it is not known."""
        return self.raft.state.known.endpoint

    def propose(self, command: Message, then: Decided, principal: str, now: Instant) -> None:
        """Decide on a wire request of `principal`; `take_committed` gives `then` with its reply. Commands
        share syncs.
        """
        if self._active is None:
            self.committed.append((then, refused_here(command)))
            return
        self._active.propose(command, then, principal, now)
        if self._undecided is None:
            self._undecided = self.log_end_offset, now.mono_us
        self._settle(now)
        self.deadline_us = self._deadline()

    def heartbeat_lost(self, node: NodeId, now: Instant) -> None:
        """The connection on which a broker sends its heartbeats has ended."""
        if self._active is not None and self._active.is_active:
            self._controller.sessions.heartbeat_lost(node, now)
            self.deadline_us = self._deadline()

    def turned(self, now: Instant) -> None:
        """The raft node has learned something: take up or give up leadership, and publish what is committed
        now.
        """
        self._settle(now)
        if self._resigning_until_us is not None and (
            self._resigning_until_us <= now.mono_us
            or self.raft.role is not Role.RESIGNED
            or self.raft.state.in_flight.deadline() is None
        ):
            self._resigning_until_us = None
        if self._undecided is not None and self._undecided[0] <= self.high_watermark:
            self.commits = [*self.commits[1 - _COMMITS_KEPT :], now.mono_us - self._undecided[1]]
            self._undecided = None
        self._snapshots.begin_due(self.image, now)
        self.deadline_us = self._deadline()

    def take_committed(self) -> Replies:
        """The (continuation, reply) pairs committed since the last call, in the order of their commands."""
        committed = self.committed[:]
        self.committed.clear()
        return committed

    def take_deltas(self) -> list[MetadataDelta]:
        """The deltas published since the last call, in order; the first begins with the empty image."""
        deltas = self.deltas[:]
        self.deltas.clear()
        return deltas

    def tick(self, now: Instant) -> None:
        """Let the raft node and the controller act on time, and begin a snapshot that is due."""
        self.raft.tick(now)
        self._settle(now)
        if self._active is not None:
            self._active.tick(now)
        self.turned(now)

    def resign(self, now: Instant) -> None:
        """Leave the decisions to another node before a stop, which waits until the voters were told."""
        self.raft.resign(now)
        self._resigning_until_us = Micros(now.mono_us + _RESIGNING_US)
        self.turned(now)

    def close(self, now: Instant) -> None:
        """Close the metadata log."""
        self.raft.close(now)
        self.deadline_us = None

    def _prepare(self) -> None:
        self._active = ActiveController(
            self.raft, self.log, self._controller, self.committed, self._probe, self._trace
        )
        self._active.prepare()

    def _settle(self, now: Instant) -> None:
        """Begin or end a leadership as the raft node has, and publish what is committed."""
        self._end_if_over()
        if self._active is None and self.raft.role not in ENDED:
            self._catch_up()
        if self._active is not None and self.raft.is_leader and not self._active.is_active:
            self._active.begin(now)
            self._end_if_over()  # the disk may have refused its first records
        if self._active is not None:
            self._active.publish()

    def _end_if_over(self) -> None:
        if self._active is not None and self._active.is_over:
            self._active.end()
            self._active = None

    def _catch_up(self) -> None:
        """Follow the log, and on top of it prepare a leadership that this node has won."""
        try:
            self.log.follow()
            if self.raft.is_leader:
                self._prepare()
        except StorageError as error:
            self.raft.halt(error)
        except DecodeError as error:
            self.raft.halt(StorageError(self.raft.log.directory, "replay", str(error)))

    def _deadline(self) -> Micros | None:
        raft = self.raft
        due_us = raft.deadline()
        if raft.role in ENDED or raft.durable.is_cutting:
            return due_us
        due_us = earlier(due_us, self._resigning_until_us)
        if self._active is not None:
            due_us = earlier(due_us, self._active.deadline())
        return earlier(due_us, self._snapshots.deadline(self.image))
