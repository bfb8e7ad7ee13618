"""Fetch by a follower: it tells what it has, and gets the records up to the log end offset.

    positions ─► progress, high watermark, ISR ─► records, errors or divergence? ── yes ──► response
                                                     └── no ──► parked in its session ──► news, max wait, or
                                                                                        the next request

See `replica/sessions.py` for the sessions.
"""

from typing import TYPE_CHECKING, Final

from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId, Offset, Uuid
from sparklog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from sparklog_server.broker.handlers.epochs import divergence
from sparklog_server.broker.session import Call, Parked
from sparklog_server.log.lookup.places import BrokenFrame
from sparklog_server.log.partition_log import OffsetOutOfRange
from sparklog_server.replica.fetch_sessions import FULL_FETCH, NO_SESSION, epoch_after, key_of, refusal_of
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.sessions import PARTS_MAX, UNKNOWN, ReplicaSession, StandingPart

if TYPE_CHECKING:
    from sparklog_server.broker.ports import FetchPort


_TOPIC_IDS_SINCE = 13
_NO_TOPIC_ID: Final = Uuid(bytes(16))


def follower_of(request: FetchRequest) -> tuple[NodeId, int]:
    """The follower that fetches and its broker epoch; a consumer is (-1, -1), a debugging one (-2, -1).

    Since version 15 both are fields of the replica state (KIP-903).
    """
    state = request.replica_state
    if state is not None:
        return NodeId(state.replica_id), state.replica_epoch
    return NodeId(request.replica_id), -1


def fetch_as_replica(
    context: "FetchPort", call: Call, request: FetchRequest, now: Instant
) -> FetchResponse | Parked:
    """Take what the follower tells, and answer it, at once or when there is news."""
    is_early = False
    for earlier in call.session.owed:
        if earlier.answer is None and isinstance(earlier.waiting, _ParkedReplicaFetch):
            earlier.waiting.finish()  # before the positions change
            is_early = True
    node, broker_epoch = follower_of(request)
    session = _session_of(context, call, request, node, now)
    if isinstance(session, ErrorCode):
        return FetchResponse(error_code=session)
    session.fetched_us = now.mono_us
    if session.throttle is not None:
        session.throttle.refill(now)
    uses_topic_ids = session.uses_topic_ids
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.forget(key_of(forgotten.topic, forgotten.topic_id, index, uses_topic_ids=uses_topic_ids))
    # Whether a replica may join the ISR changes while it asks for the same offset: its broker is unfenced.
    for part in tuple(session.outside):
        _take(context, part, node, broker_epoch, now)
    for topic in request.topics:
        name = Uuid(topic.topic_id) if uses_topic_ids else topic.topic
        for asked in topic.partitions:
            part = session.ask((name, asked.partition), asked)
            if is_early:  # the follower takes nothing for this partition from that response
                part.told_high_watermark = part.told_log_start = UNKNOWN
            _take(context, part, node, broker_epoch, now)
    if len(session.parts) > PARTS_MAX:
        context.replica_sessions.end(session.id)
        session.close()
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return _ParkedReplicaFetch(context, call, request, session).begin(now)


def _session_of(
    context: "FetchPort", call: Call, request: FetchRequest, node: NodeId, now: Instant
) -> ReplicaSession | ErrorCode:
    """The session of a request, a new one, or why there is none."""
    sessions = context.replica_sessions
    uses_topic_ids = call.version >= _TOPIC_IDS_SINCE
    if request.session_epoch in (FULL_FETCH, NO_SESSION):
        sessions.end(request.session_id)
        if request.session_epoch == FULL_FETCH:
            return sessions.begin(node, now, uses_topic_ids=uses_topic_ids)
        return ReplicaSession(0, node, uses_topic_ids=uses_topic_ids, throttle=sessions.throttle)
    session = sessions.find(request.session_id)
    if session is None or session.node != node:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    refusal = refusal_of(session, request.session_epoch, uses_topic_ids=uses_topic_ids)
    if refusal is not None:
        return refusal
    session.epoch = epoch_after(session.epoch)
    return session


