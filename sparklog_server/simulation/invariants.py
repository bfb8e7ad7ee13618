"""The invariants of raft, checked after each call of a node on what the call has changed.

    one leader an epoch                    a vote is durable before it is sent, and given once an epoch
    epochs and high watermarks go up       a majority has synced everything below the leader's high watermark
    committed batches stay (`ledger`)      a leader has every batch that earlier epochs committed
    no truncation below the high watermark snapshots end at a committed batch, and reach the log start
    a leader commits by its own epoch      a snapshot holds the state of its offset
    voters are those of the node's log     a leader changes one voter, once its epoch and its last change
                                           are committed

`synced` is the log end that each disk holds for certain, computed from its syncs and not from the node's
belief.
"""

from typing import NamedTuple, Protocol

from sparklog.effects import Sync
from sparklog.kernels import scan
from sparklog.model import LeaderEpoch, NodeId, Offset, OffsetAndEpoch, Ticket, Uuid
from sparklog.record.batch import decode_records
from sparklog.record.control import KRaftVoters, parse_control
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.segment.segment import LOG_SUFFIX
from sparklog_server.raft.durable_log import DurableLog
from sparklog_server.raft.election_state import FILE_NAME, parse
from sparklog_server.raft.roles import Role
from sparklog_server.raft.voter_history import Membership
from sparklog_server.raft.voters import VoterSet
from sparklog_server.simulation.ledger import Committed, Ledger
from sparklog_server.simulation.world import Machine, Violation

_READ_BYTES = 1 << 20


