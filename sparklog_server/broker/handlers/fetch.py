"""Fetch: whole batches as file slices, at once or when enough records are committed (long poll by min bytes
and max wait, KIP-74).

    one fetch ─► each partition: allowed? ─► served here? ─► offsets ─► nearer replica? ─► records
        │                                                            divergence?      aborted transactions
        ├── an error, or enough bytes ────────────────────────────────────────────────► answered
        ├── too few bytes ─► parked in the purgatory of each partition ─► read again ─► answered, or parked
        └── the aborted transactions are in files not in memory ─► a job reads them ─► read again

A fetch in a session (KIP-227) reads all partitions of the session: see `session_fetch`. A fetch of many
partitions is read in steps, between which other sessions have their turn.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec

from sparklog.effects import FileSlice
from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId, Offset
from sparklog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
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

if TYPE_CHECKING:
    from sparklog_server.broker.ports import FetchPort


# Reading an enum member through its class costs as much as two calls.
_READ: Final = Operation.READ
_TOPIC: Final = Resource.TOPIC
_NONE: Final = ErrorCode.NONE
_FEW: Final = 128
"""The number of partitions that are read in one turn; a fetch of more is read in steps."""
_TOPIC_IDS_SINCE = 13
_RACKS_SINCE = 11  # a consumer may read from a follower (KIP-392)
_STORAGE_ERROR_SINCE = 6  # an earlier client would not retry this error, and not look for the new leader
_READ_COMMITTED = 1
_INDEX_JOBS_MAX: Final = 3
"""How often a fetch repeats a job whose files were replaced while it read them; after that it reads them in
the loop.
"""
_first_offset_of = attrgetter("first_offset")


def fetch(context: "FetchPort", call: Call, request: FetchRequest, now: Instant) -> Answer:
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
    session: BeginningSession | ResumedSession | None = None
    if request.session_epoch != NO_SESSION or request.session_id:
        found = in_session(context, call, request, now)
        if isinstance(found, FetchResponse):
            return found
        session = found
    is_near = replica_id == DEBUGGING or call.version >= _RACKS_SINCE
    served = _Fetch(context, call, request, session, any_role_of if is_near else Partition.leader_for)
    count = 0
    for topic in request.topics:
        count += len(topic.partitions)
    if count > _FEW or len(request.topics) > _FEW:
        return _ParkedFetch(served, is_in_steps=True).begin(now)
    response = served.read()
    if served.is_due and not served.unread:
        return served.answer(response, now)
    return _ParkedFetch(served, is_in_steps=False).wait(response, now)


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


class _Fetch(msgspec.Struct, eq=False):
    """One fetch that is being served: what it asks for, and what the last `read` has found.

    `role_of` returns the role in which a partition may be read.
    """

    context: "FetchPort"
    call: Call
    request: FetchRequest
    session: BeginningSession | ResumedSession | None
    role_of: RoleOf
    allowed: dict[str, bool] = {}
    """By topic, decided by the first `read`, as in Kafka."""
    index_jobs_left: int = _INDEX_JOBS_MAX
    """The number of jobs that may read aborted transactions for it."""
    is_counted: bool = False
    """Whether its partitions are counted, as requests."""

    room: int = 0
    """The number of bytes that the response may still take."""
    wanted_bytes: int = 0
    found_bytes: int = 0
    is_due: bool = False
    """Whether the response is to be sent, however long the client would wait."""
    given: list[tuple[Partition, FileSlice]] = []
    unread: list[tuple[Partition, Role, IndexReading]] = []
    """The files of aborted transactions that a job must read first."""
    leaders: set[NodeId] = set()
    """The brokers that the response names as leaders."""

    def read(self) -> FetchResponse:
        """The response with the records that are available now."""
        self._begin()
        responses = []
        for topic in self.request.topics:
            name, refusal = self._topic_of(topic)
            parts = []
            for asked in topic.partitions:
                parts.append(self._read_partition(name, refusal, asked))
            responses.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts)
            )
        self.is_counted = True
        return FetchResponse(responses=responses)

    def read_in_steps(self) -> InSteps[FetchResponse]:
        """As `read`, with a step for each topic and partition."""
        self._begin()
        responses = []
        for topic in self.request.topics:
            yield
            name, refusal = self._topic_of(topic)
            parts = []
            for asked in topic.partitions:
                parts.append(self._read_partition(name, refusal, asked))
                yield
            responses.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts)
            )
        self.is_counted = True
        return FetchResponse(responses=responses)

    def answer(self, response: FetchResponse, now: Instant) -> FetchResponse:
        """The response to send: its records are counted, and the leaders that it names have addresses."""
        for partition, records in self.given:
            partition.disk.traffic.bytes_out += records.length
        if self.leaders:
            response.node_endpoints = [
                NodeEndpoint(node, at.host, at.port, rack)
                for node, at, rack in endpoints_of(self.context, self.call, self.leaders)
            ]
        return response if self.session is None else self.session.told(response, now)

    def partition_of(self, topic: FetchTopic, asked: FetchPartition) -> Partition | None:
        """The partition, if it is here and the client may read it."""
        name, refusal = self._topic_of(topic)
        return None if refusal else self.context.partitions.find(name, asked.partition)

    def _begin(self) -> None:
        """Forget what an earlier read has found."""
        request, context = self.request, self.context
        room = min(request.max_bytes, context.live.settings.fetch_max_bytes)
        quotas = context.quotas
        if quotas.is_set:
            room = min(room, quotas.fetch_bytes_max(self.call))
        self.room = room
        self.wanted_bytes = request.min_bytes if request.min_bytes < room else room
        self.found_bytes = 0
        self.is_due = self.wanted_bytes <= 0 or request.max_wait_ms <= 0 or not request.topics
        self.given.clear()
        self.unread.clear()
        self.leaders.clear()

    def _topic_of(self, topic: FetchTopic) -> tuple[str, ErrorCode]:
        """The topic's name, and the error that forbids reading it (or NONE)."""
        name = topic.topic
        if self.call.version >= _TOPIC_IDS_SINCE:
            known = self.context.topic_of_id(topic.topic_id)
            if known is None:
                return "", ErrorCode.UNKNOWN_TOPIC_ID
            name = known.name
        is_allowed = self.allowed.get(name)
        if is_allowed is None:
            is_allowed = self.allowed[name] = self.context.allow(self.call, _READ, _TOPIC, name)
        return name, _NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _read_partition(self, topic: str, refusal: ErrorCode, asked: FetchPartition) -> PartitionData:
        """The committed records of one partition, or why there are none."""
        part = PartitionData(partition_index=asked.partition, high_watermark=-1, records=b"")
        if refusal:
            return self._refuse(part, topic, refusal)
        partitions = self.context.partitions
        partition = partitions.find(topic, asked.partition)
        if partition is None:
            return self._refuse(part, topic, partitions.absence(topic, asked.partition))
        traffic = partition.disk.traffic
        if not self.is_counted:
            traffic.fetch_requests += 1
        try:
            self.role_of(partition, asked.current_leader_epoch)
            self._read_replica(partition, asked, part)
        except PartitionUnavailable as unavailable:
            code = unavailable.code
        except OffsetOutOfRange:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        except BrokenFrame:
            code = ErrorCode.CORRUPT_MESSAGE
        else:
            return part
        traffic.failed_fetch_requests += 1
        return self._refuse(part, topic, code)

    def _read_replica(self, partition: Partition, asked: FetchPartition, part: PartitionData) -> None:
        """Fill `part` with the offsets of the replica, and then a nearer replica, the divergence of the logs
        or records. Raises PartitionUnavailable, OffsetOutOfRange or BrokenFrame.
        """
        log, request = partition.log, self.request
        limit = part.high_watermark = partition.high_watermark
        part.last_stable_offset = log.last_stable_offset(limit)
        if request.isolation_level == _READ_COMMITTED:
            limit = Offset(part.last_stable_offset)
        else:
            part.aborted_transactions = None
        part.log_start_offset = log.log_start_offset
        if request.rack_id and self._is_nearer_elsewhere(partition, asked, part):
            self.is_due = True
            return
        if asked.last_fetched_epoch >= 0:
            part.diverging_epoch = divergence(partition, asked)
            if part.diverging_epoch is not None:
                self.is_due = True
                return
        # The log end offset, not the high watermark, bounds the fetch offset: a client may be just past the
        # committed records.
        start = Offset(asked.fetch_offset)
        if start < limit or start > log.log_end_offset or start < part.log_start_offset:
            self._read_records(partition, asked, part, limit)

    def _is_nearer_elsewhere(self, partition: Partition, asked: FetchPartition, part: PartitionData) -> bool:
        """Whether the client is to fetch from another replica, which `part` then names."""
        settings = self.context.settings
        if settings.replica.selector_class is None:
            return False
        own, start = NodeId(settings.node_id), Offset(asked.fetch_offset)
        near = near_replica(self.context.image, partition, own, self.request.rack_id, start)
        if near is None:
            return False
        part.preferred_read_replica = near
        return True

    def _read_records(
        self, partition: Partition, asked: FetchPartition, part: PartitionData, limit: Offset
    ) -> None:
        """Fill `part` with the records of `[fetch offset, limit)` that there is room for, and for a
        read_committed consumer with their aborted transactions. Raises as `_read_replica`.
        """
        start = Offset(asked.fetch_offset)
        bytes_max = asked.partition_max_bytes if asked.partition_max_bytes < self.room else self.room
        records = partition.disk.read(start, limit, bytes_max, at_least_one=self.found_bytes == 0)
        if records is None:
            return
        if self.request.isolation_level == _READ_COMMITTED:
            if self.index_jobs_left > 0:
                reading = partition.log.segments.index_reading(records, start, limit)
                if reading is not None:
                    self.unread.append((partition, partition.role, reading))
                    return
            part.aborted_transactions = [
                AbortedTransaction(aborted.producer_id, aborted.first_offset)
                for aborted in sorted(
                    partition.disk.aborted_within(records, start, limit), key=_first_offset_of
                )
            ]
        size = records.length
        self.found_bytes += size
        self.room = self.room - size if size < self.room else 0
        # If a limit or the end of a segment, not the high watermark, ended the records, waiting adds none.
        if not self.is_due and (
            self.found_bytes >= self.wanted_bytes or partition.disk.holds_beyond(records, limit)
        ):
            self.is_due = True
        part.records = records
        self.given.append((partition, records))

    def _refuse(self, part: PartitionData, topic: str, code: ErrorCode) -> PartitionData:
        """Fill `part` with an error, in a form that the client's version knows, and the leader, if that is
        another broker.
        """
        self.is_due = True
        if code in WITH_LEADER:
            leader = leader_elsewhere(self.context, topic, part.partition_index)
            if leader is not None:
                part.current_leader = LeaderIdAndEpoch(*leader)
                self.leaders.add(leader[0])
        is_unknown = code is ErrorCode.KAFKA_STORAGE_ERROR and self.call.version < _STORAGE_ERROR_SINCE
        part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_unknown else code
        return part


