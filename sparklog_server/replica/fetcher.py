"""Fetches all partitions that one broker leads and this node follows.

    next_request ─► the leader ─► responded ─► appended, high watermarks, truncations ─► next_request
         ▲                                                                                  │
         └── rest ◄── lost: 20 ms, doubled up to replica.fetch.backoff.ms ◄─────────────────┘

The requests form an incremental session (KIP-227): each names only the partitions whose position has changed
since the leader was told, and each response only those with something new.

A throttled partition (KIP-73) is left out while the throttle has no room, and asks for no more than its share
of what there is. Alone, it keeps its place in the session meanwhile, and no request is sent.

A request that finds nothing new waits at the leader. If a position changes meanwhile, because a partition is
placed or a truncation is done, a second request tells it at once, and ends the wait of the first.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from sparklog.errors import ErrorCode, code_of
from sparklog.model import (
    Instant,
    LeaderEpoch,
    Micros,
    NodeId,
    Offset,
    OffsetAndEpoch,
    TopicPartition,
    Uuid,
    earlier,
)
from sparklog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from sparklog_server.log.producers.validate import RecordsRefused
from sparklog_server.replica.fetch_sessions import FIRST_EPOCH, FULL_FETCH, epoch_after
from sparklog_server.replica.follower import FollowedKey, Follower, Phase, Position
from sparklog_server.replica.leader import PartitionUnavailable

if TYPE_CHECKING:
    from sparklog_server.replica.throttle import Throttle

_FIRST_REST_US: Final = 20_000
_DELAY_US: Final = 50_000
_METADATA_REST_US: Final = 50_000
"""The pause after an error that newer metadata of either side will end."""
_AWAITS_METADATA: Final = (
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
)
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_NO_SESSION: Final = 0
_IN_FLIGHT_MAX: Final = 2
_NOWHERE: Final = Position(Offset(-1), LeaderEpoch(-1), Offset(-1), LeaderEpoch(-1))
"""A position that no follower has."""
_SHARE_BYTES_MIN: Final = 256 << 10
"""The least share of the room in a throttle that a partition asks for, as long as there is as much: the
leader may have to read it from the disk.
"""
_SHARES_MAX: Final = 8
"""As many partitions as a connection of the leader reads ahead of (`RUNS_MAX`)."""
_READ_US: Final = 2_000_000
"""How long after a consumer began to wait here the leader tells each high watermark at once."""


class FetchLimits(NamedTuple):
    """The limits of one fetch: bytes, ms, and the longest rest in µs."""

    wait_ms_max: int
    bytes_min: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_us: int


class SentFetch(msgspec.Struct, eq=False):
    """A request in flight, and the partitions that it names or forgets."""

    request: FetchRequest
    changed: frozenset[FollowedKey]


class Cutting(Protocol):
    """Truncates the logs of followers, by jobs; `Fetcher.placed` follows when one is done."""

    def cut(self, follower: Follower, offset: Offset, now: Instant) -> None: ...

    def seek(self, follower: Follower, now: Instant) -> None:
        """Find where the leader's log begins and ends: the fetch offset is outside it."""

    def restart(self, follower: Follower, offset: Offset, now: Instant) -> None:
        """Begin the empty log of a follower anew at `offset`, and append what it awaits."""


