"""ListOffsets: the offset of a timestamp, or of a special timestamp.

`latest` waits until the high watermark reaches the log end offset of its arrival, and a search by time until
it reaches the records acknowledged by then: a client that sends either after an acks=1 Produce finds its own
record, although the record is visible only once it is durable. A job searches, since the files may be cold.
The wait and the search are for the role of the replica at arrival: their offsets mean nothing in another
leader epoch. Replicas, and debugging readers at followers too, see the log up to its end.

    request ──► every high watermark is reached ──► a job searches the logs ──► response
"""

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Millis, NodeId, Offset, OffsetAndEpoch
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.session import Answer, AnsweredInSteps, Call, Parked
from sparklog_server.disk.door import StorageError
from sparklog_server.log.lookup.time_lookup import SEARCH_BYTES, Found, TimeSearch, run_all
from sparklog_server.log.producers.validate import RecordsRefused
from sparklog_server.replica.leader import Following, LeaderReplica, PartitionUnavailable, Role
from sparklog_server.replica.partition import DEBUGGING, Partition, any_role_of
from sparklog_server.replica.purgatory import PurgatoryFull

if TYPE_CHECKING:
    from sparklog_server.broker.ports import PartitionPort


LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_NOT_AVAILABLE_SINCE = 5
_READ_COMMITTED = 1
_SEARCHES_MAX = 3  # compaction and retention may change the files under a search
_WAIT_MS = 30_000  # Kafka's default request.timeout.ms: a client has given up by then


def list_offsets(
    context: "PartitionPort", call: Call, request: ListOffsetsRequest, now: Instant
) -> AnsweredInSteps:
    """Answer every partition; `latest` and searches by time may wait for the high watermark."""
    response = ListOffsetsResponse(topics=[])
    waiting = _ParkedOffsets(
        context,
        call,
        response,
        is_committed_only=request.isolation_level == _READ_COMMITTED,
        replica=NodeId(request.replica_id),
    )
    counts: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for asked in topic.partitions:
            counts[topic.name, asked.partition_index] += 1
            yield
        yield
    has_repeated = len(counts) < counts.total()
    for topic in request.topics:
        parts = []
        for asked in topic.partitions:
            part = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            parts.append(part)
            if has_repeated and counts[topic.name, asked.partition_index] > 1:
                part.error_code = ErrorCode.INVALID_REQUEST
            else:
                try:
                    _answer(context, call, topic.name, asked, part, waiting)
                except PartitionUnavailable as unavailable:
                    part.error_code = unavailable.code
            now = yield
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        now = yield
    waiting.is_whole = True
    if not waiting.remaining and not waiting.searches:
        return response
    context.timers.park(waiting, _WAIT_MS, now)
    if not waiting.remaining:
        _search(context, waiting, waiting.searches, attempt=1)
    return Parked.MUTING


def _search(
    context: "PartitionPort", waiting: "_ParkedOffsets", searches: "list[_Search]", *, attempt: int
) -> None:
    """Search the logs in a job."""
    job = partial(run_all, tuple(search.search for search in searches))
    context.jobs.run_in_steps(
        waiting.call,
        job,
        partial(_searched, context, waiting, searches, attempt),
        memory_bytes=SEARCH_BYTES,
    )


def _searched(
    context: "PartitionPort",
    waiting: "_ParkedOffsets",
    searches: "list[_Search]",
    attempt: int,
    result: "Sequence[Found | RecordsRefused | StorageError | None] | StorageError",
    now: Instant,
) -> Answer:
    """Fill in the results, and search again where the files of the log changed meanwhile."""
    assert not isinstance(result, StorageError), "each search tells its own"
    return context.slices.begin(waiting.call, _filled_in(context, waiting, searches, attempt, result), now)


