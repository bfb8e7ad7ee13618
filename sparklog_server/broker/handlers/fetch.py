"""Fetch: whole batches as file slices, at once or when enough records are committed (long poll by min bytes
and max wait, KIP-74).

The list of aborted transactions for a read_committed consumer may be in files that are not in memory: then a
job reads them first.

A fetch in a session (KIP-227) reads all partitions of the session: see `session_fetch`.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Final

from sparklog.effects import FileSlice
from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId, Offset
from sparklog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.handlers.current_leader import WITH_LEADER, endpoints_of, leader_elsewhere
from sparklog_server.broker.handlers.epochs import divergence
from sparklog_server.broker.handlers.near_replica import near_replica
from sparklog_server.broker.handlers.session_fetch import BeginningSession, ResumedSession, in_session
from sparklog_server.broker.session import Answer, AnsweredInSteps, Call, InSteps, Parked
from sparklog_server.disk.door import StorageError
from sparklog_server.log.lookup.aborted import IndexReading
from sparklog_server.log.lookup.places import BrokenFrame
from sparklog_server.log.partition_log import OffsetOutOfRange
from sparklog_server.replica.fetch_sessions import FULL_FETCH, NO_SESSION
from sparklog_server.replica.leader import PartitionUnavailable, Role
from sparklog_server.replica.partition import DEBUGGING, Partition, RoleOf, any_role_of
from sparklog_server.replica.purgatory import PurgatoryFull

# Reading an enum member through its class costs as much as two calls.
_READ: Final = Operation.READ
_TOPIC: Final = Resource.TOPIC
_FEW: Final = 128
"""The number of partitions that are read in one turn; a fetch of more is read in steps."""
_TOPIC_IDS_SINCE = 13
_RACKS_SINCE = 11  # a consumer may read from a follower (KIP-392)
_STORAGE_ERROR_SINCE = 6  # an earlier client would not retry this error, and not look for the new leader
_READ_COMMITTED = 1
_READINGS_MAX = 3
"""How often a fetch repeats a job whose files were replaced while it read them; after that it reads them in
the loop.
"""
_first_offset_of = attrgetter("first_offset")


def fetch(context: Context, call: Call, request: FetchRequest, now: Instant) -> Answer:
    """Read committed records from each requested offset; wait for `min_bytes` of them, at most
    `max_wait_ms`.
    """
    state = request.replica_state
    replica_id = request.replica_id if state is None else state.replica_id
    if replica_id >= 0:
        if not context.allow(call, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            return _refused_follower(request)  # it may be a client that pretends (CVE-2018-1288)
        # At its only use: a broker alone has no followers.
        from sparklog_server.broker.handlers.replica_fetch import fetch_as_replica

        return fetch_as_replica(context, call, request, now)
    is_near = replica_id == DEBUGGING or call.version >= _RACKS_SINCE
    role_of = any_role_of if is_near else Partition.leader_for
    if request.session_epoch == NO_SESSION and not request.session_id:
        return _ParkedFetch(context, call, request, None, role_of).begin(now)
    session = in_session(context, call, request, now)
    if isinstance(session, FetchResponse):
        return session
    return _ParkedFetch(context, call, request, session, role_of).begin(now)


def _refused_follower(request: FetchRequest) -> FetchResponse:
    if request.session_epoch not in (NO_SESSION, FULL_FETCH):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=asked.partition,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        high_watermark=-1,
                        records=b"",
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class _ParkedFetch:
    """A fetch, and its registration in the purgatories of its partitions while it waits."""

    __slots__ = (
        "_allowed",
        "_context",
        "_given",
        "_is_counted",
        "_is_expired",
        "_is_in_steps",
        "_is_reading",
        "_is_stale",
        "_is_timed",
        "_rack",
        "_readings",
        "_request",
        "_role_of",
        "_session",
        "_unread",
        "_watched",
        "call",
    )

    def __init__(
        self,
        context: Context,
        call: Call,
        request: FetchRequest,
        session: BeginningSession | ResumedSession | None,
        role_of: RoleOf,
    ) -> None:
        """`role_of` returns the role in which a partition may be read."""
        self.call = call
        self._context = context
        self._request = request
        self._session = session
        self._role_of = role_of
        self._rack = request.rack_id
        if self._rack and context.settings.replica.selector_class is None:
            self._rack = ""
        self._allowed: dict[str, bool] = {}  # by topic, decided by the first `read`, as in Kafka
        self._given: list[tuple[Partition, FileSlice, Offset]] = []
        self._unread: list[tuple[Partition, Role, IndexReading]] = []
        self._readings = 0
        self._is_counted = False  # its partitions are, as requests
        self._is_expired = self._is_reading = self._is_stale = self._is_timed = False
        count = 0
        for topic in request.topics:
            count += len(topic.partitions)
        self._is_in_steps = count > _FEW or len(request.topics) > _FEW
        self._watched: list[tuple[Partition, int]] = []

    def begin(self, now: Instant) -> Answer:
        """Respond, park, or start the job that reads aborted transactions first."""
        request = self._request
        if self._is_in_steps:
            if not self._is_timed and request.max_wait_ms > 0:
                self._is_timed = True
                self._context.timers.park(self, request.max_wait_ms, now)
            return self._context.slices.begin(self.call, self._in_steps(), now)
        response, is_due = self.read()
        if self._unread:
            return self._read_indexes()
        is_now = is_due or request.max_wait_ms <= 0 or not request.topics
        if is_now or not self.watch():
            return self._told(response, now)
        self._context.timers.park(self, request.max_wait_ms, now)
        return Parked.MUTING

    def _in_steps(self) -> AnsweredInSteps:
        """Watch, then read, so that what changes meanwhile is not missed: then it reads again."""
        self._is_reading = True
        try:
            while True:
                self._is_stale = False
                may_wait = self._is_timed and not self._is_expired
                is_watched = may_wait and (yield from self._watch_in_steps())
                response, is_due = yield from self._read_in_steps()
                now = yield
                if self._unread:
                    self._unwatch()
                    return self._read_indexes()
                if is_due or not is_watched or self._is_expired:
                    self._unwatch()
                    return self._told(response, now)
                if not self._is_stale:
                    self.call.waiting = self
                    return Parked.MUTING
                self._unwatch()
        except GeneratorExit:
            self._unwatch()
            raise
        finally:
            self._is_reading = False

    def _read_indexes(self) -> Parked:
        """Read the aborted transactions in a job."""
        self._readings += 1
        self.call.waiting = None
        unread = tuple(self._unread)

        def was_read(result: StorageError | None, now: Instant) -> Answer:
            if result is None:  # otherwise the read on the loop fails too, and names the partition
                for partition, role, reading in unread:
                    if partition.loss_of(role) is ErrorCode.NONE:  # else the log may have been truncated
                        with suppress(PartitionUnavailable):
                            partition.disk.learn(reading)
            is_wanted = self.call.answer is None and not self.call.session.is_closing and not self._is_reading
            return self.begin(now) if is_wanted else Parked.MUTING

        self._context.jobs.run(self.call, partial(_run_all, [reading for _, _, reading in unread]), was_read)
        return Parked.MUTING

    def read(self) -> tuple[FetchResponse, bool]:
        """The response with the records available now, and whether to send it: enough bytes, or an error."""
        try:
            next(self._read_in_steps())
        except StopIteration as done:
            found: tuple[FetchResponse, bool] = done.value
            return found
        raise AssertionError("a fetch of few partitions takes no steps")

    def _read_in_steps(self) -> InSteps[tuple[FetchResponse, bool]]:
        """As `read`; a fetch of many partitions is read in steps."""
        request = self._request
        room = min(request.max_bytes, self._context.live.settings.fetch_max_bytes)
        quotas = self._context.quotas
        if quotas.is_set:
            room = min(room, quotas.fetch_bytes_max(self.call))
        wanted_bytes = request.min_bytes if request.min_bytes < room else room
        found_bytes = 0
        failed = is_elsewhere = False
        self._given.clear()
        self._unread.clear()
        responses = []
        is_in_steps = self._is_in_steps
        for topic in request.topics:
            if is_in_steps:
                yield
            parts = []
            name = self._topic_name(topic.topic, topic.topic_id)
            for asked in topic.partitions:
                part = self._read_partition(name, asked, room, at_least_one=found_bytes == 0)
                size = 0 if part.records is None else len(part.records)
                found_bytes += size
                room = room - size if size < room else 0
                failed |= part.error_code != 0 or part.diverging_epoch is not None
                is_elsewhere |= part.preferred_read_replica >= 0
                parts.append(part)
                if is_in_steps:
                    yield
            responses.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts)
            )
        self._is_counted = True
        response = FetchResponse(responses=responses)
        if failed:
            self._name_leaders(response)
        return response, failed or is_elsewhere or found_bytes >= wanted_bytes or self._was_cut()

    def _name_leaders(self, response: FetchResponse) -> None:
        """Add the addresses of the brokers that the response names as leaders."""
        leaders = {
            NodeId(part.current_leader.leader_id)
            for topic in response.responses
            for part in topic.partitions
            if part.current_leader is not None
        }
        response.node_endpoints = [
            NodeEndpoint(node, at.host, at.port, rack)
            for node, at, rack in endpoints_of(self._context, self.call, leaders)
        ]

    def _was_cut(self) -> bool:
        """Whether a limit or the end of a segment, not the high watermark, ended the records: waiting adds
        none.
        """
        return any(partition.disk.holds_beyond(part, limit) for partition, part, limit in self._given)

    def watch(self) -> bool:
        """Watch every partition; False if one of them has no room for another watcher."""
        try:
            next(self._watch_in_steps())
        except StopIteration as done:
            is_watched: bool = done.value
            return is_watched
        raise AssertionError("a fetch of few partitions takes no steps")

    def _watch_in_steps(self) -> InSteps[bool]:
        is_in_steps = self._is_in_steps
        for topic in self._request.topics:
            name = self._topic_name(topic.topic, topic.topic_id)
            for asked in topic.partitions:
                if is_in_steps:
                    yield
                partition = None if name is None else self._context.partitions.find(name, asked.partition)
                if partition is None:
                    continue
                try:
                    self._watched.append((partition, partition.watch(self)))
                    if partition.leader is None:
                        self._context.partitions.noted.read[partition] = None
                except PurgatoryFull:
                    self._unwatch()
                    return False
        return True

    def released(self) -> None:
        self._context.woken[self] = None

    def woken(self, now: Instant) -> Answer | None:
        """A watched partition changed: respond if there are enough records, else watch on."""
        if self._is_reading:
            self._is_stale = True
            return None
        self._unwatch()
        if self._is_in_steps:
            return self._context.slices.begin(self.call, self._in_steps(), now)
        response, is_due = self.read()
        if self._unread:
            return self._read_indexes()
        if is_due or not self.watch():
            return self._told(response, now)
        return None

    def expired(self, now: Instant) -> Message | None:
        """The wait time has passed: answer with the records that are available."""
        self._readings = _READINGS_MAX  # the request no longer waits: unread ranges are read at once
        self._is_expired = True
        if self._is_in_steps:
            answer = self.woken(now)
            return None if isinstance(answer, Parked) else answer
        self._unwatch()
        response, _ = self.read()
        return self._told(response, now)

    def _told(self, response: FetchResponse, now: Instant) -> FetchResponse:
        """The response to send, whose records are counted."""
        for partition, part, _ in self._given:
            partition.disk.traffic.bytes_out += part.length
        return response if self._session is None else self._session.told(response, now)

    def abandoned(self) -> None:
        """The client has disconnected: drop the request."""
        self._unwatch()

    def _unwatch(self) -> None:
        for partition, key in self._watched:
            partition.purgatory.unwatch(key)
        self._watched.clear()

    def _topic_name(self, name: str, topic_id: bytes) -> str | None:
        if self.call.version < _TOPIC_IDS_SINCE:
            return name
        known = self._context.topic_of_id(topic_id)
        return None if known is None else known.name

    def _read_partition(
        self, topic: str | None, asked: FetchPartition, room: int, *, at_least_one: bool
    ) -> PartitionData:
        part = PartitionData(partition_index=asked.partition, high_watermark=-1, records=b"")
        if topic is None:
            part.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return part
        context = self._context
        is_allowed = self._allowed.get(topic)
        if is_allowed is None:
            is_allowed = self._allowed[topic] = context.allow(self.call, _READ, _TOPIC, topic)
        if not is_allowed:
            part.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return part
        partition = context.partitions.find(topic, asked.partition)
        if partition is None:
            part.error_code = self._code_of(context.partitions.absence(topic, asked.partition))
            if part.error_code in WITH_LEADER:
                leader = leader_elsewhere(context, topic, asked.partition)
                part.current_leader = None if leader is None else LeaderIdAndEpoch(*leader)
            return part
        if not self._is_counted:
            partition.disk.traffic.fetch_requests += 1
        try:
            self._role_of(partition, asked.current_leader_epoch)
            is_committed_only = self._request.isolation_level == _READ_COMMITTED
            high_watermark = part.high_watermark = partition.high_watermark
            part.last_stable_offset = partition.log.last_stable_offset(high_watermark)
            limit = part.last_stable_offset if is_committed_only else high_watermark
            if not is_committed_only:
                part.aborted_transactions = None
            part.log_start_offset = partition.log.log_start_offset
            start = Offset(asked.fetch_offset)
            if self._rack:
                own = NodeId(context.settings.node_id)
                near = near_replica(context.image, partition, own, self._rack, start)
                if near is not None:
                    part.preferred_read_replica = near
                    return part
            if asked.last_fetched_epoch >= 0:
                part.diverging_epoch = divergence(partition, asked)
                if part.diverging_epoch is not None:
                    return part
            # The log end offset, not the high watermark, bounds the fetch offset: a client may be just past
            # the committed records.
            if start < limit or start > partition.log.log_end_offset or start < part.log_start_offset:
                most = asked.partition_max_bytes if asked.partition_max_bytes < room else room
                given = partition.disk.read(start, limit, most, at_least_one=at_least_one)
                if given is not None and is_committed_only and self._readings < _READINGS_MAX:
                    reading = partition.log.segments.index_reading(given, start, limit)
                    if reading is not None:
                        self._unread.append((partition, partition.role, reading))
                        return part
                if given is not None:
                    self._given.append((partition, given, limit))
                    part.records = given
                    if is_committed_only:
                        part.aborted_transactions = [
                            AbortedTransaction(aborted.producer_id, aborted.first_offset)
                            for aborted in sorted(
                                partition.disk.aborted_within(given, start, limit), key=_first_offset_of
                            )
                        ]
        except PartitionUnavailable as unavailable:
            part.error_code = unavailable.code
        except OffsetOutOfRange:
            part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        except BrokenFrame:
            part.error_code = ErrorCode.CORRUPT_MESSAGE
        if part.error_code:
            partition.disk.traffic.failed_fetch_requests += 1
            if part.error_code in WITH_LEADER:
                leader = leader_elsewhere(context, topic, asked.partition)
                part.current_leader = None if leader is None else LeaderIdAndEpoch(*leader)
            part.records = b""
            part.error_code = self._code_of(part.error_code)
        return part

    def _code_of(self, code: int) -> int:
        """The error code in a form that the client's version knows."""
        is_unknown = code == ErrorCode.KAFKA_STORAGE_ERROR and self.call.version < _STORAGE_ERROR_SINCE
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_unknown else code


def _run_all(readings: Sequence[IndexReading]) -> None:
    for reading in readings:
        reading.run()
