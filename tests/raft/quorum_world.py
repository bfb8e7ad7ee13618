"""Several raft nodes that exchange messages in virtual time, on disks that can lose power.

A link carries the requests of one purpose from one node to another, in order, with random delays. It ends by
a crash of either side (late requests may still arrive) or silently by a cut. Each event is followed by the
checks of the node that it touched:

- an epoch has one leader, and a voter votes for one candidate in it;
- what is committed stays as it is on every node, and images at one offset are equal;
- a high watermark goes back only with its process, and never passes the log end.
"""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from heapq import heappop, heappush
from random import Random

from sparklog.effects import Halt, Loss, Run, Sync
from sparklog.model import Instant, LeaderEpoch, Micros, Millis, NodeId, Offset, OffsetAndEpoch, Uuid
from sparklog.record.batch import build_batch, decode_records, iterate_headers
from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest
from sparklog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from sparklog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from sparklog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.messages.fetch_snapshot import FetchSnapshotRequest
from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from sparklog.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from sparklog.wire.messages.vote import VoteRequest, VoteResponse
from sparklog.wire.schema import Message
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.removal import remove_all
from sparklog_server.log.log_config import LogConfig
from sparklog_server.raft import snapshots
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.peers import Endpoint, Peer, Purpose
from sparklog_server.raft.quorum_config import QuorumConfig
from sparklog_server.raft.quorum_state import ENDED
from sparklog_server.raft.voters import VoterSet, endpoint_of
from sparklog_server.simulation.disk import NO_SPACE, SimulatedDisk

MS = 1000
CLUSTER = "a-cluster"