def _filled_in(
    context: "PartitionPort",
    waiting: "_ParkedOffsets",
    searches: "list[_Search]",
    attempt: int,
    outcomes: "Sequence[Found | RecordsRefused | StorageError | None]",
) -> AnsweredInSteps:
    again: list[_Search] = []
    for search, outcome in zip(searches, outcomes, strict=True):
        part = search.part
        try:
            if search.search.is_current:
                found = _found(search, outcome)
                if found is not None:
                    part.timestamp, part.offset, part.leader_epoch = found
            elif attempt < _SEARCHES_MAX:
                _check_role(search.partition, search.role)
                timestamp, limit = search.asked
                again.append(search._replace(search=search.partition.log.time_search(timestamp, limit)))
            else:
                part.error_code = _not_available(waiting.call)
        except PartitionUnavailable as unavailable:
            part.error_code = unavailable.code
        yield
    waiting.searches = again
    if again:
        _search(context, waiting, again, attempt=attempt + 1)
    return Parked.MUTING if again else waiting.response


def _found(search: "_Search", outcome: Found | RecordsRefused | StorageError | None) -> Found | None:
    """The result of a search that a job has run and that is still current. Raises PartitionUnavailable."""
    _check_role(search.partition, search.role)
    if isinstance(outcome, StorageError):
        raise search.partition.disk.unreadable(outcome) from outcome
    if isinstance(outcome, RecordsRefused):
        raise PartitionUnavailable(outcome.code) from outcome
    search.search.learn()
    return outcome


def _check_role(partition: Partition, role: Role) -> None:
    """Raise PartitionUnavailable if the role has ended in which a request found the partition."""
    code = partition.loss_of(role)
    if code is not ErrorCode.NONE:
        raise PartitionUnavailable(code)