class _ParkedFetch:
    """A fetch that waits for records or for a job, or is read in steps, and its registration in the
    purgatories of its partitions.
    """

    __slots__ = (
        "_context",
        "_fetch",
        "_is_expired",
        "_is_in_steps",
        "_is_reading",
        "_is_stale",
        "_is_timed",
        "_watched",
        "call",
    )

    def __init__(self, fetch: _Fetch, *, is_in_steps: bool) -> None:
        self.call = fetch.call
        self._context = fetch.context
        self._fetch = fetch
        self._is_in_steps = is_in_steps
        self._is_expired = self._is_reading = self._is_stale = self._is_timed = False
        self._watched: list[tuple[Partition, int]] = []

    def begin(self, now: Instant) -> Answer:
        """Read, in steps or at once, then respond or wait."""
        if not self._is_in_steps:
            return self.wait(self._fetch.read(), now)
        max_wait_ms = self._fetch.request.max_wait_ms
        if not self._is_timed and max_wait_ms > 0:
            self._is_timed = True
            self._context.timers.park(self, max_wait_ms, now)
        return self._context.slices.begin(self.call, self._read_in_steps(), now)

    def wait(self, response: FetchResponse, now: Instant) -> Answer:
        """Start the job that reads aborted transactions, respond if that is due, or park."""
        if self._fetch.unread:
            return self._read_indexes()
        if self._fetch.is_due or not self._watch():
            return self._fetch.answer(response, now)
        self._context.timers.park(self, self._fetch.request.max_wait_ms, now)
        return Parked.MUTING

    def _read_in_steps(self) -> AnsweredInSteps:
        """Watch, then read, so that what changes meanwhile is not missed: then it reads again."""
        self._is_reading = True
        try:
            while True:
                self._is_stale = False
                may_wait = self._is_timed and not self._is_expired
                is_watched = may_wait and (yield from self._watch_in_steps())
                response = yield from self._fetch.read_in_steps()
                now = yield
                if self._fetch.unread:
                    self._unwatch()
                    return self._read_indexes()
                if self._fetch.is_due or not is_watched or self._is_expired:
                    self._unwatch()
                    return self._fetch.answer(response, now)
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
        self._fetch.index_jobs_left -= 1
        self.call.waiting = None
        unread = tuple(self._fetch.unread)

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

    def _watch(self) -> bool:
        """Watch every partition; False if one of them has no room for another watcher."""
        for topic in self._fetch.request.topics:
            for asked in topic.partitions:
                if not self._watch_partition(topic, asked):
                    return False
        return True

    def _watch_in_steps(self) -> InSteps[bool]:
        for topic in self._fetch.request.topics:
            for asked in topic.partitions:
                yield
                if not self._watch_partition(topic, asked):
                    return False
        return True

    def _watch_partition(self, topic: FetchTopic, asked: FetchPartition) -> bool:
        """Watch a partition, if it is here; False, and watch none, if it has no room."""
        partition = self._fetch.partition_of(topic, asked)
        if partition is None:
            return True
        try:
            self._watched.append((partition, partition.watch(self)))
        except PurgatoryFull:
            self._unwatch()
            return False
        if partition.leader is None:
            self._context.partitions.noted.read[partition] = None
        return True

    def _unwatch(self) -> None:
        for partition, key in self._watched:
            partition.purgatory.unwatch(key)
        self._watched.clear()

    def released(self) -> None:
        self._context.woken[self] = None

    def woken(self, now: Instant) -> Answer | None:
        """A watched partition changed: respond if there are enough records, else watch on."""
        if self._is_reading:
            self._is_stale = True
            return None
        self._unwatch()
        if self._is_in_steps:
            return self._context.slices.begin(self.call, self._read_in_steps(), now)
        response = self._fetch.read()
        if self._fetch.unread:
            return self._read_indexes()
        if self._fetch.is_due or not self._watch():
            return self._fetch.answer(response, now)
        return None

    def expired(self, now: Instant) -> Message | None:
        """The wait time has passed: answer with the records that are available."""
        self._fetch.index_jobs_left = 0  # the request no longer waits: unread ranges are read at once
        self._is_expired = True
        if self._is_in_steps:
            answer = self.woken(now)
            return None if isinstance(answer, Parked) else answer
        self._unwatch()
        return self._fetch.answer(self._fetch.read(), now)

    def abandoned(self) -> None:
        """The client has disconnected: drop the request."""
        self._unwatch()


def _run_all(readings: Sequence[IndexReading]) -> None:
    for reading in readings:
        reading.run()
