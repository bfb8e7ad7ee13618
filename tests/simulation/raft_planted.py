"""Raft nodes with one rule switched off each, by the numbers of the list in CLUSTER 4.5.

Each patches one method, and names the invariants that may find it.
"""

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, NodeId, Offset, OffsetAndEpoch
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest
from sparklog_server.raft.durable_log import DurableLog
from sparklog_server.raft.electing import Electing
from sparklog_server.raft.election_store import ElectionStore
from sparklog_server.raft.leading import Leading
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.quorum_state import QuorumState
from sparklog_server.raft.reconfiguration import Reconfiguration
from sparklog_server.raft.requests import fetch_response
from sparklog_server.raft.roles import Role
from sparklog_server.raft.serving import AnswerFetch, Serving
from sparklog_server.raft.voter_history import VoterHistory
from sparklog_server.raft.voters import VoterSet
from sparklog_server.simulation.raft_process import RaftProcess
from sparklog_server.simulation.raft_snapshots import RaftSnapshots


class Planted(NamedTuple):
    """A fault, and the rules of which one finds it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    rules: frozenset[str]


def _vote_before_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ElectionStore, "when_durable", lambda _store, send: send())


def _old_epochs_count(patch: pytest.MonkeyPatch) -> None:
    def advance(leading: Leading) -> bool:
        leading.epoch_start_offset = Offset(-1)
        return original(leading)

    original = Leading._advance
    patch.setattr(Leading, "_advance", advance)


def _restarted_leader_resumes_its_epoch(patch: pytest.MonkeyPatch) -> None:
    def start(state: QuorumState, now: object) -> None:
        voted = state.election.state
        if voted.voted_id == state.me.node_id and state.durable.last_epoch == voted.epoch:
            state._become(Role.CANDIDATE, voted.epoch)
            state.electing = Electing(state.voters, is_pre_vote=False, ends_us=Micros(1 << 60))
            for voter in state.voters.directories:
                state.electing.answered(voter, True)
        original(state, now)

    original = QuorumState.start
    patch.setattr(QuorumState, "start", start)


def _no_check_quorum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuorumState, "_quorum_us", 1 << 60)


def _no_pre_vote(patch: pytest.MonkeyPatch) -> None:
    def ask_whether(state: QuorumState, now: object) -> None:
        original(state, now)
        state._stand(now)

    original = QuorumState._ask_whether
    patch.setattr(QuorumState, "_ask_whether", ask_whether)


def _no_jitter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuorumState, "_backoff_us", lambda _state: 1_000)
    patch.setattr(QuorumState, "_election_end", lambda _state, now: Micros(now.mono_us + 1_000))
    patch.setattr(QuorumState, "_quick_us", lambda _state: 1_000)


def _voters_change_at_any_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reconfiguration, "_refused", lambda *_: False)


def _voters_are_not_taken_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterHistory, "truncate", lambda *_: None)


def _fetches_go_only_forward(patch: pytest.MonkeyPatch) -> None:
    def fetch(
        serving: Serving,
        request: FetchRequest,
        asked: FetchPartition,
        replica: NodeId,
        answer: AnswerFetch,
        now: Instant,
    ) -> bool:
        known = furthest.setdefault(serving, {})
        if asked.fetch_offset < known.get(replica, 0):
            answer(fetch_response(ErrorCode.UNKNOWN_SERVER_ERROR, serving._known))
            return False
        known[replica] = asked.fetch_offset
        return original(serving, request, asked, replica, answer, now)

    furthest: WeakKeyDictionary[Serving, dict[NodeId, int]] = WeakKeyDictionary()
    original = Serving.fetch
    patch.setattr(Serving, "fetch", fetch)


def _voter_by_id_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterSet, "has", lambda voters, node, _directory: node in voters.directories)
    patch.setattr(RaftNode, "_is_me", lambda _raft, *_: True)


def _acknowledges_before_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DurableLog, "is_synced", True)


def _snapshot_id_off_by_one(patch: pytest.MonkeyPatch) -> None:
    def id_of(raft: RaftNode, end: Offset) -> OffsetAndEpoch:
        before = Offset(end - 1)
        return OffsetAndEpoch(before, raft.log.epochs.epoch_at(Offset(end - 2)))

    patch.setattr(RaftSnapshots, "id_of", staticmethod(id_of))


def _reply_before_commit(patch: pytest.MonkeyPatch) -> None:
    def propose(process: RaftProcess, value: bytes, now: object) -> object:
        effects = original(process, value, now)
        for _, offset in process._parked:
            process._watch.acknowledged(process._machine, offset)
        return effects

    original = RaftProcess.propose
    patch.setattr(RaftProcess, "propose", propose)


PLANTED = {
    "32 a vote is sent before it is durable": Planted(
        _vote_before_sync, frozenset({"vote-not-durable", "voted-twice", "two-leaders"})
    ),
    "33 records of older epochs count": Planted(_old_epochs_count, frozenset({"old-epoch"})),
    "34 a restarted leader resumes its epoch": Planted(
        _restarted_leader_resumes_its_epoch, frozenset({"two-leaders"})
    ),
    "35 no check-quorum": Planted(_no_check_quorum, frozenset({"stale-leader", "core-stuck"})),
    "36 no pre-vote": Planted(_no_pre_vote, frozenset({"leader-deposed"})),
    "38 no jitter": Planted(_no_jitter, frozenset({"core-stuck"})),
    "39 voters change before a record of the epoch is committed": Planted(
        _voters_change_at_any_time, frozenset({"voters-uncommitted"})
    ),
    "40 a voter is known by its id alone": Planted(
        _voter_by_id_alone, frozenset({"voted-twice", "not-synced", "leader-incomplete"})
    ),
    "41 voters are not taken back by a truncation": Planted(
        _voters_are_not_taken_back, frozenset({"voters-not-of-log"})
    ),
    "43 a follower acknowledges before its sync": Planted(
        _acknowledges_before_sync, frozenset({"not-synced"})
    ),
    "44 the id of a snapshot is off by one": Planted(
        _snapshot_id_off_by_one, frozenset({"snapshot-content", "snapshot-id"})
    ),
    "45 fetch offsets go only forward": Planted(
        _fetches_go_only_forward, frozenset({"voters-missing", "core-stuck", "node-behind"})
    ),
    "46 a reply before the commit": Planted(_reply_before_commit, frozenset({"not-committed"})),
}


def refused_links_tell_nothing(patch: pytest.MonkeyPatch) -> None:
    """37: a follower whose link to the leader is refused waits for the fetch timeout."""
    patch.setattr(QuorumState, "leader_refused", lambda _state, _now: None)
    patch.setattr(QuorumState, "leader_left", lambda _state, _now: None)