class Fetcher:
    """Invariants: two requests are in flight at most, and only one while a session begins; `_reported` is
    what the leader's session has when it has seen them; a response counts for a partition only if its
    position is still the one that was requested, and no later request changes it.
    """

    def __init__(
        self,
        node_id: NodeId,
        leader: NodeId,
        limits: FetchLimits,
        cutting: Cutting,
        trace: Callable[..., None],
    ) -> None:
        self.leader = leader
        self._throttle: Throttle | None = None
        self._is_outside: Callable[[TopicPartition], bool]
        # Those that wait for room in the throttle, until `_room_us` if it has none, and those in the session
        # that have a share of it.
        self._waiting: dict[FollowedKey, None] = {}
        self._room_us: Micros | None = None
        self._bounded: dict[FollowedKey, None] = {}
        self._in_flight: list[SentFetch] = []  # of this session, in the order in which they were sent
        self._node_id = node_id
        self._limits = limits
        self._cutting = cutting
        self._trace = trace
        self._followers: dict[FollowedKey, Follower] = {}
        self._reported: dict[FollowedKey, Position] = {}
        self._changed: dict[FollowedKey, None] = {}
        self._resting: dict[FollowedKey, None] = {}
        self._read: dict[FollowedKey, Micros] = {}
        self._session_id, self._session_epoch = _NO_SESSION, FULL_FETCH
        self._rest_us = _FIRST_REST_US
        self._rests_until_us: Micros | None = None
        self._delayed_until_us: Micros | None = None

    # -- the partitions

    def __len__(self) -> int:
        return len(self._followers)

    def follow(self, follower: Follower) -> None:
        """Fetch a partition, in another leader epoch than before."""
        self._followers[follower.key] = follower
        self._changed[follower.key] = None
        self._resting.pop(follower.key, None)
        self._waiting.pop(follower.key, None)

    def leave(self, key: FollowedKey) -> None:
        """Fetch a partition no more."""
        self._followers.pop(key, None)
        self._resting.pop(key, None)
        self._waiting.pop(key, None)
        self._changed[key] = None

    def throttle_by(self, throttle: "Throttle | None", is_outside: Callable[[TopicPartition], bool]) -> None:
        """Let this throttle apply from now on, or none, to the partitions of which this node's replica
        `is_outside` the ISR.
        """
        self._throttle, self._is_outside = throttle, is_outside
        self._waiting.clear()
        self._bounded.clear()
        # The leader may have told of each how much it may send: all are asked for anew.
        self._changed |= dict.fromkeys(self._followers)
        self._reported = dict.fromkeys(self._reported, _NOWHERE)

    def changed(self, key: FollowedKey) -> None:
        """A partition may be fetched on: its sync or its truncation is done, or its ISR has changed."""
        self._changed[key] = None

    def go_on(self, follower: Follower, now: Instant) -> None:
        """The truncation of a partition is done: append what it awaits, and fetch on."""
        records, follower.awaited = follower.awaited, None
        follower.fetch_again()
        self._changed[follower.key] = None
        if records is not None:
            try:
                follower.partition.append_as_follower(records, follower.leader_epoch, now)
            except (RecordsRefused, PartitionUnavailable):
                self.rest(follower, self._limits.backoff_us, now)

    def read(self, follower: Follower, now: Instant) -> None:
        """A consumer waits for the high watermark of a partition here."""
        self._read[follower.key] = Micros(now.mono_us + _READ_US)
        if not follower.is_read:
            follower.is_read = True
            self._changed[follower.key] = None

    def find(self, key: FollowedKey) -> Follower | None:
        """The follower of a partition; None if this broker is not its source."""
        return self._followers.get(key)

    def rest(self, follower: Follower, pause_us: int, now: Instant) -> None:
        """Leave a partition out for a while."""
        follower.rest_until(Micros(now.mono_us + pause_us))
        self._resting[follower.key] = None
        self._changed[follower.key] = None

    # -- requests

    def deadline(self) -> Micros | None:
        """The next time at which `next_request` may have one."""
        if not self._has_room:
            return None
        if self._rests_until_us is not None:
            return self._rests_until_us
        due_us = self._delayed_until_us
        for key in self._resting:
            due_us = earlier(due_us, self._followers[key].again_us)
        return earlier(due_us, self._room_us) if self._waiting else due_us

    @property
    def _has_room(self) -> bool:
        in_flight = len(self._in_flight)
        return not in_flight or (in_flight < _IN_FLIGHT_MAX and self._session_epoch != FULL_FETCH)

    def next_request(self, broker_epoch: int, now: Instant) -> SentFetch | None:
        """The request to send now; None if the leader has nothing to be told or two are in flight, the
        fetcher rests, or no partition is to be fetched.
        """
        if not self._has_room or (self._rests_until_us is not None and now.mono_us < self._rests_until_us):
            return None
        self._rests_until_us = None
        if self._read or self._resting or self._waiting:
            self._wake(now)
        if self._is_delayed(now):
            return None
        if self._in_flight and not self._changed:
            return None
        if self._session_epoch == FULL_FETCH:
            self._reported.clear()
            self._bounded.clear()
            self._changed = dict.fromkeys(self._followers)
        bounds = {} if self._throttle is None else self._bounds(self._throttle, now)
        topics: dict[Uuid, FetchTopic] = {}
        left_out: list[FollowedKey] = []
        held: list[FollowedKey] = []
        changed: list[FollowedKey] = []
        for key in self._changed:
            follower = self._followers.get(key)
            if follower is None or not follower.is_fetchable:
                if key in self._reported:
                    left_out.append(key)
            elif bounds and bounds.get(key) == 0:
                self._waiting[key] = None
                if key in self._reported:
                    held.append(key)
            elif self._name(key, follower, topics, bounds.get(key) if bounds else None):
                changed.append(key)
        self._changed = {}
        if held and not topics and not left_out and len(held) == len(self._reported):
            return None  # there is nothing else to fetch: the session waits with them
        forgotten: dict[Uuid, ForgottenTopic] = {}
        for key in (*left_out, *held):
            del self._reported[key]
            topic_id, index = key
            if topic_id not in forgotten:
                forgotten[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
            forgotten[topic_id].partitions.append(index)
            changed.append(key)
        if not self._reported:
            self._end_session()
            return None
        if self._in_flight and not changed:
            return None
        limits = self._limits
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=broker_epoch),
            max_wait_ms=limits.wait_ms_max,
            min_bytes=limits.bytes_min,
            max_bytes=limits.response_bytes_max,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        if self._session_epoch != FULL_FETCH:
            self._session_epoch = epoch_after(self._session_epoch)
        sent = SentFetch(request, frozenset(changed))
        self._in_flight.append(sent)
        return sent

    def _bounds(self, throttle: "Throttle", now: Instant) -> dict[FollowedKey, int]:
        """The bytes that those changed partitions may ask for that are throttled: 0 if they must wait, for
        room or until the leader has answered others. As in Kafka, a replica that has reached the high
        watermark is not throttled, nor is one in the ISR.
        """
        throttle.refill(now)
        rooms: dict[FollowedKey, int] = {}
        for key in self._changed:
            self._waiting.pop(key, None)
            self._bounded.pop(key, None)
            follower = self._followers.get(key)
            if (
                follower is None
                or not follower.is_fetchable
                or not follower.is_behind
                or self._reported.get(key) == follower.position()
            ):
                continue
            name = follower.partition.topic_partition
            room = throttle.room(name) if self._is_outside(name) else None
            if room is not None:
                rooms[key] = room
        self._room_us = throttle.deadline_us
        bounds: dict[FollowedKey, int] = {}
        for key, room in rooms.items():
            if room and len(self._bounded) < min(max(room // _SHARE_BYTES_MIN, 1), _SHARES_MAX):
                self._bounded[key] = None
        for key, room in rooms.items():
            bounds[key] = max(room // len(self._bounded), 1) if key in self._bounded else 0
        return bounds

    def _is_delayed(self, now: Instant) -> bool:
        """Whether to wait for a sync first: while the leader held the request, it would not learn that the
        records are held here. A disk that is slow delays the other partitions only for a short time.
        """
        awaits_sync = False
        for key in self._changed:
            follower = self._followers.get(key)
            if follower is None or follower.phase is not Phase.FETCHING:
                continue
            durability = follower.partition.durability
            if durability.waits_for_sync and durability.is_sync_awaited:
                awaits_sync = True
                break
        if not awaits_sync or (self._delayed_until_us is not None and self._delayed_until_us <= now.mono_us):
            self._delayed_until_us = None
        elif self._delayed_until_us is None:
            self._delayed_until_us = Micros(now.mono_us + _DELAY_US)
        return self._delayed_until_us is not None

    def _wake(self, now: Instant) -> None:
        for key in [key for key, until_us in self._read.items() if until_us <= now.mono_us]:
            del self._read[key]
            if (read := self._followers.get(key)) is not None:
                read.is_read = False
                self._changed[key] = None
        for key in list(self._resting):
            follower = self._followers[key]
            if follower.again_us is None or follower.again_us <= now.mono_us:
                del self._resting[key]
                follower.fetch_again()
                self._changed[key] = None
        if self._waiting and (self._room_us is None or self._room_us <= now.mono_us):
            self._changed = self._waiting | self._changed  # they have waited longer than what was just told
            self._waiting = {}

    def _name(
        self, key: FollowedKey, follower: Follower, topics: dict[Uuid, FetchTopic], bytes_max: int | None
    ) -> bool:
        """Add a partition to the request, if its position is not the one that the leader has. A throttled one
        asks for `bytes_max` at most.
        """
        position = follower.position()
        if self._reported.get(key) == position:
            return False
        self._reported[key] = position
        topic_id, index = key
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(
                topic=follower.partition.topic_partition.topic, topic_id=topic_id, partitions=[]
            )
        limit = self._limits.partition_bytes_max
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=limit if bytes_max is None else min(bytes_max, limit),
                high_watermark=position.high_watermark,
            )
        )
        return True

    # -- responses

    def responded(self, sent: SentFetch, response: FetchResponse, now: Instant) -> None:
        """The leader has answered a request."""
        if sent not in self._in_flight:
            return
        self._in_flight.remove(sent)
        if response.error_code:
            code = code_of(response.error_code)
            self._end_session()
            if code not in _SESSION_ERRORS:
                self._rest(code.name, now)
            return
        self._rest_us = _FIRST_REST_US
        if self._throttle is not None:
            self._throttle.refill(now)
        if sent.request.session_epoch == FULL_FETCH and response.session_id != _NO_SESSION:
            self._session_id, self._session_epoch = response.session_id, FIRST_EPOCH
        asked_anew = self._in_flight[0].changed if self._in_flight else frozenset()
        for topic in response.responses:
            topic_id = Uuid(topic.topic_id)
            for data in topic.partitions:
                key = topic_id, data.partition_index
                follower = self._followers.get(key)
                if follower is not None and follower.is_fetchable and key not in asked_anew:
                    position, reported = follower.position(), self._reported.get(key)
                    if reported is not None and reported.is_at(position):
                        self._take(follower, position, data, now)
                self._changed[key] = None

    def lost(self, sent: SentFetch, reason: str, now: Instant) -> None:
        """A request has no response, and a later one neither: a new session begins after a pause."""
        if sent in self._in_flight:
            self._end_session()
            self._rest(reason, now)

    def retry_now(self) -> None:
        """End the pause after a loss: the leader may be reachable again."""
        self._rests_until_us = None
        self._rest_us = _FIRST_REST_US

    def _end_session(self) -> None:
        self._session_id, self._session_epoch = _NO_SESSION, FULL_FETCH
        self._in_flight.clear()
        self._reported.clear()

    def _rest(self, reason: str, now: Instant) -> None:
        self._trace("replica-fetch-failed", leader=self.leader, reason=reason, again_us=self._rest_us)
        self._rests_until_us = Micros(now.mono_us + self._rest_us)
        self._rest_us = min(2 * self._rest_us, max(self._limits.backoff_us, _FIRST_REST_US))

    def _take(self, follower: Follower, asked: Position, data: PartitionData, now: Instant) -> None:
        """Take over what the leader has sent for a partition."""
        if data.error_code:
            self._failed(follower, code_of(data.error_code), now)
            return
        diverging = data.diverging_epoch
        if diverging is not None and diverging.epoch >= 0:
            # Its high watermark means nothing before this log agrees with the leader's (KAFKA-14704).
            end = OffsetAndEpoch(Offset(diverging.end_offset), LeaderEpoch(diverging.epoch))
            follower.phase = Phase.CUTTING
            self._cutting.cut(follower, follower.truncation_offset(end), now)
            return
        log_start, records = Offset(data.log_start_offset), data.records
        may_disagree, follower.is_compared = follower.may_disagree(log_start), True
        try:
            if isinstance(records, (bytes, bytearray, memoryview)) and len(records):
                base = follower.base_below(records, log_start)
                if base is not None:
                    follower.phase, follower.awaited = Phase.CUTTING, bytes(records)
                    self._cutting.restart(follower, base, now)
                    return
            if may_disagree:
                follower.phase = Phase.CUTTING
                self._cutting.restart(follower, log_start, now)
                return
            if isinstance(records, (bytes, bytearray, memoryview)) and len(records):
                if (throttle := self._throttle) is not None:
                    name = follower.partition.topic_partition
                    throttle.passed(name, len(records), is_outside=self._is_outside(name))
                follower.partition.append_as_follower(records, asked.leader_epoch, now)
            follower.partition.leader_reported(Offset(data.high_watermark), log_start, now)
            follower.is_behind = data.high_watermark > follower.partition.log.log_end_offset
        except RecordsRefused as refused:
            self._trace(
                "replica-records-refused",
                partition=str(follower.partition.topic_partition),
                leader=self.leader,
                offset=asked.fetch_offset,
                reason=str(refused),
            )
            self.rest(follower, self._limits.backoff_us, now)
        except PartitionUnavailable:
            # A full disk: tried again. An offline partition is removed by its new placement.
            self.rest(follower, self._limits.backoff_us, now)

    def _failed(self, follower: Follower, code: ErrorCode, now: Instant) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            follower.phase = Phase.CUTTING
            self._cutting.seek(follower, now)
            return
        pause_us = _METADATA_REST_US if code in _AWAITS_METADATA else self._limits.backoff_us
        self.rest(follower, pause_us, now)
