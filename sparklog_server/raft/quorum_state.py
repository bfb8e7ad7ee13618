"""The role of a node, its epoch and its leader, and what it does by itself in each role.

Each input first moves the node to the highest epoch it tells of and to the leader of that epoch (`learned`);
`poll` then does what is due in the role. `roles` has the legal moves; a move leaves the former role's state
behind: votes, parked fetches, the fetch in flight.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sparklog.effects import Halt
from sparklog.errors import ErrorCode, code_of
from sparklog.model import Instant, LeaderEpoch, Micros, NodeId, Offset, OffsetAndEpoch, earlier
from sparklog.record.batch import Buffer
from sparklog.record.control import ControlMessage, LeaderChange, build_control
from sparklog.wire.schema import Message
from sparklog_server.disk.door import StorageError

from . import requests
from .durable_log import DurableLog, Events, Trace
from .electing import Electing
from .election_state import NO_NODE, ElectionState
from .election_store import ElectionStore
from .following import Following
from .leading import Leading
from .peers import Endpoint, InFlight, Peer, Peers, Purpose
from .quorum_config import QuorumConfig
from .requests import Known, Myself
from .resigning import Resigning, delay_us_of
from .roles import LEGAL, Role
from .serving import Serving
from .voter_history import VoterHistory
from .voters import VoterSet

if TYPE_CHECKING:
    from .reconfiguration import Reconfiguration

_QUICK_US, _QUICK_SPREAD_US = 20_000, 130_000
"""A voter that knows no leader stands for election after the first, and up to the second more."""
_REFUSED_SPREAD_US = 50_000
_NOT_YET_US = 100_000
_FIRST_CHANGE_US = 100_000
"""A follower asks for its first change of the voters after this time, and again after a fetch timeout."""
_NEXT_CHANGE_US = 250_000
"""Or so soon after the leader has told that it may: another change was under way, or the first is made."""
ENDED = (Role.HALTED, Role.CLOSED)


class QuorumState:
    """Invariants: no message leaves before the epoch and vote that it tells are durable; `high_watermark` is
    at most the log end, a majority has synced everything below it, and it never goes back.

    One class, because each transition reads the epoch, the vote, the role and the log end of one moment, and
    stores before it sends. What belongs to one role is in `leading`, `following`, `electing` and
    `resigning`, and what belongs to one request in `requests`.
    """

    def __init__(
        self,
        durable: DurableLog,
        state: ElectionState,
        history: VoterHistory,
        *,
        me: Myself,
        peers: Peers,
        bootstrap: Sequence[Endpoint],
        config: QuorumConfig,
        random: Callable[[int], int],
        trace: Trace,
    ) -> None:
        # A log ahead of `quorum-state` means that the file was lost: the epochs in the log have been used.
        if state.epoch < durable.last_epoch:
            state = ElectionState(durable.last_epoch)
        self.role = Role.UNATTACHED
        self.epoch = state.epoch
        self.leader_id = NO_NODE
        self.high_watermark = Offset(0)
        self.durable = durable
        self.history = history
        self.me = me
        self.leading: Leading | None = None
        self.serving: Serving | None = None
        self.electing: Electing | None = None
        self.resigning: Resigning | None = None
        self.reconfiguration: Reconfiguration | None = None  # of a leader that was asked to change voters
        self.change_due_us: Micros | None = None  # when a follower asks the leader to change the voters
        self.due_us: Micros | None = None  # when a voter stands for election
        self.in_flight = InFlight(peers, Micros(config.request_timeout_us))
        self.election = ElectionStore(state, durable, stored=self._stored, failed=self.halt)
        self.following = Following(durable, me, self.in_flight, self, config, trace)
        self._peers = peers
        self._bootstrap = bootstrap
        self.config = config
        self._random = random
        self._trace = trace
        self._logged: set[Role] = set()  # the roles of this epoch in the log, since the leader was heard
        self._endpoint: Endpoint | None = None  # of the leader
        self._lost_count = 0  # elections since a leader was heard
        self._target = 0  # of an observer that looks for the leader
        durable.tell(Events(self._synced, self.poll, self.halt))
        self._locate_voters()

    @property
    def voters(self) -> VoterSet:
        """The voters in force."""
        return self.history.latest.voters

    @property
    def is_voter(self) -> bool:
        """Whether this node, with its directory, is a voter."""
        return self.voters.has(self.me.node_id, self.me.directory_id)

    @property
    def _may_lead(self) -> bool:
        """Whether this node is a voter, or was one before records that may not be committed. A leader whose
        own removal reached no other voter has the longest log and must lead again to commit it, with the
        votes of the others alone (Raft thesis, 4.2.2).
        """
        if self.is_voter:
            return True
        committed = self.history.at(self.high_watermark).voters
        return committed.has(self.me.node_id, self.me.directory_id)

    @property
    def _is_alone(self) -> bool:
        """Whether this node is the only voter: its election ends when its disk has room for it."""
        return self.voters.majority == 1 and self.is_voter

    @property
    def known(self) -> Known:
        """What every response tells."""
        return Known(self.epoch, self.leader_id, self._endpoint)

    # -- moves

    def start(self, now: Instant) -> None:
        """Take part: the only voter stands for election at once, another follows the leader it knew."""
        leader = self.election.state.leader_id
        if self._is_alone:
            self._stand(now)
        elif leader in self.voters and leader != self.me.node_id:
            self._follow(self.epoch, leader, None, now)
        else:
            self._set_due(self._quick_us(), now)
        self.poll(now)

    def learned(self, epoch: int, leader_id: int, endpoint: Endpoint | None, now: Instant) -> ErrorCode:
        """A message tells of an epoch and its leader, -1 for none: move there if it is news. Returns the
        error for a request with it.
        """
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        leader = NodeId(leader_id)
        is_other = leader not in (NO_NODE, self.me.node_id)
        if epoch > self.epoch:
            if is_other:
                self._follow(LeaderEpoch(epoch), leader, endpoint, now)
            else:
                self.unattach(LeaderEpoch(epoch), now)
        elif is_other and self.leader_id == NO_NODE and self.role is not Role.RESIGNED:
            self._follow(self.epoch, leader, endpoint, now)
        elif is_other and self.leader_id == leader and self.role is Role.PROSPECTIVE:
            return ErrorCode.NONE  # its pre-vote finds out whether that leader is alive
        elif is_other and self.leader_id != leader:
            self._trace("raft-two-leaders", epoch=epoch, leader=leader, known=self.leader_id)
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _become(
        self, role: Role, epoch: LeaderEpoch, leader: NodeId = NO_NODE, endpoint: Endpoint | None = None
    ) -> None:
        """Move, and leave the state of the former role behind."""
        assert role in LEGAL[self.role], f"{self.role.name} → {role.name}"
        assert epoch >= self.epoch
        if epoch > self.epoch:
            self._logged.clear()
        self.role, self.epoch, self.leader_id, self._endpoint = role, epoch, leader, endpoint
        if role not in self._logged:
            self._trace("raft-role", node=self.me.node_id, role=role.value, epoch=epoch)
            self._logged.add(role)
        serving, self.serving, self.leading = self.serving, None, None
        reconfiguration, self.reconfiguration = self.reconfiguration, None
        self.electing = self.resigning = self.due_us = self.change_due_us = None
        self.following.begin(None)
        if serving is not None:
            serving.end(self.known)
        if reconfiguration is not None:
            reconfiguration.end()

    def unattach(self, epoch: LeaderEpoch, now: Instant) -> None:
        """Move to a later epoch whose leader is not known."""
        due_us = self.due_us if self.role is Role.UNATTACHED else None
        self._become(Role.UNATTACHED, epoch)
        self.election.put(ElectionState(epoch))
        self._set_due(self._quick_us(), now)
        if due_us is not None and self.due_us is not None:
            self.due_us = min(due_us, self.due_us)  # candidates do not hold up a better one

    def _follow(self, epoch: LeaderEpoch, leader: NodeId, endpoint: Endpoint | None, now: Instant) -> None:
        is_new = epoch > self.epoch
        self._become(Role.FOLLOWER, epoch, leader, endpoint or self.voters.endpoint(leader))
        if is_new:
            self.election.put(ElectionState(epoch, leader))
        if endpoint is not None:
            self._peers.located(leader, endpoint)
        self._set_due(self.config.fetch_timeout_us, now)
        self.following.begin(leader)

    def _ask_whether(self, now: Instant) -> None:
        """Stand for a pre-vote, which changes neither epoch nor vote nor leader."""
        self._become(Role.PROSPECTIVE, self.epoch, self.leader_id, self._endpoint)
        self.electing = Electing(self.voters, is_pre_vote=True, ends_us=self._election_end(now))
        self._vote_for_itself(self.electing)

    def _stand(self, now: Instant) -> None:
        """Become a candidate in the next epoch: the vote for itself goes to disk first."""
        self._become(Role.CANDIDATE, LeaderEpoch(self.epoch + 1))
        self.electing = Electing(self.voters, is_pre_vote=False, ends_us=self._election_end(now))
        self.election.put(ElectionState(self.epoch, NO_NODE, self.me.node_id, self.me.directory_id))

    def _stored(self, now: Instant) -> None:
        """The epoch and the vote are durable."""
        if self.role is Role.CANDIDATE and self.electing is not None:
            self._vote_for_itself(self.electing)
        self.poll(now)

    def _vote_for_itself(self, electing: Electing) -> None:
        if self.is_voter:
            electing.answered(self.me.node_id, True)

    def _lead(self, electing: Electing, now: Instant) -> None:
        """Append the first record of the epoch, without which no older record can be committed."""
        start = self.durable.end_offset
        listed = self.voters.listed()
        # Version 0, as Kafka writes it: its tools cannot read version 1.
        change = LeaderChange(
            version=0,
            leader_id=self.me.node_id,
            voters=listed,
            granting_voters=[voter for voter in listed if voter.voter_id in electing.granted],
        )
        # A bootstrap snapshot is never sent: its voters become records of the log.
        membership = self.history.latest.begun_by(self.me.node_id, self.me.endpoints)
        batch = build_control(change, *membership, timestamp_ms=now.wall_ms)
        try:
            self.durable.append(batch, self.epoch, now)
        except StorageError as error:
            self.durable.refused(error, now)
            return
        self.history.appended(batch)
        self._lost_count = 0
        endpoint = self.voters.endpoint(self.me.node_id)
        self._become(Role.LEADER, self.epoch, self.me.node_id, endpoint)
        self.leading = Leading(self.epoch, start, self.voters, own=self.me.node_id, now=now)
        self.serving = Serving(self.durable, self.leading, self.known, self.config)
        self.leading.own_synced(self.durable.log.recovery_point)

    def resign(self, now: Instant) -> None:
        """Give up the leadership and tell the other voters, the best successor first."""
        if self.leading is not None:
            successors = self.leading.successors()
            self._become(Role.RESIGNED, self.epoch)
            self.resigning = Resigning(successors, self._election_end(now))

    def end(self, role: Role) -> None:
        """Move to HALTED or CLOSED."""
        self._become(role, self.epoch)

    def halt(self, error: StorageError) -> None:
        """Stop for good: the disk of the metadata log is unreliable."""
        self._trace("metadata-log-failed", path=error.path, call=error.call, reason=error.reason)
        self._halt(error.with_remedy)

    def diverged(self, reason: str) -> None:
        """Stop for good: the leader of this epoch lacks committed records."""
        self._trace("raft-committed-records-lost", reason=reason)
        self._halt(reason)

    def _halt(self, reason: str) -> None:
        if self.role not in ENDED:
            self.durable.die()
            self.end(Role.HALTED)
            self.durable.continuations.effects.append(Halt(f"the metadata log cannot be kept: {reason}"))

    # -- what is due in a role

    def poll(self, now: Instant) -> None:
        """Do what is due, until nothing moves the node."""
        role: Role | None = None
        while role is not self.role and self.role not in ENDED:
            role = self.role
            if role is Role.LEADER:
                self._poll_leader(now)
            elif self.electing is not None:
                self._poll_election(self.electing, now)
            elif self.resigning is not None:
                self._poll_resigned(self.resigning, now)
            else:
                self._poll_follower(now)
        self.election.write(now)  # a turn that moves twice writes once

    def _poll_leader(self, now: Instant) -> None:
        leading, serving = self.leading, self.serving
        assert leading is not None
        assert serving is not None
        heard_us = leading.heard_us()
        if self.reconfiguration is not None:
            self.reconfiguration.poll(now)
            if self.leading is not leading:
                return
        if heard_us is None:
            serving.expire(now)
            return
        if now.mono_us >= heard_us + self._quorum_us or self._is_stalled(now):
            self._trace("raft-resigned", epoch=self.epoch, is_stalled=self._is_stalled(now))
            self.resign(now)
            return
        serving.expire(now)
        for voter in leading.take_untold(now, self.config.fetch_timeout_us // 2):
            directory = self.voters.directories[voter]
            self.send(voter, requests.begin_request(self.me, voter, directory, self.epoch), now)
        self.durable.flush(now)

    def _poll_election(self, electing: Electing, now: Instant) -> None:
        if electing.is_won and electing.is_pre_vote:
            self._stand(now)
        elif electing.is_won and self.durable.retry_at_us is None:
            self._lead(electing, now)
        elif electing.is_pre_vote and (electing.is_lost or now.mono_us >= electing.ends_us):
            self._give_up(now)
        elif electing.is_lost and not electing.is_given_up:
            electing.is_given_up = True
            electing.ends_us = Micros(now.mono_us + self._backoff_us())
        elif now.mono_us >= electing.ends_us and not self._is_alone:
            if self._may_stand(now):
                self._ask_whether(now)
            else:
                electing.ends_us = Micros(now.mono_us + _NOT_YET_US)
        else:
            end = OffsetAndEpoch(self.durable.end_offset, self.durable.last_epoch)
            for voter in electing.take_unasked(now):
                if voter != self.me.node_id:
                    directory = self.voters.directories[voter]
                    request = requests.vote_request(
                        self.me, voter, directory, self.epoch, end, is_pre_vote=electing.is_pre_vote
                    )
                    self.send(voter, request, now)

    def _give_up(self, now: Instant) -> None:
        """A pre-vote is lost: back to the leader, if one is known."""
        backoff_us = self._backoff_us()
        if self.leader_id != NO_NODE:
            self._follow(self.epoch, self.leader_id, self._endpoint, now)
        else:
            self._become(Role.UNATTACHED, self.epoch)
            self._set_due(backoff_us, now)

    def _poll_resigned(self, resigning: Resigning, now: Instant) -> None:
        if now.mono_us >= resigning.ends_us:
            self.unattach(LeaderEpoch(self.epoch + 1), now)
            return
        successors = [(node, self.voters.directories[node]) for node in resigning.successors]
        for voter in resigning.take_untold(now):
            self.send(voter, requests.end_request(self.me, self.epoch, successors), now)

    def _poll_follower(self, now: Instant) -> None:
        if self._may_lead:
            if self.due_us is None:
                self._set_due(self._quick_us(), now)
            elif now.mono_us >= self.due_us:
                if self._may_stand(now):
                    self._ask_whether(now)
                    return
                self._set_due(_NOT_YET_US, now)
        else:
            self.due_us = None  # its removal is committed
        if self.following.peer is None and not self.is_voter:
            self.following.retry(self._next_target(), now, 0)
        if self.role is Role.FOLLOWER:
            self._poll_change(now)
        self.following.poll(now)

    @property
    def _wants_change(self) -> bool:
        """Whether this node is to ask for a change of the voters: its endpoints are others than theirs, or it
        is to join them.
        """
        membership = self.history.latest
        if membership.kraft_version == 0 or not self.me.endpoints or not self.following.has_fetched:
            return False
        if self.is_voter:
            return membership.voters.endpoints.get(self.me.node_id) != self.me.endpoints
        return self.config.is_joining

    def _poll_change(self, now: Instant) -> None:
        if not self._wants_change:
            self.change_due_us = None
        elif self.change_due_us is None:
            self.change_due_us = Micros(now.mono_us + _FIRST_CHANGE_US)
        elif now.mono_us >= self.change_due_us:
            self.change_due_us = Micros(now.mono_us + self.config.fetch_timeout_us)
            from .joining import change_of  # a voter at its known address asks for none

            request = change_of(self.me, self.epoch, self.voters, self.config)
            self.send(self.leader_id, request, now)

    def change_answered(self, response: Message, now: Instant) -> None:
        """The leader answered what this node asked about the voters."""
        from .joining import is_passing, refusal_in

        if (code := refusal_in(response)) is not None:
            self._trace("raft-change-refused", error=code_of(code).name, request=type(response).__name__)
        if is_passing(response) and self.change_due_us is not None:
            self.change_due_us = Micros(now.mono_us + _NEXT_CHANGE_US)

    def deadline(self) -> Micros | None:
        """When `poll` is to be called, if nothing happens before."""
        due = self.in_flight.deadline()
        if self.electing is not None:
            # A won election waits for the disk alone, which may be full: `durable` has that deadline.
            is_waiting = self.electing.is_won or self._is_alone
            return due if is_waiting else earlier(due, self.electing.deadline())
        if self.resigning is not None:
            return earlier(due, self.resigning.deadline())
        if self.leading is None or self.serving is None:
            due = earlier(due, self.change_due_us)
            return earlier(due, earlier(self.due_us, self.following.deadline()))
        due = earlier(due, self.serving.deadline())
        if self.reconfiguration is not None:
            due = earlier(due, self.reconfiguration.deadline())
        if (heard_us := self.leading.heard_us()) is None:
            return due
        due = earlier(due, Micros(min(*self.leading.deadline(), Micros(heard_us + self._quorum_us))))
        if (began_us := self.durable.sync_began_us) is not None:
            due = earlier(due, Micros(began_us + self.config.fetch_timeout_us))
        return due

    # -- times

    @property
    def _quorum_us(self) -> int:
        return self.config.fetch_timeout_us * 3 // 2

    def _election_end(self, now: Instant) -> Micros:
        timeout_us = self.config.election_timeout_us
        return Micros(now.mono_us + timeout_us + self._random(timeout_us))

    def _quick_us(self) -> int:
        return _QUICK_US + self._random(_QUICK_SPREAD_US)

    def _backoff_us(self) -> int:
        """After a lost election: random, and longer each time (KAFKA-18345)."""
        limit = min(_REFUSED_SPREAD_US << min(self._lost_count, 10), self.config.backoff_us_max)
        self._lost_count += 1
        return _QUICK_US + self._random(limit)

    def _set_due(self, delay_us: int, now: Instant) -> None:
        self.due_us = Micros(now.mono_us + delay_us) if self._may_lead else None

    def voted(self, now: Instant) -> None:
        """This node votes for a candidate, whose log is as good as its own: it stands back for a while."""
        if self.role is Role.PROSPECTIVE:
            self._become(Role.UNATTACHED, self.epoch)
        if self._may_lead:
            self.due_us = self._election_end(now)

    def stand_within(self, delay_us: int, now: Instant) -> None:
        """The leader is gone: a voter stands for election after that delay at the latest."""
        self.following.has_fetched = False
        if self._may_lead and (self.due_us is None or self.due_us > now.mono_us + delay_us):
            self.due_us = Micros(now.mono_us + delay_us)

    def leader_refused(self, now: Instant) -> None:
        """No process listens where the leader was."""
        self.stand_within(self._random(_REFUSED_SPREAD_US << min(self._lost_count, 4)), now)

    def leader_left(self, now: Instant) -> None:
        """The leader says that it leads no longer."""
        self.stand_within(self._quick_us(), now)

    def leader_heard(self, now: Instant) -> None:
        """The leader answered a fetch."""
        self._lost_count = 0
        self._logged.clear()
        self._set_due(self.config.fetch_timeout_us, now)

    def leader_resigned(self, successors: Sequence[int], now: Instant) -> None:
        """The leader ended its epoch, and names its successors, the best first."""
        self.stand_within(delay_us_of(self.me.node_id, successors, self.config.backoff_us_max), now)

    @property
    def sync_began_us(self) -> Micros | None:
        """When the oldest sync in flight began, of the log or of the election state."""
        return earlier(self.durable.sync_began_us, self.election.began_us)

    def _is_stalled(self, now: Instant) -> bool:
        """Whether a sync hangs, so that the word of this node is no longer good."""
        began_us = self.sync_began_us
        return began_us is not None and began_us <= now.mono_us - self.config.fetch_timeout_us

    def _may_stand(self, now: Instant) -> bool:
        return not self.durable.is_cutting and not self._is_stalled(now)

    # -- requests

    def send(self, peer: Peer, request: Message, now: Instant) -> None:
        """Send a request of an election once the epoch is durable."""
        self.election.when_durable(partial(self._send_now, peer, request, now))

    def _send_now(self, peer: Peer, request: Message, now: Instant) -> None:
        self.in_flight.send(peer, Purpose.ELECTION, request, now)

    def ask(self, peer: Peer, request: Message, now: Instant) -> int | None:
        """Send a fetch; None while the epoch is not durable, after which the node polls."""
        if not self.election.is_durable:
            return None
        return self.in_flight.send(peer, Purpose.REPLICATION, request, now)

    def fetch_again(self, now: Instant, delay_us: int) -> None:
        """A fetch failed: a voter asks its leader again, an observer the next node."""
        is_bound = self.is_voter and self.leader_id != NO_NODE
        self.following.retry(self.leader_id if is_bound else self._next_target(), now, delay_us)

    def _next_target(self) -> Peer | None:
        others: list[Peer] = [node for node in sorted(self.voters.directories) if node != self.me.node_id]
        targets = others + list(self._bootstrap)
        if not targets:
            return None
        self._target = (self._target + 1) % len(targets)
        return targets[self._target]

    def _locate_voters(self) -> None:
        for node in sorted(self.voters.directories):
            endpoint = self.voters.endpoint(node)
            if endpoint is not None and node != self.me.node_id:
                self._peers.located(node, endpoint)

    # -- the log

    def advanced(self, now: Instant) -> None:
        """The leader's high watermark moved."""
        if self.leading is not None and self.serving is not None:
            self.high_watermark = max(self.high_watermark, self.leading.high_watermark)
            self.serving.wake(is_moved=True)
            if self.reconfiguration is not None:
                self.reconfiguration.advanced()
            if not self.is_voter and self.history.latest.offset < self.high_watermark:
                self._trace("raft-leader-removed", epoch=self.epoch)
                self.resign(now)
                self.poll(now)

    def reconfigured(self) -> "Reconfiguration | None":
        """The changes of the voters of this leadership; None for a node that does not lead."""
        if self.leading is not None and self.reconfiguration is None:
            from .reconfiguration import Reconfiguration  # few leaders change voters

            self.reconfiguration = Reconfiguration(self, self.leading)
        return self.reconfiguration

    def append_voters(self, voters: VoterSet, now: Instant) -> Offset:
        """Append the record of these voters, which count from now on, and return its offset. For a leader.
        Raises StorageError, and then nothing has changed.
        """
        assert self.leading is not None
        assert self.serving is not None
        batch = build_control(voters.record(), timestamp_ms=now.wall_ms)
        offset = self.durable.append(batch, self.epoch, now)
        self._trace("raft-voters", epoch=self.epoch, offset=offset, voters=sorted(voters.directories))
        self.history.appended(batch)
        self._locate_voters()
        self.serving.wake(is_moved=False)
        if self.leading.voters_changed(voters, now):
            self.advanced(now)
        self.durable.flush(now)
        return offset

    def committed(self, leaders_high_watermark: Offset, now: Instant) -> None:
        """The leader tells how far its log is committed, of which this log is a prefix."""
        reached = min(leaders_high_watermark, self.durable.end_offset)
        self.high_watermark = max(self.high_watermark, reached)

    def appended(self, batches: Buffer, now: Instant) -> None:
        """Records of the leader were appended."""
        if self.history.appended(batches):
            self._voters_changed(now)

    def truncated(self, end_offset: Offset, now: Instant) -> None:
        """The records from here on go."""
        self.history.truncate(end_offset)
        self._voters_changed(now)

    def replaced(self, snapshot: OffsetAndEpoch, control: Sequence[ControlMessage], now: Instant) -> None:
        """A snapshot takes the place of the log."""
        self.high_watermark = max(self.high_watermark, snapshot.offset)
        if control:
            self.history.begin(snapshot.offset, control)
        self._voters_changed(now)

    def _voters_changed(self, now: Instant) -> None:
        """The log of a node that follows has other voters: it may be one of them from now on, or none."""
        self._locate_voters()
        if self._may_lead != (self.due_us is not None):
            self._set_due(self.config.fetch_timeout_us, now)

    def _synced(self, now: Instant) -> None:
        if self.leading is not None:
            if self.leading.own_synced(self.durable.log.recovery_point):
                self.advanced(now)
            if self.leading is not None and self.leading.heard_us() is None:
                return
        self.poll(now)