class Machine:
    """A node and its disk through all its processes; `applied` is its image."""

    def __init__(self, world: "QuorumWorld", node_id: int) -> None:
        self.world = world
        self.id = NodeId(node_id)
        self.directory_id = Uuid(bytes([64 + node_id]) * 16)
        self.disk = SimulatedDisk()
        self.node: RaftNode | None = None
        self.life = 0
        self.is_paused = False
        self.is_stuck = False  # its syncs do not return
        self.held: list[Callable[[], None]] = []
        self.told: list[str] = []
        self.tick_at: Micros | None = None

    # -- the process

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.is_paused = False
        self.continuations = Continuations()
        self.tick_at = None
        self.applied = Offset(0)
        self.digest = b""
        self.high_watermark = Offset(0)
        self.node = RaftNode.open(
            self.disk,
            "/data",
            LogConfig(segment_bytes=world.segment_bytes, is_deleted=False),
            node_id=self.id,
            directory_id=self.directory_id,
            voters=world.voters,
            cluster_id=CLUSTER,
            endpoints=endpoint_of(world.host_of(self.id), self.id) if world.has_endpoints else (),
            continuations=self.continuations,
            trace=self._trace,
            now=world.instant,
            peers=self,
            bootstrap=world.bootstrap,
            config=world.config,
            random=world.random_of(f"node {self.id}").randrange,
        )
        self.node.start(world.instant)
        self.after()

    def stop(self, *, power: bool) -> None:
        """Kill the process, or cut the power of its machine."""
        self.node = None
        self.life += 1
        self.held.clear()
        if power:
            self.disk.crash(self.world.random_of(f"disk {self.id}"))
        self.disk.restart()
        self.world.break_links(self.id)

    def lose_disk(self) -> None:
        """The process comes back with an empty disk, and so as another replica."""
        self.stop(power=True)
        self.disk = SimulatedDisk()
        self.directory_id = Uuid(bytes([96 + self.id]) * 16)

    def fill(self) -> None:
        """Nothing more can be written, until `fault` is cleared."""
        self.disk.fault = lambda call, _path: NO_SPACE if call in ("append", "replace", "create") else None

    def resume(self) -> None:
        self.is_paused = False
        held, self.held = self.held, []
        self.run(self.tick)
        for action in held:
            self.run(action)

    def release(self) -> None:
        """Syncs return again."""
        self.is_stuck = False
        self.carry_out()

    def run(self, action: Callable[[], None]) -> None:
        """Let the process take an input, if there is one."""
        if self.node is None:
            return
        if self.is_paused:
            self.held.append(action)
            return
        action()
        self.after()

    def later(self, delay_us: int, action: Callable[[], None]) -> None:
        """An input for this process, and no later one."""
        life = self.life
        self.world.after(delay_us, lambda: self.run(action) if self.life == life else None)

    def after(self) -> None:
        """The end of a turn."""
        if self.node is None:
            return
        if self.node.is_leader:
            self.node.flush(self.world.instant)
        self.carry_out()
        self.world.check(self)
        if self.node is None or self.node.role in ENDED:
            return
        due = self.node.deadline()
        if due is not None and (self.tick_at is None or due < self.tick_at or self.tick_at <= self.world.now):
            self.tick_at = due
            self.later(max(due - self.world.now, 0), self._ticked)

    def _ticked(self) -> None:
        self.tick_at = None
        self.tick()

    def tick(self) -> None:
        assert self.node is not None
        due = self.node.deadline()
        if due is not None and due <= self.world.now:
            self.node.tick(self.world.instant)

    def carry_out(self) -> None:
        if self.is_stuck:
            return
        world = self.world
        for effect in self.continuations.take_effects():
            if isinstance(effect, Halt):
                world.halts.append((self.id, effect.reason))
            else:
                assert isinstance(effect, (Sync, Run))
                self.later(world.random.randrange(300, world.sync_us_max), partial(self.finish, effect))

    def finish(self, effect: Sync | Run) -> None:
        result: object = None
        try:
            if isinstance(effect, Sync):
                self.disk.sync(effect.files)
            else:
                result = effect.work()
        except StorageError as error:
            result = error
        self.continuations.finished(effect.ticket, result, self.world.instant)

    def _trace(self, event: str, **fields: object) -> None:
        self.told.append(event)
        if self.world.is_verbose:
            print(f"{self.world.now / MS:10.3f} n{self.id} {event} {fields}")

    # -- its port

    def send(self, peer: Peer, purpose: Purpose, correlation: int, request: Message, now: Instant) -> None:
        node = NodeId(peer.port) if isinstance(peer, Endpoint) else peer
        self.world.carry(self, self.world.machines[node], peer, purpose, correlation, request)

    def hear(self, correlation: int, response: Message) -> None:
        assert self.node is not None
        self.node.replied(correlation, response, self.world.instant)

    def lose(self, peer: Peer, purpose: Purpose, loss: Loss) -> None:
        assert self.node is not None
        self.node.lost(peer, purpose, loss, self.world.instant)

    def located(self, node: NodeId, endpoint: Endpoint) -> None:
        assert endpoint.port == node

    # -- its image

    def append(self, value: bytes) -> Offset | None:
        if self.node is None or self.is_paused or not self.node.is_leader:
            return None
        batch = build_batch([(None, value, (), self.world.instant.wall_ms)])
        try:
            offset = self.node.append(batch, self.world.instant)
        except StorageError:  # the disk is full
            return None
        self.after()
        return offset

    def snapshot(self, *, cuts_log: bool = True) -> None:
        """Write a snapshot of the image, and remove the log below it."""
        node = self.node
        if node is None or self.is_paused or node.durable.is_cutting:
            return
        end = self.applied
        newest = node.snapshots[-1].offset if node.snapshots else 0
        if end <= newest or end > node.log.recovery_point or end < node.log.log_start_offset:
            return
        if self.disk.fault is not None:
            return
        found = OffsetAndEpoch(end, node.log.epochs.epoch_at(Offset(end - 1)))
        if found.epoch < 0:
            return
        batch = build_batch([(None, self.digest, (), 0)])
        snapshots.write(
            self.disk,
            node.log.directory,
            found,
            [batch],
            last_timestamp=Millis(0),
            wall_ms=Millis(0),
            control=node.membership(end).control(),
        )
        node.snapshots.append(found)
        if cuts_log:
            node.log.move_log_start(end)
            if (retire := node.log.retire(node.high_watermark, self.world.instant)) is not None:
                remove_all(retire())
            while node.snapshots[0].offset < node.log.log_start_offset:
                self.disk.remove(f"{node.log.directory}/{snapshots.file_name(node.snapshots.pop(0))}")