class RaftFacts(Protocol):
    """What the invariants read of a node."""

    @property
    def role(self) -> Role: ...
    @property
    def epoch(self) -> LeaderEpoch: ...
    @property
    def high_watermark(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def log(self) -> PartitionLog: ...
    @property
    def durable(self) -> DurableLog: ...
    @property
    def snapshots(self) -> list[OffsetAndEpoch]: ...
    def membership(self, end_offset: Offset) -> Membership: ...


class _Facts(NamedTuple):
    role: Role
    epoch: LeaderEpoch
    high_watermark: Offset
    end: Offset


_NEW = _Facts(Role.UNATTACHED, LeaderEpoch(0), Offset(0), Offset(0))


_Voters = dict[NodeId, Uuid]


class RaftWatch:
    """Checks the invariants of one run. `voters` are the nodes and directories whose disks count for a
    majority until a record of the log names others.
    """

    def __init__(self, voters: dict[NodeId, Uuid]) -> None:
        self.ledger = Ledger()
        self.leaders: dict[LeaderEpoch, tuple[NodeId, int]] = {}
        self.elected_us: dict[LeaderEpoch, int] = {}
        self.leaderless_us_max = 0
        """The longest time from the end of a leader's process to the next election."""
        self.reached: dict[str, int] = {}
        """The number of times that each state was reached, by name: a set of seeds that never reaches a state
        does not test it.
        """
        self._voters = voters
        self.directories = dict(voters)
        """The directory of each node that has started."""
        self._committed_voters: list[tuple[Offset, _Voters]] = []  # by the offset of their record
        self._logged_voters: dict[NodeId, list[tuple[Offset, _Voters]]] = {}  # in the log of each node
        self._logged_ends: dict[NodeId, Offset] = {}
        self._rafts: dict[NodeId, RaftFacts] = {}
        self._ends: dict[LeaderEpoch, Offset] = {}  # up to where the leader of each epoch has committed
        self._leaderless_since_us: int | None = None
        self._facts: dict[NodeId, _Facts] = {}
        self._synced: dict[NodeId, Offset] = {}
        self._synced_once: dict[tuple[NodeId, Uuid], Offset] = {}
        """The log ends that nodes had synced in directories that were lost; a message sent before may still
        count.
        """
        self._syncs: dict[tuple[NodeId, Ticket], Offset] = {}
        self._votes: dict[tuple[NodeId, LeaderEpoch], NodeId] = {}

    # -- calls of the world

    def started(self, machine: Machine, directory: Uuid, raft: RaftFacts) -> None:
        """A process has opened the directory with this id."""
        self.directories[machine.node] = directory
        self._rafts[machine.node] = raft
        start = raft.log.log_start_offset
        known = [entry for entry in self._committed_voters if entry[0] < start]
        self._logged_ends[machine.node] = raft.log_end_offset
        self._logged_voters[machine.node] = known + _voters_in(raft.log, start, raft.log_end_offset)

    def check(self, machine: Machine) -> None:
        """A call of the node has ended."""
        raft = self._rafts[machine.node]
        facts = (raft.role, raft.epoch, raft.high_watermark, raft.log_end_offset)
        was = self._facts.get(machine.node, _NEW)
        if facts != was:
            self._changed(machine, raft, was, _Facts(*facts))

    def ended(self, machine: Machine) -> None:
        """The process has ended. The next one knows only what is durable."""
        facts = self._facts.pop(machine.node, _NEW)
        if facts.role is Role.LEADER:
            self._leaderless_since_us = machine.world.clock.us
        self._forget_syncs(machine.node, Offset(0))

    def disk_replaced(self, machine: Machine) -> None:
        """The disk is empty or in an older state: what it had synced no longer counts."""
        synced = self._synced.pop(machine.node, Offset(0))
        self._synced_once[machine.node, self.directories[machine.node]] = synced

    def sync_begins(self, machine: Machine, sync: Sync) -> None:
        """A sync of the log covers what was appended so far."""
        if any(file.path.endswith(LOG_SUFFIX) for file in sync.files):
            self._syncs[machine.node, sync.ticket] = self._rafts[machine.node].log_end_offset

    def sync_ended(self, machine: Machine, ticket: Ticket) -> None:
        """The disk has made durable what the sync covers."""
        end = self._syncs.pop((machine.node, ticket), None)
        if end is not None and end > self._synced.get(machine.node, 0):
            self._synced[machine.node] = end

    def votes(self, machine: Machine, directory: str, epoch: LeaderEpoch, candidate: NodeId) -> None:
        """The node is about to send its vote, or to request votes."""
        first = self._votes.setdefault((machine.node, epoch), candidate)
        if first != candidate:
            raise Violation(
                "voted-twice", f"node {machine.node} votes for {candidate} in epoch {epoch}, after {first}"
            )
        durable = parse(machine.disk.durable(f"{directory}/{FILE_NAME}"))
        if durable.epoch < epoch or (durable.epoch == epoch and durable.voted_id != candidate):
            raise Violation(
                "vote-not-durable",
                f"node {machine.node} votes for {candidate} in epoch {epoch}, but its disk has {durable}",
            )

    def snapshot_written(self, machine: Machine, snapshot: OffsetAndEpoch) -> None:
        """A node begins to write the snapshot of an offset that it has committed."""
        known = self.ledger.states.get(snapshot.offset)
        if known is None or known[0] != snapshot.epoch:
            raise Violation(
                "snapshot-id", f"node {machine.node} writes {snapshot}, where {known} is committed"
            )

    def snapshot_loaded(self, machine: Machine, snapshot: OffsetAndEpoch, state: int) -> None:
        """A node has read a snapshot, its own or that of a leader."""
        if self.ledger.states.get(snapshot.offset) != (snapshot.epoch, state):
            raise Violation("snapshot-content", f"node {machine.node} loads {snapshot} with state {state}")
        if self._rafts[machine.node].role is Role.LEADER:
            raise Violation("snapshot-loaded-by-leader", f"node {machine.node} loads {snapshot}")
        self.reach("snapshot-loaded")

    def acknowledged(self, machine: Machine, offset: Offset) -> None:
        """A leader tells a client that its record is committed."""
        if offset >= self.ledger.end:
            raise Violation(
                "not-committed", f"node {machine.node} acknowledges {offset} of {self.ledger.end} committed"
            )

    def reach(self, state: str) -> None:
        """Count a state."""
        self.reached[state] = self.reached.get(state, 0) + 1

    # -- checks

    def _changed(self, machine: Machine, raft: RaftFacts, was: _Facts, facts: _Facts) -> None:
        node = machine.node
        if facts.epoch < was.epoch:
            raise Violation("epoch-back", f"node {node}: {was} → {facts}")
        if facts.high_watermark < was.high_watermark:
            raise Violation("high-watermark-back", f"node {node}: {was} → {facts}")
        if facts.end < facts.high_watermark:
            raise Violation("truncated-committed", f"node {node}: {was} → {facts}")
        logged = self._logged_voters[node]
        voters_before = self._voters_of(node)
        if facts.end < was.end:
            self._synced[node] = min(self._synced.get(node, Offset(0)), facts.end)
            self._forget_syncs(node, facts.end)
            self.reach("truncation")
            if logged and logged[-1][0] >= facts.end:
                self.reach("voters-truncated")
            logged[:] = [entry for entry in logged if entry[0] < facts.end]
        log_start, log_end = raft.log.log_start_offset, min(self._logged_ends[node], facts.end)
        if log_start >= log_end:  # a snapshot took the place of the log
            logged[:] = [entry for entry in self._committed_voters if entry[0] < log_start]
        added = _voters_in(raft.log, max(log_end, log_start), facts.end)
        logged += added
        self._logged_ends[node] = facts.end
        if facts.role is Role.LEADER and (was.role is not Role.LEADER or was.epoch != facts.epoch):
            self._elected(machine, raft, facts)
        if facts.high_watermark > was.high_watermark:
            self._committed(machine, raft, was.high_watermark, facts, voters_before)
        if was.role is Role.LEADER and was.epoch == raft.log.epochs.epoch_at(Offset(facts.end - 1)):
            self._check_changes(machine, was.epoch, facts, voters_before, added)
        latest = raft.membership(Offset(1 << 62)).voters.directories
        if logged and not raft.durable.is_cutting and latest != logged[-1][1]:
            raise Violation("voters-not-of-log", f"node {node} has {latest}, its log {logged[-1]}")
        self._facts[node] = facts
        if was.role is not facts.role:
            self.reach(facts.role.value)

    def _voters_of(self, node: NodeId) -> _Voters:
        """The voters by the log of a node."""
        logged = self._logged_voters[node]
        return logged[-1][1] if logged else self._voters

    def _check_changes(
        self,
        machine: Machine,
        epoch: LeaderEpoch,
        facts: _Facts,
        before: _Voters,
        added: list[tuple[Offset, _Voters]],
    ) -> None:
        """A leader has appended voters."""
        for offset, voters in added:
            differing = set(before.items()) ^ set(voters.items())
            if len(differing) > 1:
                raise Violation("voters-changed", f"node {machine.node} changes {before} to {voters}")
            earlier = [at for at, _ in self._logged_voters[machine.node] if at < offset]
            is_committed = not earlier or earlier[-1] < facts.high_watermark
            if differing and (epoch not in self._ends or not is_committed):
                raise Violation(
                    "voters-uncommitted", f"node {machine.node} of epoch {epoch} changes {before} to {voters}"
                )
            self.reach("voters-changed")
            before = voters

    def _forget_syncs(self, node: NodeId, end: Offset) -> None:
        for of, ticket in [key for key in self._syncs if key[0] == node]:
            if end:
                self._syncs[of, ticket] = min(self._syncs[of, ticket], end)
            else:
                del self._syncs[of, ticket]

    def _elected(self, machine: Machine, raft: RaftFacts, facts: _Facts) -> None:
        leader = (machine.node, machine.life)
        first = self.leaders.setdefault(facts.epoch, leader)
        if first != leader:
            raise Violation("two-leaders", f"epoch {facts.epoch}: (node, life) {first} and {leader}")
        self.elected_us[facts.epoch] = now_us = machine.world.clock.us
        if self._leaderless_since_us is not None:
            self.leaderless_us_max = max(self.leaderless_us_max, now_us - self._leaderless_since_us)
            self._leaderless_since_us = None
        # A candidate that has its votes may append its first record late, when a later epoch has a leader.
        committed = max((end for epoch, end in self._ends.items() if epoch < facts.epoch), default=Offset(0))
        if facts.end < committed:
            raise Violation(
                "leader-incomplete", f"node {machine.node} leads with {facts}, {committed} is committed"
            )
        for batch in _batches(raft.log, raft.log.log_start_offset, committed):
            self.ledger.committed(machine.node, batch)

    def _committed(
        self,
        machine: Machine,
        raft: RaftFacts,
        since: Offset,
        facts: _Facts,
        voters_before: _Voters,
    ) -> None:
        start = max(since, raft.log.log_start_offset)
        for batch in _batches(raft.log, start, facts.high_watermark):
            self.ledger.committed(machine.node, batch)
        logged = self._logged_voters[machine.node]
        known = self._committed_voters[-1][0] if self._committed_voters else -1
        self._committed_voters += [entry for entry in logged if known < entry[0] < facts.high_watermark]
        snapshots, log_start = raft.snapshots, raft.log.log_start_offset
        if log_start and not raft.durable.is_cutting and (not snapshots or snapshots[-1].offset < log_start):
            raise Violation("log-start", f"node {machine.node} begins at {log_start}, it has {snapshots}")
        if facts.role is not Role.LEADER:
            return
        self._ends[facts.epoch] = facts.high_watermark
        last, _ = self.ledger.states[facts.high_watermark]
        if last != facts.epoch:
            raise Violation("old-epoch", f"leader {machine.node} of {facts.epoch} commits records of {last}")
        # Within one call, the records of the former voters may be committed before the new ones count.
        for voters in (self._voters_of(machine.node), voters_before):
            if self._is_held(facts.high_watermark, voters):
                return
        raise Violation(
            "not-synced",
            f"node {machine.node} commits up to {facts.high_watermark}, synced are {self._synced}",
        )

    def _is_held(self, end: Offset, voters: _Voters) -> bool:
        """Whether a majority of these voters has synced everything below `end`."""
        holding = [
            node
            for node, directory in voters.items()
            if max(
                self._synced.get(node, 0) if self.directories.get(node) == directory else 0,
                self._synced_once.get((node, directory), 0),
            )
            >= end
        ]
        return len(holding) > len(voters) // 2


def _voters_in(log: PartitionLog, start: Offset, limit: Offset) -> list[tuple[Offset, _Voters]]:
    """The voters of the records in `[start, limit)`, by the offset of their record."""
    found: list[tuple[Offset, _Voters]] = []
    while start < limit:
        piece = log.read(start, limit, _READ_BYTES, at_least_one=True)
        assert piece is not None, f"no batch at {start}"
        content = memoryview(piece.read())
        for position, header in scan.headers(content, False):
            start = Offset(header.base_offset + header.last_offset_delta + 1)
            if not header.is_control:
                continue
            for record in decode_records(content[position : position + header.size], include_control=True):
                message = parse_control(record)
                if isinstance(message, KRaftVoters):
                    found.append((Offset(record.offset), dict(VoterSet.of(message).directories)))
    return found


def _batches(log: PartitionLog, start: Offset, limit: Offset) -> list[Committed]:
    """The batches of `[start, limit)`."""
    found: list[Committed] = []
    while start < limit:
        piece = log.read(start, limit, _READ_BYTES, at_least_one=True)
        assert piece is not None, f"no batch at {start}"
        for _, header in scan.headers(piece.read(), False):
            start = Offset(header.base_offset + header.last_offset_delta + 1)
            found.append(
                Committed(Offset(header.base_offset), start, LeaderEpoch(header.leader_epoch), header.crc)
            )
    return found
