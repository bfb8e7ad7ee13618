"""A raft node as a process of a simulated machine: it exchanges encoded frames over links and sessions.

node ── send ──► frame on a link ──► frame of a session ──► node
node ◄── replied, lost ── link                session ◄── answer ──┘
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from sparklog.effects import Effect, LinkId, Loss, Reply, SendTo
from sparklog.errors import ErrorCode, code_of
from sparklog.model import Instant, LeaderEpoch, Micros, NodeId, Offset, SessionId, Ticket, Uuid
from sparklog.record.batch import build_batch
from sparklog.record.control import ControlMessage, KRaftVersion
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.codec import decode_request
from sparklog.wire.frame import Framer
from sparklog.wire.header import (
    RequestHeader,
    decode_reply,
    decode_request_header,
    encode_reply,
    encode_request,
)
from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from sparklog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from sparklog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from sparklog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from sparklog.wire.messages.fetch import FetchRequest, FetchResponse
from sparklog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from sparklog.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from sparklog.wire.messages.vote import VoteRequest, VoteResponse
from sparklog.wire.schema import Message
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.metadata.features import KRAFT_LEVEL, KRAFT_VERSION
from sparklog_server.raft.durable_log import METADATA_PARTITION
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.peers import Endpoint, Peer, Purpose
from sparklog_server.raft.quorum_config import QuorumConfig
from sparklog_server.raft.quorum_state import ENDED
from sparklog_server.raft.snapshots import write_bootstrap
from sparklog_server.raft.voters import VoterSet, endpoint_of
from sparklog_server.simulation.invariants import RaftWatch
from sparklog_server.simulation.raft_snapshots import RaftSnapshots
from sparklog_server.simulation.world import Machine, address_of

_FRAME_BYTES_MAX = 2 << 20
_BUFFER_BYTES = 64 << 10
_REPLY_OF: dict[type[Message], type[Message]] = {
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    FetchRequest: FetchResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
    ApiVersionsRequest: ApiVersionsResponse,
    AddRaftVoterRequest: AddRaftVoterResponse,
    RemoveRaftVoterRequest: RemoveRaftVoterResponse,
    UpdateRaftVoterRequest: UpdateRaftVoterResponse,
}
_SETTINGS = LogConfig(segment_bytes=2 << 10)
_LOG_DIR = "data"
_IDENTITY = "identity"
CLUSTER_ID = "a-simulated-cluster"
_APIS = [ApiVersion(52, 0, API_BY_KEY[52].latest)]
_FEATURES = [SupportedFeatureKey(KRAFT_VERSION, 0, KRAFT_LEVEL)]
_KEYS = {cls: api.key for api in API_BY_KEY.values() for cls in (api.request(),) if cls in _REPLY_OF}
_REQUEST_OF = {key: cls for cls, key in _KEYS.items()}
_VERSION_OF = {cls: API_BY_KEY[key].latest for cls, key in _KEYS.items()}


class _Link:
    """A connection to a peer: the requests without a response, by correlation."""

    __slots__ = ("framer", "id", "peer", "purpose", "sent")

    def __init__(self, link: LinkId, peer: Peer, purpose: Purpose, buffer: bytearray) -> None:
        self.id = link
        self.peer = peer
        self.purpose = purpose
        self.sent: dict[int, type[Message]] = {}
        self.framer = Framer(frame_bytes_max=_FRAME_BYTES_MAX, shared=buffer)


class RaftProcess:
    """One process: a raft node of `raft_class`, which a test replaces by one with a planted fault.

    With `is_dynamic`, a bootstrap snapshot names the voters (kraft.version 1), else the settings do.
    """

    def __init__(
        self,
        machine: Machine,
        voters: Mapping[NodeId, Uuid],
        watch: RaftWatch,
        *,
        snapshot_offsets: int,
        is_dynamic: bool,
        is_joining: bool = False,
        bootstrap: Sequence[NodeId] = (),
        raft_class: type[RaftNode] = RaftNode,
    ) -> None:
        self._machine = machine
        self._voters = voters
        self._voter_set = VoterSet(voters, {node: endpoint_of(*address_of(node)) for node in voters})
        self._is_dynamic = is_dynamic
        self._config = QuorumConfig(is_joining=is_joining)
        self._bootstrap = bootstrap or list(voters)
        self._watch = watch
        self._raft_class = raft_class
        self._continuations = Continuations()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._links: dict[LinkId, _Link] = {}
        self._link_of: dict[tuple[Peer, Purpose], _Link] = {}
        self._link_count = 0
        self._sessions: dict[SessionId, Framer] = {}
        self._parked: deque[tuple[LeaderEpoch, Offset]] = deque()  # proposals that are not committed yet
        self._applied = Offset(0)
        self._snapshots = RaftSnapshots(machine, watch, self._continuations, snapshot_offsets)
        self.raft: RaftNode

    # -- the machine's calls

    def start(self, now: Instant) -> list[Effect]:
        """Open the directory, which is formatted first on an empty disk."""
        machine = self._machine
        directory = self._directory_id(now)
        self.raft = self._raft_class.open(
            machine.disk,
            _LOG_DIR,
            _SETTINGS,
            node_id=machine.node,
            directory_id=directory,
            voters=VoterSet({}) if self._is_dynamic else self._voter_set,
            continuations=self._continuations,
            trace=self._trace,
            now=now,
            cluster_id=CLUSTER_ID,
            endpoints=endpoint_of(*address_of(machine.node)),
            peers=self,
            bootstrap=[Endpoint(*address_of(node)) for node in self._bootstrap],
            config=self._config,
            random=machine.random.randrange,
        )
        self._watch.started(machine, directory, self.raft)
        self._snapshots.load(self.raft)
        self.raft.start(now)
        return self._turned(now)

    def _directory_id(self, now: Instant) -> Uuid:
        disk, node = self._machine.disk, self._machine.node
        disk.make_directory(_LOG_DIR)
        found = disk.read(f"{_LOG_DIR}/{_IDENTITY}")
        if found is None:
            is_new = self._machine.life == 1
            found = (
                self._voters[node] if is_new and node in self._voters else self._machine.random.randbytes(16)
            )
            if is_new and self._is_dynamic:
                self._format(now)
            disk.write(f"{_LOG_DIR}/{_IDENTITY}", found)
        return Uuid(found)

    def _format(self, now: Instant) -> None:
        directory = f"{_LOG_DIR}/{METADATA_PARTITION}"
        self._machine.disk.make_directory(directory)
        control: list[ControlMessage] = [KRaftVersion(0, 1), self._voter_set.record()]
        write_bootstrap(self._machine.disk, directory, control, wall_ms=now.wall_ms)

    def connected(self, session: SessionId, port: int, now: Instant) -> list[Effect]:
        """A peer has connected."""
        self._sessions[session] = Framer(frame_bytes_max=_FRAME_BYTES_MAX, shared=self._buffer)
        return []

    def disconnected(self, session: SessionId, now: Instant) -> list[Effect]:
        """A peer's connection has ended."""
        self._sessions.pop(session).release()
        return []

    def received(self, session: SessionId, data: bytes, now: Instant) -> list[Effect]:
        """Requests of a peer."""
        for frame in _frames(self._sessions[session], data):
            header, body = decode_request_header(frame)
            request = decode_request(_REQUEST_OF[header.api_key], header.api_version, body)
            answer = partial(self._answered, session, header, request)
            raft = self.raft
            match request:
                case FetchRequest():
                    raft.handle_fetch(request, answer, now)
                case VoteRequest():
                    raft.handle_vote(request, answer, now)
                case BeginQuorumEpochRequest():
                    raft.handle_begin_quorum_epoch(request, answer, now)
                case EndQuorumEpochRequest():
                    raft.handle_end_quorum_epoch(request, answer, now)
                case FetchSnapshotRequest():
                    raft.handle_fetch_snapshot(request, answer, now)
                case ApiVersionsRequest():
                    answer(ApiVersionsResponse(api_keys=_APIS, supported_features=_FEATURES))
                case AddRaftVoterRequest():
                    raft.handle_add_raft_voter(request, answer, now)
                case RemoveRaftVoterRequest():
                    raft.handle_remove_raft_voter(request, answer, now)
                case UpdateRaftVoterRequest():
                    raft.handle_update_raft_voter(request, answer, now)
        return self._turned(now)

    def _answered(
        self, session: SessionId, header: RequestHeader, request: Message, response: Message
    ) -> None:
        if isinstance(response, VoteResponse) and isinstance(request, VoteRequest):
            self._note_vote(request, response)
        chunks = encode_reply(response, header.api_key, header.api_version, header.correlation_id)
        self._continuations.effects.append(Reply(session, chunks))

    def link_received(self, link: LinkId, data: bytes, now: Instant) -> list[Effect]:
        """Responses of a peer."""
        found = self._links.get(link)
        if found is None:
            return []
        for frame in _frames(found.framer, data):
            correlation = int.from_bytes(frame[:4], "big")
            request = found.sent.pop(correlation)
            _, response = decode_reply(_REPLY_OF[request], _VERSION_OF[request], frame)
            self.raft.replied(correlation, response, now)
        return self._turned(now)

    def link_lost(self, link: LinkId, loss: Loss, now: Instant) -> list[Effect]:
        """A link is lost, and every request on it."""
        found = self._links.pop(link, None)
        if found is not None:
            found.framer.release()
            del self._link_of[found.peer, found.purpose]
            self.raft.lost(found.peer, found.purpose, loss, now)
        return self._turned(now)

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]:
        """A sync or job has ended."""
        self._continuations.finished(ticket, result, now)
        return self._turned(now)

    def tick(self, now: Instant) -> list[Effect]:
        """The deadline has passed."""
        self.raft.tick(now)
        return self._turned(now)

    def deadline(self) -> Micros | None:
        """The next time for `tick`."""
        return self.raft.deadline()

    def begin_stop(self, now: Instant) -> list[Effect]:
        """A leader resigns."""
        self.raft.resign(now)
        return self._turned(now)

    def close(self, now: Instant) -> None:
        """Close the log, unless the disk is still at work."""
        if self.raft.is_quiet:
            self.raft.close(now)

    # -- the node's port

    def send(self, peer: Peer, purpose: Purpose, correlation: int, request: Message, now: Instant) -> None:
        """Send a request over the link to the peer, which is opened if there is none."""
        node = NodeId(int(peer.host[1:])) if isinstance(peer, Endpoint) else peer
        link = self._link_of.get((peer, purpose))
        if link is None:
            self._link_count += 1
            link_id = LinkId(address_of(node), purpose.value, self._link_count)
            link = _Link(link_id, peer, purpose, self._buffer)
            self._link_of[peer, purpose] = self._links[link_id] = link
        kind = type(request)
        link.sent[correlation] = kind
        if isinstance(request, VoteRequest):
            self._note_candidate(request)
        chunks = encode_request(request, _VERSION_OF[kind], correlation, None)
        self._continuations.effects.append(SendTo(link.id, chunks))

    def located(self, node: NodeId, endpoint: Endpoint) -> None:
        """Ignored: the address of a machine follows from its node id."""

    # -- the client's calls

    def propose(self, value: bytes, now: Instant) -> list[Effect]:
        """Append a record, if this node leads."""
        raft = self.raft
        if raft.is_leader:
            with contextlib.suppress(StorageError):  # a full disk
                offset = raft.append(build_batch([(None, value, (), now.wall_ms)]), now)
                self._parked.append((raft.epoch, offset))
            raft.flush(now)
        return self._turned(now)

    def add_voter(
        self, node: NodeId, directory: Uuid, answered: Callable[[ErrorCode], None], now: Instant
    ) -> list[Effect]:
        """Ask this node to add a voter."""
        request = AddRaftVoterRequest(
            CLUSTER_ID, 5_000, node, directory, [Listener("CONTROLLER", *address_of(node))]
        )
        self.raft.handle_add_raft_voter(request, lambda told: answered(code_of(told.error_code)), now)
        return self._turned(now)

    def remove_voter(
        self, node: NodeId, directory: Uuid, answered: Callable[[ErrorCode], None], now: Instant
    ) -> list[Effect]:
        """Ask this node to remove a voter."""
        request = RemoveRaftVoterRequest(CLUSTER_ID, node, directory)
        self.raft.handle_remove_raft_voter(request, lambda told: answered(code_of(told.error_code)), now)
        return self._turned(now)

    def _turned(self, now: Instant) -> list[Effect]:
        """End a turn: answer the proposals below the high watermark, and write the snapshots that are due."""
        raft = self.raft
        if raft.high_watermark != self._applied and raft.role not in ENDED and not raft.durable.is_cutting:
            self._applied = raft.high_watermark
            self._watch.check(self._machine)
            self._acknowledge()
            self._snapshots.advanced(raft, now)
        return self._continuations.take_effects()

    def _acknowledge(self) -> None:
        raft = self.raft
        if not raft.is_leader:
            self._parked.clear()
        while self._parked and self._parked[0][1] < raft.high_watermark:
            epoch, offset = self._parked.popleft()
            if epoch == raft.epoch:
                self._watch.acknowledged(self._machine, offset)

    # -- calls of the watch

    def _note_candidate(self, request: VoteRequest) -> None:
        asked = request.topics[0].partitions[0]
        if not asked.pre_vote:
            node = self._machine.node
            self._watch.votes(self._machine, self.raft.log.directory, LeaderEpoch(asked.replica_epoch), node)

    def _note_vote(self, request: VoteRequest, response: VoteResponse) -> None:
        asked = request.topics[0].partitions[0]
        if response.topics and response.topics[0].partitions[0].vote_granted and not asked.pre_vote:
            candidate = NodeId(asked.replica_id)
            self._watch.votes(
                self._machine, self.raft.log.directory, LeaderEpoch(asked.replica_epoch), candidate
            )

    def _trace(self, event: str, **fields: object) -> None:
        self._machine.world.told(self._machine, event, fields)


def _frames(framer: Framer, data: bytes) -> Iterator[memoryview]:
    """The complete frames in `data`."""
    position = 0
    while position < len(data):
        room = framer.buffer()
        size = min(len(room), len(data) - position)
        room[:size] = data[position : position + size]
        position += size
        yield from framer.received(size)