def _answer(
    context: "PartitionPort",
    call: Call,
    topic: str,
    asked: ListOffsetsPartition,
    part: ListOffsetsPartitionResponse,
    waiting: "_ParkedOffsets",
) -> None:
    if not context.allow(call, Operation.DESCRIBE, Resource.TOPIC, topic):
        raise PartitionUnavailable(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if call.version < _SINCE.get(asked.timestamp, 0) or asked.timestamp < EARLIEST_PENDING_UPLOAD:
        raise PartitionUnavailable(ErrorCode.UNSUPPORTED_VERSION)
    partition = context.partitions.find(topic, asked.partition_index)
    if partition is None:
        raise PartitionUnavailable(context.partitions.absence(topic, asked.partition_index))
    is_debugging = waiting.replica == DEBUGGING
    role = (any_role_of if is_debugging else Partition.leader_for)(partition, asked.current_leader_epoch)
    log = partition.log
    if asked.timestamp == LATEST and (is_debugging or waiting.replica in _followers_of(role)):
        part.offset, part.leader_epoch = log.log_end_offset, role.leader_epoch
    elif asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
        part.offset = log.log_start_offset
        part.leader_epoch = log.epochs.epoch_at(log.log_start_offset)
    elif asked.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        part.offset = -1  # no tiered storage
    else:
        until = partition.high_watermark
        if isinstance(role, LeaderReplica) and not is_debugging:
            # The high watermark of a new leadership may be lower than a reader was told before (KIP-207).
            if role.followers and until < role.epoch_start:
                raise PartitionUnavailable(_not_available(waiting.call))
            # With followers a record is committed when they have it, and no reader waits for that.
            if not role.followers:
                until = log.log_end_offset if asked.timestamp == LATEST else partition.promised_end
        waiting.add(_Share(waiting, partition, role, until, asked.timestamp, part))


def _followers_of(role: Role) -> Collection[NodeId]:
    return role.followers if isinstance(role, LeaderReplica) else ()


def _not_available(call: Call) -> ErrorCode:
    """The offset is not available yet, as an error code that the client's version knows."""
    return (
        ErrorCode.OFFSET_NOT_AVAILABLE
        if call.version >= _NOT_AVAILABLE_SINCE
        else ErrorCode.LEADER_NOT_AVAILABLE
    )


class _Search(NamedTuple):
    """One partition whose log is searched by time: `asked` is (timestamp or None for the greatest, limit)."""

    partition: Partition
    role: Role
    search: TimeSearch
    part: ListOffsetsPartitionResponse
    asked: tuple[Millis | None, Offset]


class _Share:
    """One partition that is answered, or searched by time, once the high watermark reaches `until`."""

    __slots__ = ("call", "part", "partition", "role", "timestamp", "until", "whole")

    def __init__(
        self,
        whole: "_ParkedOffsets",
        partition: Partition,
        role: LeaderReplica | Following,
        until: Offset,
        timestamp: int,
        part: ListOffsetsPartitionResponse,
    ) -> None:
        self.call = whole.call
        self.whole = whole
        self.partition = partition
        self.role = role
        self.until = until
        self.timestamp = timestamp
        self.part = part

    def fill(self) -> None:
        """Answer now, or have the log searched."""
        partition = self.partition
        self.part.error_code = partition.loss_of(self.role)
        if self.part.error_code:
            return
        if partition.high_watermark < self.until:
            self.part.error_code = _not_available(self.call)
            return
        limit = self.whole.limit_of(partition)
        if self.timestamp == LATEST:
            self.part.offset, self.part.leader_epoch = OffsetAndEpoch(limit, self.role.leader_epoch)
            return
        timestamp = None if self.timestamp == MAX_TIMESTAMP else Millis(self.timestamp)
        self.whole.searches.append(
            _Search(
                partition,
                self.role,
                partition.log.time_search(timestamp, limit),
                self.part,
                (timestamp, limit),
            )
        )

    def released(self) -> None:
        self.whole.context.woken[self] = None

    def woken(self, now: Instant) -> ListOffsetsResponse | Parked | None:
        self.fill()
        whole = self.whole
        del whole.remaining[self]
        if whole.remaining or not whole.is_whole:
            return None
        if not whole.searches:
            return whole.response
        _search(whole.context, whole, whole.searches, attempt=1)
        return Parked.MUTING


class _ParkedOffsets:
    """A ListOffsets that waits for the shares in `remaining` and the `searches`; the searches begin when it
    `is_whole`, with every partition asked, and no share remains.
    """

    __slots__ = (
        "call",
        "context",
        "is_committed_only",
        "is_whole",
        "remaining",
        "replica",
        "response",
        "searches",
    )

    def __init__(
        self,
        context: "PartitionPort",
        call: Call,
        response: ListOffsetsResponse,
        *,
        is_committed_only: bool,
        replica: NodeId,
    ) -> None:
        self.call = call
        self.context = context
        self.response = response
        self.is_committed_only = is_committed_only
        self.replica = replica
        self.is_whole = False
        self.remaining: dict[_Share, None] = {}
        self.searches: list[_Search] = []

    def limit_of(self, partition: Partition) -> Offset:
        """The end of the records that this reader sees."""
        if self.replica == DEBUGGING:
            return partition.log.log_end_offset
        return partition.last_stable_offset if self.is_committed_only else partition.high_watermark

    def add(self, share: _Share) -> None:
        """Fill the share now if the high watermark has reached its offset, else when it does."""
        partition = share.partition
        if partition.high_watermark >= share.until:
            share.fill()
            return
        try:
            partition.park(share.until, share)
        except PurgatoryFull:
            share.part.error_code = _not_available(self.call)
            return
        self.remaining[share] = None

    def expired(self, now: Instant) -> ListOffsetsResponse:
        for share in self.remaining:
            share.part.error_code = _not_available(self.call)
        for search in self.searches:
            search.part.error_code = ErrorCode.REQUEST_TIMED_OUT
        self.remaining.clear()
        return self.response

    def abandoned(self) -> None:
        """The shares stay parked until the high watermark passes them, and are dropped then."""