def _take(context: "FetchPort", part: StandingPart, node: NodeId, broker_epoch: int, now: Instant) -> None:
    """Take over the position of a follower, unless it is to truncate its log first: such a fetch says nothing
    about the records of this log (KAFKA-13141).
    """
    asked, session = part.asked, part.session
    session.marked[part] = None  # whether there is news, the response shows
    partition = part.partition or _find(context, part)
    if partition is None:
        part.leave()
        return
    try:
        leader = partition.leader_for(asked.current_leader_epoch)
        progress = leader.followers.get(node)
        if progress is None:
            # The metadata of one of the two brokers are older: the follower refreshes its own, as in Kafka.
            raise PartitionUnavailable(
                ErrorCode.UNKNOWN_LEADER_EPOCH
                if asked.current_leader_epoch >= 0
                else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        start, log = Offset(asked.fetch_offset), partition.log
        if not log.log_start_offset <= start <= log.log_end_offset and asked.last_fetched_epoch < 0:
            part.error = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            part.diverging = divergence(partition, asked)
            if part.diverging is None:
                partition.follower_fetched(
                    node,
                    broker_epoch,
                    fetch_offset=start,
                    log_start_offset=Offset(asked.log_start_offset),
                    now=now,
                )
        part.stand(partition, progress)
        if node not in leader.isr.committed:
            session.outside[part] = None
        elif session.outside:
            session.outside.pop(part, None)
    except PartitionUnavailable as unavailable:
        part.error = unavailable.code
        session.outside.pop(part, None)
        part.leave()
    except OffsetOutOfRange:
        part.error = ErrorCode.OFFSET_OUT_OF_RANGE


def _find(context: "FetchPort", part: StandingPart) -> Partition | None:
    """The partition here; None if there is none, with the error in `part`."""
    topic, index = part.key
    if not isinstance(topic, str):
        known = context.topic_of_id(topic)
        if known is None:
            part.error = ErrorCode.UNKNOWN_TOPIC_ID
            return None
        topic = known.name
    partition = context.partitions.find(topic, index)
    if partition is None:
        part.error = context.partitions.absence(topic, index)
    return partition


class _ParkedReplicaFetch:
    """A follower's fetch, which waits for news of its session."""

    __slots__ = ("_answer", "_context", "_is_full", "_request", "_session", "call")

    def __init__(
        self, context: "FetchPort", call: Call, request: FetchRequest, session: ReplicaSession
    ) -> None:
        self.call = call
        self._context = context
        self._request = request
        self._session = session
        self._answer: FetchResponse | None = None
        self._is_full = request.session_epoch in (FULL_FETCH, NO_SESSION)

    def begin(self, now: Instant) -> FetchResponse | Parked:
        """Respond if there is news, else wait for it."""
        if self._has_news() or self._request.max_wait_ms <= 0 or self._request.min_bytes <= 0:
            return self._response()
        self._session.parked = self
        self._context.timers.park(self, self._request.max_wait_ms, now)
        return Parked.FLOWING

    def finish(self) -> None:
        """Wait no longer: the follower has sent another request."""
        if self._answer is None:
            self._answer = self._response()
            self._context.woken[self] = None

    def released(self) -> None:
        self._context.woken[self] = None

    def woken(self, now: Instant) -> FetchResponse | None:
        if self._answer is None and (throttle := self._session.throttle) is not None:
            throttle.refill(now)
            # Another follower may have been sent what there was room for; or this request was told twice.
            if self._session.parked is not self or not self._has_news():
                return None
        return self._answer or self._response()

    def expired(self, now: Instant) -> FetchResponse:
        if self._session.throttle is not None:
            self._session.throttle.refill(now)
        return self._answer or self._response()

    def abandoned(self) -> None:
        """The connection of the follower is closed: it begins another session on the next one."""
        self._context.replica_sessions.end(self._session.id)
        self._session.close()

    def _has_news(self) -> bool:
        parts = self._session.parts.values() if self._is_full else self._session.marked
        for part in parts:  # noqa: SIM110 - `any` costs two more calls
            if part.has_news:
                return True
        return False

    def _response(self) -> FetchResponse:
        """What the marked parts, or all, have to say; they are marked further where it is not all."""
        session = self._session
        session.parked = None
        room, is_first = self._request.max_bytes, True
        topics: dict[Uuid | str, FetchableTopicResponse] = {}
        # A copy: a read that fails may take the directory offline, which marks other parts.
        for part in tuple(session.parts.values() if self._is_full else session.marked):
            data = self._data(part, room, at_least_one=is_first)
            if part.tell(data) or self._is_full:
                if data.records:
                    room, is_first = max(0, room - len(data.records)), False
                topic, _ = part.key
                if topic not in topics:
                    topics[topic] = FetchableTopicResponse(
                        topic=topic if isinstance(topic, str) else "",
                        topic_id=topic if not isinstance(topic, str) else _NO_TOPIC_ID,
                        partitions=[],
                    )
                topics[topic].partitions.append(data)
        if session.id == 0:
            session.close()
        return FetchResponse(session_id=session.id, responses=list(topics.values()))

    def _data(self, part: StandingPart, room: int, *, at_least_one: bool) -> PartitionData:
        """What the response says about one partition."""
        asked = part.asked
        data = PartitionData(
            partition_index=asked.partition, high_watermark=-1, aborted_transactions=None, records=b""
        )
        partition = part.partition
        try:
            if part.error:
                raise PartitionUnavailable(ErrorCode(part.error))
            if partition is None:
                partition = _find(self._context, part)
                if partition is None:
                    raise PartitionUnavailable(ErrorCode(part.error))
                partition.leader_for(asked.current_leader_epoch)
                raise PartitionUnavailable(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # it led in between
            if part.diverging is not None:
                data.diverging_epoch = part.diverging
                return data
            log = partition.log
            start, end = Offset(asked.fetch_offset), log.log_end_offset
            if not log.log_start_offset <= start <= end:
                raise PartitionUnavailable(ErrorCode.OFFSET_OUT_OF_RANGE)
            data.high_watermark = partition.high_watermark
            data.log_start_offset = log.log_start_offset
            throttle = part.session.throttle
            throttled_room = None if throttle is None else part.throttled_room
            if start < end and not part.is_awaiting and throttled_room != 0:
                most = min(asked.partition_max_bytes, room)
                if throttled_room is not None and throttled_room < most:
                    most, at_least_one = throttled_room, True
                tail = log.tail(start)
                if tail is not None and len(tail) <= most:
                    data.records = tail
                else:
                    data.records = partition.disk.read(start, end, most, at_least_one=at_least_one) or b""
                traffic = partition.disk.traffic
                traffic.replication_bytes_out += len(data.records)
                if part.session.node in partition.adding:
                    traffic.reassignment_bytes_out += len(data.records)
                if throttle is not None:
                    throttle.passed(
                        partition.topic_partition, len(data.records), is_outside=throttled_room is not None
                    )
        except PartitionUnavailable as unavailable:
            data.error_code = unavailable.code
        except OffsetOutOfRange:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        except BrokenFrame:
            data.error_code = ErrorCode.CORRUPT_MESSAGE
        return data