class QuorumWorld:
    """The machines 1 to `count`, of which the first `voters` vote."""

    def __init__(
        self, seed: int = 0, *, count: int = 3, voters: int | None = None, verbose: bool = False
    ) -> None:
        self.seed = seed
        self.random = Random(f"{seed}")
        self._randoms: dict[str, Random] = {}
        self.is_verbose = verbose
        self.now = Micros(0)
        self.segment_bytes = 1500
        self.voters = VoterSet(
            {NodeId(n): Uuid(bytes([64 + n]) * 16) for n in range(1, (voters or count) + 1)}
        )
        self.machines = {NodeId(n): Machine(self, n) for n in range(1, count + 1)}
        self.bootstrap: tuple[Endpoint, ...] = ()
        self.config = QuorumConfig()
        self.has_endpoints = False
        self.moved: dict[NodeId, str] = {}  # the hosts of nodes that have others than at first
        self.serves_votes = True
        self.kraft_versions = (0, 1)  # which every node tells it supports
        self.cuts: dict[tuple[NodeId, NodeId], None] = {}
        self._arrival: dict[tuple[NodeId, NodeId, Purpose, bool], int] = {}
        self._generation: dict[tuple[NodeId, NodeId, Purpose], int] = {}
        self.halts: list[tuple[NodeId, str]] = []
        self.leaders: dict[LeaderEpoch, tuple[NodeId, int]] = {}
        self.votes: dict[tuple[NodeId, LeaderEpoch], NodeId] = {}
        self.ledger: dict[Offset, tuple[int, int]] = {}  # offset of a batch -> (next offset, CRC with epoch)
        self.digests: dict[Offset, bytes] = {Offset(0): b""}
        self.seen: dict[str, int] = {}
        self.delay_us_max = 3 * MS
        self.sync_us_max = 8 * MS
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.events = 0

    def host_of(self, node: NodeId) -> str:
        return self.moved.get(node, f"n{node}")

    def random_of(self, purpose: str) -> Random:
        if purpose not in self._randoms:
            self._randoms[purpose] = Random(f"{self.seed} {purpose}")
        return self._randoms[purpose]

    @property
    def instant(self) -> Instant:
        return Instant(self.now, Millis(1_700_000_000_000 + self.now // 1000))

    def start(self) -> "QuorumWorld":
        for machine in self.machines.values():
            machine.start()
        return self

    # -- time

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._heap, (self.now + delay_us, self._count, action))

    def run(self, ms: float) -> None:
        end = self.now + int(ms * MS)
        while self._heap and self._heap[0][0] <= end:
            at, _, action = heappop(self._heap)
            self.now = Micros(at)
            self.events += 1
            action()
        self.now = Micros(end)

    def run_until(self, claim: Callable[[], bool], ms: int = 10_000) -> int:
        """Run until a claim holds; returns the ms that it took."""
        for passed in range(ms):
            if claim():
                return passed
            self.run(1)
        raise AssertionError(f"seed {self.seed}: not within {ms} ms: {self.describe()}")

    def describe(self) -> list[str]:
        return [
            f"n{m.id} down"
            if m.node is None
            else f"n{m.id} {m.node.role.value} e{m.node.epoch} leader={m.node.leader_id} "
            f"end={m.node.log_end_offset} hw={m.node.high_watermark}"
            for m in self.machines.values()
        ]

    # -- the network

    def carry(
        self,
        source: Machine,
        target: Machine,
        peer: Peer,
        purpose: Purpose,
        correlation: int,
        request: Message,
    ) -> None:
        """Deliver a request and its response, or lose them."""
        if (source.id, target.id) in self.cuts:
            return
        if target.node is None:
            source.later(self._delay(), partial(source.lose, peer, purpose, Loss.REFUSED))
            return
        link = (source.id, target.id, purpose)
        generation = self._generation.setdefault(link, 0)
        source_life, target_life = source.life, target.life

        def arrived(response: Message) -> None:
            if source.life == source_life and self._generation[link] == generation:
                source.run(partial(source.hear, correlation, response))

        def answered(response: Message) -> None:
            if isinstance(response, VoteResponse):
                self._note_vote(target, request, response)
            if target.life == target_life and (target.id, source.id) not in self.cuts:
                self.after(self._in_order((*link, True)), partial(arrived, response))

        target.later(self._in_order((*link, False)), partial(self._deliver, target, request, answered))

    def _delay(self) -> int:
        return self.random.randrange(100, self.delay_us_max)

    def _in_order(self, way: tuple[NodeId, NodeId, Purpose, bool]) -> int:
        at = max(self.now + self._delay(), self._arrival.get(way, 0))
        self._arrival[way] = at
        return at - self.now

    def _deliver(self, target: Machine, request: Message, answer: Callable[[Message], None]) -> None:
        node = target.node
        assert node is not None
        if node.role in ENDED:
            return
        if isinstance(request, VoteRequest):
            node.handle_vote(request, answer, self.instant)
        elif isinstance(request, BeginQuorumEpochRequest):
            node.handle_begin_quorum_epoch(request, answer, self.instant)
        elif isinstance(request, EndQuorumEpochRequest):
            node.handle_end_quorum_epoch(request, answer, self.instant)
        elif isinstance(request, FetchRequest):
            node.handle_fetch(request, answer, self.instant)
        elif isinstance(request, FetchSnapshotRequest):
            node.handle_fetch_snapshot(request, answer, self.instant)
        elif isinstance(request, ApiVersionsRequest):
            low, high = self.kraft_versions
            apis = [ApiVersion(52, 0, 2)] if self.serves_votes else []
            features = [SupportedFeatureKey("kraft.version", low, high)]
            answer(ApiVersionsResponse(api_keys=apis, supported_features=features))
        elif isinstance(request, AddRaftVoterRequest):
            node.handle_add_raft_voter(request, answer, self.instant)
        elif isinstance(request, RemoveRaftVoterRequest):
            node.handle_remove_raft_voter(request, answer, self.instant)
        else:
            assert isinstance(request, UpdateRaftVoterRequest)
            node.handle_update_raft_voter(request, answer, self.instant)

    def break_links(self, node: NodeId, other: NodeId | None = None) -> None:
        """End the connections of a node: both sides hear of it."""
        for link in list(self._generation):
            if node in link[:2] and (other is None or other in link[:2]):
                self._generation[link] += 1
                source = self.machines[link[0]]
                if link[0] != node or other is not None:
                    source.later(self._delay(), partial(source.lose, link[1], link[2], Loss.ENDED))

    def cut(self, sources: list[int], targets: list[int], *, one_way: bool = False) -> None:
        """Let messages from the first to the second vanish, and the other way."""
        for a in sources:
            for b in targets:
                self.cuts[NodeId(a), NodeId(b)] = None
                if not one_way:
                    self.cuts[NodeId(b), NodeId(a)] = None

    def heal(self) -> None:
        self.cuts.clear()

    # -- checks

    @property
    def leader(self) -> Machine | None:
        """The leader of the latest epoch."""
        found = [m for m in self.machines.values() if m.node is not None and m.node.is_leader]
        return max(found, key=lambda m: m.node.epoch if m.node else 0, default=None)

    @property
    def any(self) -> Machine:
        """A node at random."""
        return self.random_of("any").choice(list(self.machines.values()))

    def _note_vote(self, voter: Machine, request: Message, response: VoteResponse) -> None:
        assert isinstance(request, VoteRequest)
        if not response.topics:
            return
        asked, told = request.topics[0].partitions[0], response.topics[0].partitions[0]
        if told.vote_granted and not asked.pre_vote:
            key = (voter.id, LeaderEpoch(asked.replica_epoch))
            before = self.votes.setdefault(key, NodeId(asked.replica_id))
            assert before == asked.replica_id, f"seed {self.seed}: n{voter.id} voted twice in {key[1]}"

    def check(self, machine: Machine) -> None:
        node = machine.node
        assert node is not None
        self.seen[node.role.value] = self.seen.get(node.role.value, 0) + 1
        if node.role in ENDED:
            return
        if node.is_leader:
            before = self.leaders.setdefault(node.epoch, (machine.id, machine.life))
            assert before == (machine.id, machine.life), f"seed {self.seed}: epoch {node.epoch}: two leaders"
        assert node.high_watermark <= node.log_end_offset or node.durable.is_cutting, f"seed {self.seed}"
        assert node.high_watermark >= machine.high_watermark, f"seed {self.seed}"
        machine.high_watermark = node.high_watermark
        if node.high_watermark > machine.applied and not node.durable.is_cutting:
            self._apply(machine, node)

    def _apply(self, machine: Machine, node: RaftNode) -> None:
        if machine.applied < node.log.log_start_offset:
            found = node.durable.load_snapshot()
            assert found is not None
            machine.applied = found.id.offset
            machine.digest = decode_records(found.batches)[0].value or b""
            assert self.digests[machine.applied] == machine.digest, f"seed {self.seed}: snapshot differs"
            self.seen["snapshot loaded"] = self.seen.get("snapshot loaded", 0) + 1
        for batches in node.durable.read(machine.applied, node.high_watermark):
            for position, header in iterate_headers(batches):
                if header.base_offset < machine.applied:
                    continue
                entry = (header.next_offset, header.crc ^ header.leader_epoch << 32)
                known = self.ledger.setdefault(Offset(header.base_offset), entry)
                assert known == entry, (
                    f"seed {self.seed}: n{machine.id}: another batch at {header.base_offset}"
                )
                content = batches[position : position + header.size]
                machine.digest = sha256(machine.digest + content).digest()
                machine.applied = Offset(header.next_offset)
                assert self.digests.setdefault(machine.applied, machine.digest) == machine.digest

    def check_logs(self) -> None:
        """Logs are equal as far as both are committed, and voters agree at the end."""
        live = [m for m in self.machines.values() if m.node is not None]
        for machine in live:
            assert machine.node is not None
            self._apply(machine, machine.node)
        assert not self.halts, self.halts

    def settle(self, ms: int = 20_000) -> None:
        """Heal all, and expect one leader whose log all nodes have, with new records committed."""
        self.heal()
        self.delay_us_max, self.sync_us_max = 3 * MS, 8 * MS
        for machine in self.machines.values():
            machine.disk.fault = None
            if machine.is_stuck:
                machine.release()
            if machine.is_paused:
                machine.resume()
            if machine.node is None:
                machine.start()
        self.run_until(lambda: self.leader is not None, ms)
        self.run(3000)
        self.run_until(lambda: self.leader is not None, ms)
        assert self.leader is not None
        offset = self.leader.append(b"after the healing")
        assert offset is not None
        self.run_until(
            lambda: all(
                m.node is not None and m.node.high_watermark > offset for m in self.machines.values()
            ),
            ms,
        )
        self.check_logs()
