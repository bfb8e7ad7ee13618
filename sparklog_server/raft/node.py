"""A node of the metadata quorum as the outside sees it: requests of others, responses, losses and time.

    handle_vote, handle_fetch … ──┐                             ┌──► answers, in this call or later
    replied, lost ────────────────┼──► `QuorumState` learns, ───┼──► requests to `peers`
    tick, syncs and jobs ─────────┘    then does what is due    └──► Sync, Run, Halt

The owner of a leader appends, and calls `flush` at the end of the turn.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sparklog.effects import Loss
from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, Micros, NodeId, Offset, OffsetAndEpoch, Uuid, earlier
from sparklog.record.control import KRaftVersion, VoterEndpoint, build_control
from sparklog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from sparklog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from sparklog.wire.messages.fetch import FetchRequest, FetchResponse
from sparklog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from sparklog.wire.messages.vote import VoteRequest, VoteRequestPartitionData, VoteResponse
from sparklog.wire.schema import Message
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log.log_config import LogConfig

from . import requests
from .durable_log import DurableLog, Trace
from .election_state import FILE_NAME, NO_NODE, ElectionState, parse
from .peers import Endpoint, NoPeers, Peer, Peers, Purpose, Sent
from .quorum_config import QuorumConfig
from .quorum_state import ENDED, QuorumState
from .requests import Myself, Told
from .roles import Role
from .snapshots import control_of, read_bootstrap
from .voter_history import Membership, VoterHistory
from .voters import VoterSet

if TYPE_CHECKING:
    from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
    from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
    from sparklog.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse

    from .reconfiguration import Reconfiguration

_LINK_RETRY_US = 5_000


class RaftNode:
    """One node and its log. Invariant: after a halt or `close` it sends and answers nothing.

    One class, because each call from outside ends alike: the state learns, what is due is done, and the
    answer leaves only if the node has not halted. Properties and short methods are its face to the broker,
    which never reaches into `QuorumState`.
    """

    def __init__(self, state: QuorumState) -> None:
        self.state = state
        self.durable = state.durable
        self.log = state.durable.log
        self.snapshots = state.durable.snapshots

    @classmethod
    def open(
        cls,
        disk: Disk,
        log_dir: str,
        settings: LogConfig,
        *,
        node_id: NodeId,
        directory_id: Uuid,
        voters: VoterSet,
        kraft_version: int = 0,
        continuations: Continuations,
        trace: Trace,
        now: Instant,
        cluster_id: str = "",
        endpoints: tuple[VoterEndpoint, ...] = (),
        peers: Peers | None = None,
        bootstrap: Sequence[Endpoint] = (),
        config: QuorumConfig | None = None,
        random: Callable[[int], int] = lambda _limit: 0,
    ) -> "RaftNode":
        """Open or begin the metadata log in `log_dir`. `voters` are those of the settings, which count where
        no snapshot and no record names any; `kraft_version` is that of a new log without a bootstrap
        snapshot. `random(n)` gives a number below `n`.

        Raises StorageError, of which ElectionStateCorrupt and LogDamaged are two.
        """
        durable = DurableLog.open(disk, log_dir, settings, continuations=continuations, trace=trace, now=now)
        state_path = f"{durable.log.directory}/{FILE_NAME}"
        state = parse(disk.read(state_path), state_path)
        is_new = not durable.end_offset
        history = VoterHistory(voters, kraft_version if is_new else 0)
        start = durable.log.log_start_offset
        if (found := read_bootstrap(disk, durable.log.directory)) is not None:
            history.begin(Offset(-1), found.control)
        for snapshot in reversed(durable.snapshots):
            if (control := control_of(disk, durable.log.directory, snapshot)) is not None:
                start = snapshot.offset
                if control:
                    history.begin(start, control)
                break
        for batches in durable.read_control(start):
            history.appended(batches)
        quorum = QuorumState(
            durable,
            state,
            history,
            me=Myself(cluster_id, node_id, directory_id, endpoints),
            peers=NoPeers() if peers is None else peers,
            bootstrap=bootstrap,
            config=QuorumConfig() if config is None else config,
            random=random,
            trace=trace,
        )
        return cls(quorum)

    # -- what the owner asks

    @property
    def directory_id(self) -> Uuid:
        """The directory of the log."""
        return self.state.me.directory_id

    @property
    def role(self) -> Role:
        """The role of this node."""
        return self.state.role

    @property
    def epoch(self) -> LeaderEpoch:
        """The latest epoch that this node knows."""
        return self.state.epoch

    @property
    def leader_id(self) -> NodeId:
        """The leader of the epoch; -1 while it is not known."""
        return self.state.leader_id

    @property
    def high_watermark(self) -> Offset:
        """All records below it are committed; 0 until this node has learned of any."""
        return self.state.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self.log.log_end_offset

    @property
    def is_leader(self) -> bool:
        """Whether this node leads and so may append."""
        return self.state.role is Role.LEADER

    @property
    def is_quiet(self) -> bool:
        """Whether no sync or job is pending, except for writes that wait for free space."""
        return self.durable.is_quiet and not self.state.election.is_writing

    @property
    def retry_at_us(self) -> Micros | None:
        """When a write is tried again that a full disk refused."""
        return self.durable.retry_at_us

    @property
    def kraft_version(self) -> int:
        """The kraft.version of the log with its uncommitted records."""
        return self.state.history.latest.kraft_version

    @property
    def voter_ids(self) -> Collection[NodeId]:
        """The node ids of the voters."""
        return self.state.voters.directories.keys()

    def membership(self, end_offset: Offset) -> Membership:
        """The voters and the kraft.version by the records below `end_offset`."""
        return self.state.history.at(end_offset)

    def start(self, now: Instant) -> None:
        """Take part: the only voter stands for election at once, another asks for the leader."""
        self.state.start(now)

    def append(self, batch: bytearray, now: Instant) -> Offset:
        """Append a leader's batch and return its base offset; `flush` makes it durable. Raises StorageError,
        and then nothing has changed.
        """
        serving = self.state.serving
        assert serving is not None
        base_offset = self.durable.append(batch, self.epoch, now)
        serving.wake(is_moved=False)
        return base_offset

    def upgrade_kraft_version(self, level: int, *, is_only_validated: bool, now: Instant) -> str | None:
        """Append a higher kraft.version and the voters with their directory ids in one batch, unless it
        `is_only_validated`; returns the reason of a refusal. For a leader, which calls `flush` afterwards.
        """
        leading = self.state.leading
        assert leading is not None
        voters = leading.identified(self.directory_id)
        if isinstance(voters, str):
            return voters
        if is_only_validated:
            return None
        batch = build_control(KRaftVersion(k_raft_version=level), voters.record(), timestamp_ms=now.wall_ms)
        try:
            self.append(batch, now)
        except StorageError as error:
            if not error.is_full:
                self.halt(error)
            return f"The metadata log cannot grow: {error}"
        self.state.history.appended(batch)
        leading.voters = voters
        return None

    def flush(self, now: Instant) -> None:
        """Begin a sync of what this leader appended; if one is in flight, the next one follows it."""
        if self.is_leader:
            self.durable.flush(now)

    def resign(self, now: Instant) -> None:
        """Give up the leadership, before a stop."""
        self.state.resign(now)
        self.state.poll(now)

    def halt(self, error: StorageError) -> None:
        """Stop for good: the disk of the metadata log is unreliable."""
        self.state.halt(error)

    def close(self, now: Instant) -> None:
        """Close the log; cleanly unless the node was halted or the disk refuses, in which case the next start
        recovers it.
        """
        self.state.end(Role.CLOSED)
        self.durable.close(now)

    # -- time

    def tick(self, now: Instant) -> None:
        """Do what is due: elections, requests that got no response, writes that a full disk refused."""
        if self.role in ENDED:
            return
        if self.durable.tick(now):
            self.state.election.write(now)
        for correlation, sent in self.state.in_flight.expired(now):
            self._lost(correlation, sent, Loss.TIMED_OUT, now)
        self.state.poll(now)

    def deadline(self) -> Micros | None:
        """The time of the next call of `tick`."""
        return earlier(self.durable.deadline(), self.state.deadline())

    # -- responses

    def replied(self, correlation: int, response: Message, now: Instant) -> None:
        """The response to a request has come."""
        sent = self.state.in_flight.replied(correlation)
        if sent is None or self.role in ENDED:
            return
        if isinstance(response, VoteResponse) and isinstance(sent.request, VoteRequest):
            self._vote_replied(sent.peer, sent.request, response, now)
        elif isinstance(response, FetchResponse):
            self._fetch_replied(correlation, sent.peer, response, now)
        elif isinstance(response, FetchSnapshotResponse):
            self._snapshot_replied(correlation, sent.peer, response, now)
        elif isinstance(response, (BeginQuorumEpochResponse, EndQuorumEpochResponse)):
            told = requests.epoch_told(response)
            if told is not None:
                self._learned(told, now)
        elif self.state.reconfiguration is not None:
            self.state.reconfiguration.replied(correlation, response, now)
        elif self.role is Role.FOLLOWER:
            self.state.change_answered(response, now)
        self.state.poll(now)

    def lost(self, peer: Peer, purpose: Purpose, loss: Loss, now: Instant) -> None:
        """A link was lost, and the requests on it with it."""
        if self.role in ENDED:
            return
        for correlation, sent in self.state.in_flight.lost(peer, purpose):
            self._lost(correlation, sent, loss, now)
        self.state.poll(now)

    def _learned(self, told: Told, now: Instant) -> None:
        self.state.learned(told.epoch, told.leader_id, told.endpoint, now)

    def _vote_replied(self, voter: Peer, request: VoteRequest, response: VoteResponse, now: Instant) -> None:
        asked, answered = requests.vote_asked(request), requests.vote_told(response)
        assert asked is not None
        if answered is None:
            # A voter of an old release has no pre-vote: it is taken as granted, as in Kafka.
            is_granted = asked.pre_vote and response.error_code == ErrorCode.UNSUPPORTED_VERSION
        else:
            told, is_granted = answered
            self._learned(told, now)
            is_granted = is_granted and told.error == ErrorCode.NONE
        electing = self.state.electing
        if (
            electing is not None
            and electing.is_pre_vote == asked.pre_vote
            and asked.replica_epoch == self.epoch
            and not isinstance(voter, Endpoint)
        ):
            electing.answered(voter, is_granted)

    def _fetch_replied(self, correlation: int, peer: Peer, response: FetchResponse, now: Instant) -> None:
        if not self.state.following.is_current(correlation):
            return  # of another leader or epoch (KAFKA-18991)
        answered = requests.fetch_told(response)
        if answered is None:
            self.state.fetch_again(now, self.state.config.retry_us)
            return
        told, data = answered
        if self._is_of_leader(told, peer, now):
            self.state.leader_heard(now)
            self.state.following.fetched(data, now)

    def _snapshot_replied(
        self, correlation: int, peer: Peer, response: FetchSnapshotResponse, now: Instant
    ) -> None:
        if not self.state.following.is_current(correlation):
            return
        answered = requests.snapshot_told(response)
        if answered is None:
            self.state.fetch_again(now, self.state.config.retry_us)
            return
        told, data = answered
        gone = (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)
        if told.error in gone or self._is_of_leader(told, peer, now):
            self.state.leader_heard(now)
            self.state.following.snapshot_fetched(data, now)

    def _is_of_leader(self, told: Told, peer: Peer, now: Instant) -> bool:
        """Learn from the response to a fetch: whether it is that of the leader of this epoch, without an
        error. Otherwise another fetch follows.
        """
        state = self.state
        before = (state.epoch, state.leader_id, state.role)
        self._learned(told, now)
        if before != (state.epoch, state.leader_id, state.role):
            return False
        if told.error == ErrorCode.NONE and told.epoch == state.epoch and state.role is Role.FOLLOWER:
            return True
        if told.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and peer == state.leader_id == told.leader_id:
            state.leader_left(now)
        state.fetch_again(now, state.config.retry_us)
        return False

    def _lost(self, correlation: int, sent: Sent, loss: Loss, now: Instant) -> None:
        """A request has got no response."""
        state = self.state
        if isinstance(sent.request, VoteRequest) and not isinstance(sent.peer, Endpoint):
            if state.electing is not None:
                state.electing.lost(sent.peer, now, is_refused=loss is Loss.REFUSED)
        elif isinstance(sent.request, EndQuorumEpochRequest) and not isinstance(sent.peer, Endpoint):
            if state.resigning is not None:
                state.resigning.lost(sent.peer, now)
        elif state.reconfiguration is not None:
            state.reconfiguration.lost(correlation)
        elif state.following.is_current(correlation):
            is_ended = loss in (Loss.ENDED, Loss.RESET)
            state.fetch_again(now, _LINK_RETRY_US if is_ended else state.config.retry_us)
            if loss is Loss.REFUSED and sent.peer == state.leader_id:
                state.leader_refused(now)

    # -- requests of others

    def handle_vote(self, request: VoteRequest, answer: Callable[[VoteResponse], None], now: Instant) -> None:
        """A candidate asks for the vote of this node, or whether it would get it (a pre-vote)."""
        asked = requests.vote_asked(request)
        if (error := self._misdirected(request.cluster_id, asked is None)) is not None or asked is None:
            self._answer(partial(answer, VoteResponse(error_code=error or ErrorCode.INVALID_REQUEST)))
            return
        error, is_granted = self._vote(asked, request.voter_id, now)
        self._answer(partial(answer, requests.vote_response(error, self.state.known, is_granted=is_granted)))
        self.state.poll(now)

    def _vote(self, asked: VoteRequestPartitionData, voter_id: int, now: Instant) -> tuple[ErrorCode, bool]:
        """Decide on a vote, and take note of one that is granted."""
        state, epoch = self.state, asked.replica_epoch
        last = LeaderEpoch(asked.last_offset_epoch)
        is_illegal = last > epoch if asked.pre_vote else last >= epoch
        if is_illegal or last < 0 or asked.last_offset < 0 or asked.replica_id < 0:
            return ErrorCode.INVALID_REQUEST, False
        if epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, False
        if epoch > state.epoch:
            state.unattach(LeaderEpoch(epoch), now)
        if not self._is_me(voter_id, asked.voter_directory_id):
            return ErrorCode.INVALID_VOTER_KEY, False
        is_up_to_date = (last, asked.last_offset) >= (self.durable.last_epoch, self.log_end_offset)
        if asked.pre_vote:
            # Granted unless the leader is alive; a refused link to it counts like a silent one.
            is_led = self.is_leader or (state.role is Role.FOLLOWER and state.following.has_fetched)
            return ErrorCode.NONE, is_up_to_date and not is_led
        candidate, directory = NodeId(asked.replica_id), Uuid(asked.replica_directory_id)
        voted = state.election.state
        if voted.voted_id != NO_NODE:
            is_same = (voted.voted_id, voted.voted_directory_id) == (candidate, directory)
            return ErrorCode.NONE, is_same and state.role is not Role.FOLLOWER
        if state.role not in (Role.UNATTACHED, Role.PROSPECTIVE) or state.leader_id != NO_NODE:
            return ErrorCode.NONE, False
        if is_up_to_date:
            state.election.put(ElectionState(state.epoch, NO_NODE, candidate, directory))
            state.voted(now)
        return ErrorCode.NONE, is_up_to_date

    def handle_begin_quorum_epoch(
        self,
        request: BeginQuorumEpochRequest,
        answer: Callable[[BeginQuorumEpochResponse], None],
        now: Instant,
    ) -> None:
        """A leader tells of its epoch."""
        told = requests.begin_told(request)
        if (error := self._misdirected(request.cluster_id, told is None)) is not None or told is None:
            response = BeginQuorumEpochResponse(error_code=error or ErrorCode.INVALID_REQUEST)
            self._answer(partial(answer, response))
            return
        data, endpoint = told
        error = self.state.learned(data.leader_epoch, data.leader_id, endpoint, now)
        if error is ErrorCode.NONE and not self._is_me(request.voter_id, data.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        self._answer(partial(answer, requests.begin_response(error, self.state.known)))
        self.state.poll(now)

    def handle_end_quorum_epoch(
        self, request: EndQuorumEpochRequest, answer: Callable[[EndQuorumEpochResponse], None], now: Instant
    ) -> None:
        """A leader resigned: the voters stand for election one after the other, in the order it prefers."""
        told = requests.end_told(request)
        if (error := self._misdirected(request.cluster_id, told is None)) is not None or told is None:
            response = EndQuorumEpochResponse(error_code=error or ErrorCode.INVALID_REQUEST)
            self._answer(partial(answer, response))
            return
        data, endpoint = told
        error = self.state.learned(data.leader_epoch, data.leader_id, endpoint, now)
        if error is ErrorCode.NONE and self.role is Role.FOLLOWER and self.leader_id == data.leader_id:
            successors = [candidate.candidate_id for candidate in data.preferred_candidates]
            self.state.leader_resigned(successors, now)
        self._answer(partial(answer, requests.end_response(error, self.state.known)))
        self.state.poll(now)

    def handle_fetch(
        self, request: FetchRequest, answer: Callable[[FetchResponse], None], now: Instant
    ) -> None:
        """A replica fetches the metadata log; it may wait for records."""
        asked = requests.fetch_asked(request)
        if (error := self._misdirected(request.cluster_id, asked is None)) is not None or asked is None:
            self._answer(partial(answer, FetchResponse(error_code=error or ErrorCode.INVALID_REQUEST)))
            return
        epoch = asked.current_leader_epoch
        if request.max_wait_ms < 0 or asked.fetch_offset < 0 or not 0 <= asked.last_fetched_epoch <= epoch:
            error = ErrorCode.INVALID_REQUEST
        else:
            error = self._not_led(epoch)
        if error is not ErrorCode.NONE or self.state.serving is None:
            self._answer(partial(answer, requests.fetch_response(error, self.state.known)))
            return
        if self.state.serving.fetch(
            request, asked, requests.replica_of(request), lambda r: self._answer(partial(answer, r)), now
        ):
            self.state.advanced(now)
        if self.state.reconfiguration is not None:
            self.state.reconfiguration.poll(now)

    def handle_fetch_snapshot(
        self, request: FetchSnapshotRequest, answer: Callable[[FetchSnapshotResponse], None], now: Instant
    ) -> None:
        """A replica reads a snapshot by position. Raises StorageError."""
        asked = requests.snapshot_asked(request)
        if (error := self._misdirected(request.cluster_id, asked is None)) is not None or asked is None:
            self._answer(
                partial(answer, FetchSnapshotResponse(error_code=error or ErrorCode.INVALID_REQUEST))
            )
            return
        error = self._not_led(asked.current_leader_epoch)
        if error is not ErrorCode.NONE or self.state.serving is None or self.state.leading is None:
            self._answer(partial(answer, requests.snapshot_response(error, self.state.known)))
            return
        found = OffsetAndEpoch(Offset(asked.snapshot_id.end_offset), LeaderEpoch(asked.snapshot_id.epoch))
        response = self.state.serving.snapshot(found, asked.position, request.max_bytes)
        self.state.leading.follower_heard(NodeId(request.replica_id), Uuid(asked.replica_directory_id), now)
        self._answer(partial(answer, response))

    # -- changes of the voters

    def handle_add_raft_voter(
        self, request: "AddRaftVoterRequest", answer: "Callable[[AddRaftVoterResponse], None]", now: Instant
    ) -> None:
        """Add a voter (KIP-853)."""
        from .reconfiguration import add_response, asked_addition

        def told(code: ErrorCode, reason: str | None) -> None:
            self._answer(partial(answer, add_response(code, reason)))

        if (changes := self._changes(request.cluster_id, told)) is None:
            return
        asked = asked_addition(request, self._listener)
        if isinstance(asked, str):
            told(ErrorCode.INVALID_REQUEST, asked)
        else:
            changes.add(
                asked,
                timeout_us=1000 * request.timeout_ms,
                is_acked_early=not request.ack_when_committed,
                answer=told,
                now=now,
            )
        self.state.poll(now)

    def handle_remove_raft_voter(
        self,
        request: "RemoveRaftVoterRequest",
        answer: "Callable[[RemoveRaftVoterResponse], None]",
        now: Instant,
    ) -> None:
        """Remove a voter (KIP-853)."""
        from .reconfiguration import asked_removal, remove_response

        def told(code: ErrorCode, reason: str | None) -> None:
            self._answer(partial(answer, remove_response(code, reason)))

        if (changes := self._changes(request.cluster_id, told)) is None:
            return
        asked = asked_removal(request)
        if isinstance(asked, str):
            told(ErrorCode.INVALID_REQUEST, asked)
        else:
            changes.remove(*asked, answer=told, now=now)
        self.state.poll(now)

    def handle_update_raft_voter(
        self,
        request: "UpdateRaftVoterRequest",
        answer: "Callable[[UpdateRaftVoterResponse], None]",
        now: Instant,
    ) -> None:
        """A voter tells its endpoints (KIP-853)."""
        from .reconfiguration import asked_update, update_response

        def told(code: ErrorCode, _: str | None) -> None:
            self._answer(partial(answer, update_response(code, self.state.known)))

        error = self._not_led(request.current_leader_epoch)
        if error is not ErrorCode.NONE:
            told(error, None)
        elif (changes := self._changes(request.cluster_id, told)) is not None:
            asked, levels = asked_update(request, self._listener), request.kraft_version_feature
            if asked is None:
                told(ErrorCode.INVALID_REQUEST, None)
            else:
                code = changes.update(
                    asked,
                    lowest_level=levels.min_supported_version,
                    highest_level=levels.max_supported_version,
                    now=now,
                )
                told(code, None)
        self.state.poll(now)

    @property
    def _listener(self) -> str:
        """The name of the listener at which voters reach each other; empty on a node that has none."""
        endpoints = self.state.me.endpoints
        return endpoints[0].name if endpoints else ""

    def _changes(
        self, cluster_id: str | None, told: Callable[[ErrorCode, str | None], None]
    ) -> "Reconfiguration | None":
        """The changes of this leadership; None for a request that is refused."""
        if (error := self._misdirected(cluster_id, False)) is not None:
            own = self.state.me.cluster_id
            told(error, f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"')
        elif (changes := self.state.reconfigured()) is not None:
            return changes
        else:
            told(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        return None

    def _misdirected(self, cluster_id: str | None, is_other_log: bool) -> ErrorCode | None:
        if cluster_id is not None and cluster_id != self.state.me.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return ErrorCode.INVALID_REQUEST if is_other_log else None

    def _is_me(self, node_id: int, directory_id: bytes) -> bool:
        """Whether a request was sent to this node and directory; old versions do not tell."""
        return node_id in (NO_NODE, self.state.me.node_id) and (
            not any(directory_id) or directory_id == self.state.me.directory_id
        )

    def _not_led(self, epoch: int) -> ErrorCode:
        if epoch < self.state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _answer(self, answer: Callable[[], None]) -> None:
        if self.role not in ENDED:
            self.state.election.when_durable(answer)
