"""The changes of the voters that a leader makes, one at a time (KIP-853, KIP-1186).

    AddRaftVoter ──► checks ──► ApiVersions of the new voter ──► it has caught up ──► append ──► committed
    RemoveRaftVoter ──► checks ────────────────────────────────────────────────────► append ──► committed
    UpdateRaftVoter ──► checks ────────────────────────────────────────────────────► append

The new voters count from the append on, so a majority of them commits their own record. Any majorities of
two sets that differ by one voter have a voter in common. So that only such sets follow each other, the leader
makes no change before a record of its own epoch is committed, which ends the changes of earlier leaders
(Ongaro, 2015), nor before its last change is committed. A leader that removes itself resigns once that is
committed. The checks, their order and their errors are those of Kafka. Unlike Kafka, the leader waits for a
new voter that has not caught up, until the time of the request is over, and refuses two changes that would
end the quorum: the removal of a voter that a majority needs, and the address of a listener without votes.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Protocol

from sparklog.errors import ErrorCode, code_of
from sparklog.model import ZERO_UUID, Instant, LeaderEpoch, Micros, NodeId, Offset, Uuid
from sparklog.record.control import VoterEndpoint
from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from sparklog.wire.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.features import KRAFT_VERSION

from .leading import Leading
from .peers import Endpoint, InFlight, Purpose
from .quorum_config import QuorumConfig
from .requests import Known, Myself
from .voter_history import VoterHistory
from .voters import VoterSet

_WAIT_US_MAX = 20_000_000
"""How long an added voter may take to catch up at most: no other change is made meanwhile, and a broker that
forwards the request waits 30 s.
"""

_VOTE = 52
"""The API that only listeners of controllers serve."""

Answer = Callable[[ErrorCode, str | None], None]


class Host(Protocol):
    """What a change of the voters needs of the leader."""

    @property
    def epoch(self) -> LeaderEpoch: ...
    @property
    def history(self) -> VoterHistory: ...
    @property
    def me(self) -> Myself: ...
    @property
    def in_flight(self) -> InFlight: ...
    @property
    def config(self) -> QuorumConfig: ...
    def append_voters(self, voters: VoterSet, now: Instant) -> Offset: ...
    def halt(self, error: StorageError) -> None: ...


class Candidate:
    """A replica that is to become a voter: its id, its directory, and its listeners for controllers, that of
    this cluster first.
    """

    __slots__ = ("directory_id", "endpoints", "node_id")

    def __init__(self, node_id: NodeId, directory_id: Uuid, endpoints: tuple[VoterEndpoint, ...]) -> None:
        self.node_id = node_id
        self.directory_id = directory_id
        self.endpoints = endpoints


class _Change:
    """A change under way. `offset` is that of its record, -1 before the append."""

    __slots__ = ("answer", "candidate", "correlation", "expires_us", "is_acked_early", "offset")

    def __init__(self, answer: Answer, expires_us: Micros) -> None:
        self.answer: Answer | None = answer  # None once it is answered
        self.expires_us = expires_us
        self.candidate: Candidate | None = None  # of an addition
        self.correlation = 0  # of the ApiVersions in flight
        self.is_acked_early = False
        self.offset = -1


class Reconfiguration:
    """The changes of one leadership. Invariant: one is under way at most."""

    def __init__(self, host: Host, leading: Leading) -> None:
        self._host = host
        self._leading = leading
        self._change: _Change | None = None

    # -- requests

    def add(
        self, candidate: Candidate, *, timeout_us: int, is_acked_early: bool, answer: Answer, now: Instant
    ) -> None:
        """Add a voter, whose id is new. The answer comes with the commit, or with the append if
        `is_acked_early`.
        """
        if self._refused("adding", answer, now):
            return
        voters = self._host.history.latest.voters
        if candidate.node_id in voters:
            answer(
                ErrorCode.DUPLICATE_VOTER,
                f"Node {candidate.node_id} is a voter already, with directory "
                f"{shown(voters.directories[candidate.node_id])}.",
            )
            return
        config = self._host.config
        wait_us = max(min(timeout_us, _WAIT_US_MAX), config.request_timeout_us)
        change = self._change = _Change(answer, Micros(now.mono_us + wait_us))
        change.candidate, change.is_acked_early = candidate, is_acked_early
        first = candidate.endpoints[0]
        request = ApiVersionsRequest(client_software_name="sparklog", client_software_version="raft")
        change.correlation = self._host.in_flight.send(
            Endpoint(first.host, first.port), Purpose.ELECTION, request, now
        )

    def remove(self, node_id: NodeId, directory_id: Uuid, *, answer: Answer, now: Instant) -> None:
        """Remove a voter, which may be this leader."""
        if self._refused("removing", answer, now):
            return
        voters = self._host.history.latest.voters
        if voters.directories.get(node_id) != directory_id:
            answer(
                ErrorCode.VOTER_NOT_FOUND,
                f"Node {node_id} with directory {shown(directory_id)} is not one of the voters: "
                f"{', '.join(f'{node}-{shown(voters.directories[node])}' for node in voters.directories)}.",
            )
        elif len(voters.directories) == 1:
            answer(ErrorCode.INVALID_REQUEST, f"Node {node_id} is the only voter: add another one first.")
        elif silent := self._silent_without(voters.removed(node_id), now):
            answer(
                ErrorCode.INVALID_REQUEST,
                f"Without node {node_id}, a majority of the voters would need nodes that do not fetch: "
                f"{', '.join(map(str, silent))}. Start them, or remove them first.",
            )
        else:
            self._change = _Change(answer, Micros(now.mono_us + self._host.config.request_timeout_us))
            self._append(self._change, voters.removed(node_id), now)

    def _silent_without(self, left: VoterSet, now: Instant) -> list[NodeId]:
        """The voters that do not fetch, if those which are left could not commit their own record; none if
        they could.
        """
        since_us = now.mono_us - self._host.config.fetch_timeout_us
        silent = [
            node
            for node in sorted(left.directories)
            if node != self._leading.own and self._leading.followers[node].fetched_us < since_us
        ]
        return silent if len(left.directories) - len(silent) < left.majority else []

    def update(
        self, candidate: Candidate, *, highest_level: int, lowest_level: int, now: Instant
    ) -> ErrorCode:
        """Take the new endpoints of a voter, which the log keeps from kraft.version 1 on and this leadership
        before; returns the error.
        """
        host, leading = self._host, self._leading
        if self._is_pending(now) or leading.high_watermark == 0:
            return ErrorCode.REQUEST_TIMED_OUT
        latest = host.history.latest
        if latest.kraft_version and latest.offset >= leading.high_watermark:
            return ErrorCode.REQUEST_TIMED_OUT
        if not lowest_level <= latest.kraft_version <= highest_level:
            return ErrorCode.INVALID_REQUEST
        known = latest.voters.directories.get(candidate.node_id)
        if known is None or known not in (candidate.directory_id, ZERO_UUID):
            return ErrorCode.VOTER_NOT_FOUND
        if latest.kraft_version == 0:
            leading.voter_told(candidate.node_id, candidate.directory_id, candidate.endpoints)
            return ErrorCode.NONE
        try:
            host.append_voters(latest.voters.moved(candidate.node_id, candidate.endpoints), now)
        except StorageError as error:
            self._failed(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _refused(self, doing: str, answer: Answer, now: Instant) -> bool:
        """Answer a change that may not begin, in Kafka's order of checks."""
        high_watermark, latest = self._leading.high_watermark, self._host.history.latest
        if self._is_pending(now):
            answer(ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is under way.")
        elif high_watermark == 0:
            reason = "The leader has committed no record of its epoch yet."
            answer(ErrorCode.REQUEST_TIMED_OUT, reason)
        elif latest.kraft_version == 0:
            answer(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The cluster doesn't support {doing} voters because the {KRAFT_VERSION} feature is 0.",
            )
        elif latest.offset >= high_watermark:
            answer(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The latest change of the voters, at offset {latest.offset}, is not committed.",
            )
        else:
            return False
        return True

    def _is_pending(self, now: Instant) -> bool:
        self._expire(now)
        return self._change is not None

    # -- what happens to the one under way

    def replied(self, correlation: int, response: Message, now: Instant) -> None:
        """The new voter answered ApiVersions."""
        change = self._change
        if change is None or change.correlation != correlation or change.candidate is None:
            return
        change.correlation = 0
        if not isinstance(response, ApiVersionsResponse) or response.error_code:
            code = getattr(response, "error_code", ErrorCode.UNKNOWN_SERVER_ERROR)
            self._finish(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Node {change.candidate.node_id} answered ApiVersions with {code_of(code).name}.",
            )
            return
        level = self._host.history.latest.kraft_version
        found = next((one for one in response.supported_features if one.name == KRAFT_VERSION), None)
        if found is None or not found.min_version <= level <= found.max_version:
            reach = "none" if found is None else f"{found.min_version} to {found.max_version}"
            self._finish(
                ErrorCode.INVALID_REQUEST,
                f"Node {change.candidate.node_id} supports {KRAFT_VERSION} {reach}, the cluster has {level}.",
            )
            return
        if all(one.api_key != _VOTE for one in response.api_keys):
            first = change.candidate.endpoints[0]
            self._finish(
                ErrorCode.INVALID_REQUEST,
                f"{first.host}:{first.port} is no listener for controllers: it serves no votes.",
            )
            return
        self.poll(now)

    def lost(self, correlation: int) -> None:
        """The new voter did not answer ApiVersions."""
        change = self._change
        if change is not None and change.correlation == correlation and change.candidate is not None:
            first = change.candidate.endpoints[0]
            self._finish(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Node {change.candidate.node_id} does not answer at {first.host}:{first.port}.",
            )

    def poll(self, now: Instant) -> None:
        """Append the voters once the new one has caught up; end a change whose time is over."""
        change = self._change
        if change is not None and change.offset < 0 and not change.correlation and change.candidate:
            new = change.candidate
            if self._leading.has_caught_up(new.node_id, new.directory_id):
                voters = self._host.history.latest.voters
                self._append(change, voters.added(new.node_id, new.directory_id, new.endpoints), now)
        self._expire(now)

    def advanced(self) -> None:
        """The high watermark moved."""
        change = self._change
        if change is not None and 0 <= change.offset < self._leading.high_watermark:
            self._finish(ErrorCode.NONE, None)

    def deadline(self) -> Micros | None:
        """When the change under way is given up."""
        return None if self._change is None else self._change.expires_us

    def end(self) -> None:
        """The leadership is over. A record that was appended may still be committed."""
        self._finish(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leader of the metadata quorum has changed.")

    def _append(self, change: _Change, voters: VoterSet, now: Instant) -> None:
        try:
            change.offset = self._host.append_voters(voters, now)
        except StorageError as error:
            self._finish(ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log cannot grow: {error}")
            self._failed(error)
            return
        if change.is_acked_early and change.answer is not None:
            change.answer(ErrorCode.NONE, None)
            change.answer = None

    def _failed(self, error: StorageError) -> None:
        if not error.is_full:
            self._host.halt(error)

    def _expire(self, now: Instant) -> None:
        change = self._change
        if change is None or change.expires_us > now.mono_us:
            return
        if change.candidate is not None and change.offset < 0:
            reason = f"Node {change.candidate.node_id} with directory {shown(change.candidate.directory_id)}"
            reason += " has not caught up with the metadata log: it is not running, or lags behind."
        else:
            reason = "The change was not committed in time, and may still be."
        self._finish(ErrorCode.REQUEST_TIMED_OUT, reason)

    def _finish(self, code: ErrorCode, reason: str | None) -> None:
        change, self._change = self._change, None
        if change is not None and change.answer is not None:
            change.answer(code, reason)


def shown(directory_id: bytes) -> str:
    """A directory id as Kafka prints it."""
    return urlsafe_b64encode(directory_id).decode().rstrip("=")


# -- the messages


def asked_addition(request: AddRaftVoterRequest, listener: str) -> Candidate | str:
    """The voter that a request adds; in words, what is wrong with the request."""
    if request.voter_id < 0 or not any(request.voter_directory_id):
        return "Add voter request didn't include a valid voter"
    endpoints = _endpoints([(one.name, one.host, one.port) for one in request.listeners], listener)
    if not endpoints:
        return f"Add voter request didn't include the endpoint for the default listener {listener or 'none'}"
    return Candidate(NodeId(request.voter_id), Uuid(request.voter_directory_id), endpoints)


def asked_removal(request: RemoveRaftVoterRequest) -> tuple[NodeId, Uuid] | str:
    """The voter that a request removes; in words, what is wrong with the request."""
    if request.voter_id < 0 or not any(request.voter_directory_id):
        return "Remove voter request didn't include a valid voter"
    return NodeId(request.voter_id), Uuid(request.voter_directory_id)


def asked_update(request: UpdateRaftVoterRequest, listener: str) -> Candidate | None:
    """The voter that a request updates; None for an invalid request."""
    endpoints = _endpoints([(one.name, one.host, one.port) for one in request.listeners], listener)
    levels = request.kraft_version_feature
    is_range = 0 <= levels.min_supported_version <= levels.max_supported_version
    if request.voter_id < 0 or not any(request.voter_directory_id) or not endpoints or not is_range:
        return None
    return Candidate(NodeId(request.voter_id), Uuid(request.voter_directory_id), endpoints)


def _endpoints(listeners: Sequence[tuple[str, str, int]], listener: str) -> tuple[VoterEndpoint, ...]:
    """The endpoints of a voter, that of `listener` first; none without it."""
    found = sorted(listeners, key=lambda one: one[0] != listener)
    if not found or found[0][0] != listener or len({one[0] for one in found}) < len(found):
        return ()
    return tuple(VoterEndpoint(*one) for one in found)


def add_response(code: ErrorCode, reason: str | None) -> AddRaftVoterResponse:
    """Answer an AddRaftVoter."""
    return AddRaftVoterResponse(error_code=code, error_message=reason)


def remove_response(code: ErrorCode, reason: str | None) -> RemoveRaftVoterResponse:
    """Answer a RemoveRaftVoter."""
    return RemoveRaftVoterResponse(error_code=code, error_message=reason)


def update_response(code: ErrorCode, known: Known) -> UpdateRaftVoterResponse:
    """Answer an UpdateRaftVoter."""
    host, port = known.endpoint or ("", 0)
    return UpdateRaftVoterResponse(
        error_code=code, current_leader=CurrentLeader(known.leader_id, known.epoch, host, port)
    )
