"""Whole batches sent to partition leaders: sequences, requests in flight, retries in order, time limits.

A machine without I/O. Batches are added by `add`; `requests` returns the requests to send; `replied` and
`failed` take their outcome and return the batches that are done. The states of a batch in the line of its
partition:

    waiting --requests--> in flight --acknowledged--> done
       ^                      | retriable error, connection lost
       +------ returned <-----+        (only when nothing of the line is in flight any more)

After a failed batch a line sends nothing until all its requests in flight are answered; then it sends its
batches again in the old order with the old sequences, so that the broker detects duplicates (KIP-98) and the
order holds with five requests in flight. If the broker does not know the sequence before the first of them,
because its state is lost or an earlier batch was given up, the line begins again with the next producer epoch
(KIP-360). Without idempotence retries may reorder records, as in Kafka.

A broker takes the first batch of a producer that it does not know with any sequence. Therefore the second
batch of a line waits until the first is acknowledged.

In a transaction, id and epoch are those of `Transaction`, to which every partition is added, and every failed
batch is reported. The waiting batches then fail too, because none of them may be committed.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from sparklog.client.cluster import NO_NODE, Cluster, Entropy, backoff_us
from sparklog.client.failures import RecordTooLarge
from sparklog.client.producer.outbound_batch import (
    NO_PRODUCER_ID,
    NOT_SENT,
    SEQUENCE_MASK,
    Done,
    Line,
    OutboundBatch,
    Shipment,
    Split,
    distance,
    error_of,
    too_late,
)
from sparklog.client.producer.transaction import CONCURRENT_BACKOFF_MS, PRODUCE_BEFORE_V2, Transaction
from sparklog.client.settings import ClientSettings
from sparklog.errors import BrokerError, ErrorCode, SparklogError, code_of
from sparklog.kernels import scan
from sparklog.model import NO_EPOCH, Micros, NodeId, ProducerEpoch, ProducerId, TopicPartition
from sparklog.record.batch import (
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchBuilder,
    Headers,
    Record,
    codec_of,
    decode_records,
    read_header,
)
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.schema import ZERO_UUID

EPOCH_MAX: Final = (1 << 15) - 1
VERSION_BEFORE_TOPIC_IDS: Final = 12
IN_FLIGHT_PER_PARTITION_MAX: Final = 5
"""Brokers keep the last five batches of a producer: with more in flight they could not detect duplicates."""

_MS: Final = 1000
_RETRIES_TOLD_MAX: Final = 16

# The broker does not have the batches before: either an earlier batch failed as well, or its producer state
# is lost.
_SEQUENCE_LOST: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Outbound:
    """All lines of one producer. Invariant: every batch added is returned in exactly one `Done`."""

    def __init__(
        self,
        settings: ClientSettings,
        cluster: Cluster,
        entropy: Entropy,
        *,
        request_bytes_max: int | None = None,
    ) -> None:
        self.transaction = (
            None
            if settings.transactional_id is None
            else Transaction(settings, entropy, lambda: cluster.features)
        )
        self._settings = settings
        self._cluster = cluster
        self._entropy = entropy
        self._request_bytes_max = (
            settings.max_request_size if request_bytes_max is None else request_bytes_max
        )
        self._acks = settings.required_acks
        self.is_idempotent = settings.enable_idempotence and self._acks == -1
        self.in_flight_max = settings.max_in_flight_requests_per_connection
        if self.is_idempotent:
            self.in_flight_max = min(self.in_flight_max, IN_FLIGHT_PER_PARTITION_MAX)
        self._lines: dict[TopicPartition, Line] = {}
        self._busy: dict[TopicPartition, Line] = {}  # lines with a waiting batch
        self._producer_id = NO_PRODUCER_ID
        self._epoch = ProducerEpoch(-1)
        self._is_asking = False
        self._ask_attempts = 0
        self._ask_not_before = Micros(0)
        self.retried: deque[tuple[TopicPartition, SparklogError]] = deque(maxlen=_RETRIES_TOLD_MAX)
        """The batches returned last, to be sent again, and why; the caller takes them for its log."""
        self.unfinished = 0
        """Batches added and not done."""

    def add(self, batch: OutboundBatch) -> None:
        """Take a batch; those of one partition go out in the order in which they are added."""
        line = self._lines.get(batch.topic_partition)
        if line is None:
            line = self._lines[batch.topic_partition] = Line(batch.topic_partition)
        line.waiting.append(batch)
        self._busy[batch.topic_partition] = line
        self.unfinished += 1

    def has_room(self, topic_partition: TopicPartition) -> bool:
        """Whether one more batch of the partition could be sent soon; otherwise it may continue to grow."""
        line = self._lines.get(topic_partition)
        return line is None or (
            not line.waiting and not line.returned and len(line.in_flight) < self._in_flight_max(line)
        )

    @property
    def has_waiting(self) -> bool:
        """Whether a batch could not be sent yet."""
        return bool(self._busy)

    # -- producer id -----------------------------------------------------------------------------------------

    def wants_producer_id(self, now: Micros) -> bool:
        """Whether an id is needed and may be requested now."""
        wants = self._needs_producer_id and not self._is_asking
        return wants and bool(self._busy) and now >= self._ask_not_before

    def producer_id_request(self) -> InitProducerIdRequest:
        """The request to send to any broker; report its outcome by one of the next two."""
        self._is_asking = True
        return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=(1 << 31) - 1)

    def producer_id_replied(self, reply: InitProducerIdResponse, now: Micros) -> list[Done]:
        """Take an id, or an error; a fatal one fails every batch."""
        code = code_of(reply.error_code)
        if code is not ErrorCode.NONE:
            self.producer_id_failed(now)
            return [] if code.is_retriable else self.give_up(BrokerError(code, "no producer id"))
        self._is_asking, self._ask_attempts = False, 0
        self._producer_id, self._epoch = ProducerId(reply.producer_id), ProducerEpoch(reply.producer_epoch)
        return []

    def producer_id_failed(self, now: Micros) -> None:
        """The request failed without a reply."""
        self._is_asking = False
        self._ask_not_before = self._after_backoff(now, self._ask_attempts)
        self._ask_attempts += 1

    # -- sending ---------------------------------------------------------------------------------------------

    def requests(self, now: Micros, is_ready: Callable[[NodeId], bool]) -> list[Shipment]:
        """The requests to send now: at most one per broker, with at most one batch per partition. Call
        again until there is none.

        `is_ready` is called only for brokers with a batch to send.
        """
        if not self._busy or self._needs_producer_id:
            return []
        chosen: dict[NodeId, list[OutboundBatch]] = {}
        sizes: dict[NodeId, int] = {}
        for topic_partition, line in self._busy.items():
            if not self._may_send(line, now):
                continue
            node = self._cluster.leader(topic_partition)
            if node == NO_NODE:
                self._cluster.want([topic_partition.topic])
                self._cluster.refresh_soon()
                continue
            if node not in sizes:
                sizes[node] = 0 if is_ready(node) else self._request_bytes_max
            size = sizes[node] + len(line.waiting[0].records)
            if sizes[node] and size > self._request_bytes_max:
                continue
            sizes[node] = size
            chosen.setdefault(node, []).append(line.waiting[0])
        return [self._ship(node, batches, now) for node, batches in chosen.items()]

    def replied(self, shipment: Shipment, reply: ProduceResponse, now: Micros) -> list[Done]:
        """Take the broker's result of each batch; a batch without one has failed."""
        responses: dict[TopicPartition, PartitionProduceResponse] = {}
        for topic in reply.responses:
            name = topic.name or self._cluster.name_of(topic.topic_id) or ""
            for partition in topic.partition_responses:
                responses[TopicPartition(name, partition.index)] = partition
        done: list[Done] = []
        for batch in shipment.batches:
            answer = responses.get(batch.topic_partition)
            if answer is None:
                error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the reply leaves the batch out")
                done += self._returned(batch, error, now)
            else:
                done += self._answered(batch, answer, reply.node_endpoints, now)
        return done

    def failed(self, shipment: Shipment, error: SparklogError, now: Micros) -> list[Done]:
        """The request failed without a reply: its batches may have been written or not."""
        self._cluster.refresh_soon()
        done: list[Done] = []
        for batch in shipment.batches:
            done += self._returned(batch, error, now)
        return done

    def sent_without_reply(self, shipment: Shipment) -> list[Done]:
        """With acks=0 a batch is done when its request is sent."""
        done: list[Done] = []
        for batch in shipment.batches:
            self._taken(batch)
            done += self._finish(Done(batch))
        return done

    def expire(self, now: Micros, trouble: Callable[[], SparklogError | None] = lambda: None) -> list[Done]:
        """Give up the batches that have waited beyond their deadline; those in flight end by the time limit
        of their request. `trouble` is asked why no broker is connected: a batch that was never sent has no
        error of its own.
        """
        done: list[Done] = []
        if not self.unfinished:
            return done
        refusal = None if self.transaction is None else self.transaction.refusal
        for line in list(self._busy.values()) if refusal is None else list(self._lines.values()):
            while refusal is not None and line.waiting:
                done += self._finish(Done(line.waiting.popleft(), error=refusal))
            while line.waiting and line.waiting[0].deadline <= now and not line.in_flight:
                batch = line.waiting.popleft()
                done += self._finish(Done(batch, error=too_late(batch, trouble())))
            self._settle(line)
        return done

    def failed_elsewhere(self, error: SparklogError) -> None:
        """Records failed before they were added: their transaction must not be committed."""
        if self.transaction is not None:
            self.transaction.batch_failed(error, was_sent=False)

    def give_up(self, error: SparklogError) -> list[Done]:
        """Fail every batch that waits or is in flight; no more requests are sent."""
        done: list[Done] = []
        for line in self._lines.values():
            for batch in (*line.in_flight, *line.returned, *line.waiting):
                done += self._finish(Done(batch, error=error))
            line.in_flight.clear()
            line.returned.clear()
            line.waiting.clear()
        self._busy.clear()
        return done

    def deadline(self, now: Micros) -> Micros | None:
        """The next time to call `expire` and `requests` without an event before it; None if only an event can
        help.
        """
        # The line waits for the requests in flight.
        idle = [line for line in self._busy.values() if not line.in_flight]
        times = [line.waiting[0].deadline for line in idle]
        times += [line.not_before for line in idle if line.not_before]
        if self._needs_producer_id and not self._is_asking:
            times.append(self._ask_not_before)
        if self.transaction is not None and (due := self.transaction.deadline()) is not None:
            times.append(due)
        return min((time for time in times if time > now), default=None)

    # -- inside ----------------------------------------------------------------------------------------------

    @property
    def _needs_producer_id(self) -> bool:
        return self.is_idempotent and self._producer_id < 0 and self.transaction is None

    def _in_flight_max(self, line: Line) -> int:
        return self.in_flight_max if line.is_known or not self.is_idempotent else 1

    def _may_send(self, line: Line, now: Micros) -> bool:
        if (
            not line.waiting
            or line.returned
            or (now < line.not_before and not self._has_new_leader(line.waiting[0]))
            or len(line.in_flight) >= self._in_flight_max(line)
        ):
            return False
        if self.transaction is not None and not self.transaction.may_send(line.topic_partition):
            return False
        line.not_before = Micros(0)
        # A batch that was sent before is sent alone: if it fails again, those after it would be refused too.
        return not (line.in_flight and line.waiting[0].attempts)

    def _ship(self, node: NodeId, batches: list[OutboundBatch], now: Micros) -> Shipment:
        topics: dict[str, TopicProduceData] = {}
        version_max: int | None = None
        for batch in batches:
            line = self._lines[batch.topic_partition]
            line.waiting.popleft()
            # Moved to the end, so that a full request does not starve the other lines.
            del self._busy[batch.topic_partition]
            if line.waiting:
                self._busy[batch.topic_partition] = line
            line.in_flight.append(batch)
            if self.is_idempotent:
                self._stamp(line, batch)
            batch.attempts += 1
            view = self._cluster.partition(batch.topic_partition)
            batch.leader_epoch = NO_EPOCH if view is None else view.leader_epoch
            name, partition = batch.topic_partition
            if name not in topics:
                topic_id = self._cluster.id_of(name)
                if topic_id == ZERO_UUID:
                    version_max = VERSION_BEFORE_TOPIC_IDS
                topics[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
            topics[name].partition_data.append(PartitionProduceData(partition, batch.records))
        if self.transaction is not None:
            self.transaction.shipped()
            version_max = version_max if self.transaction.is_v2 else PRODUCE_BEFORE_V2
        transactional_id = None if self.transaction is None else self.transaction.transactional_id
        request = ProduceRequest(
            transactional_id,
            self._acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        overdue = min(
            now + self._settings.request_timeout_ms * _MS, max(now, min(batch.deadline for batch in batches))
        )
        return Shipment(node, request, batches, version_max, Micros(overdue))

    def _stamp(self, line: Line, batch: OutboundBatch) -> None:
        ours = (self._producer_id, self._epoch) if self.transaction is None else self.transaction.identity[1:]
        if line.producer_id < 0 or (self.transaction is not None and ours != (line.producer_id, line.epoch)):
            line.is_known = line.is_known and line.producer_id == ours[0]
            line.producer_id, line.epoch = ours
            line.sequence = line.acknowledged = 0
        if batch.sequence == NOT_SENT:
            batch.sequence = line.sequence
            line.sequence = (line.sequence + batch.record_count) & SEQUENCE_MASK
            scan.stamp_producer(
                batch.records, line.producer_id, line.epoch, batch.sequence, self.transaction is not None
            )

    def _answered(
        self,
        batch: OutboundBatch,
        answer: PartitionProduceResponse,
        endpoints: list[NodeEndpoint],
        now: Micros,
    ) -> list[Done]:
        code = code_of(answer.error_code)
        line = self._lines[batch.topic_partition]
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._taken(batch)
            line.is_known = True
            line.acknowledged = (batch.sequence + batch.record_count) & SEQUENCE_MASK
            done = self._finish(
                Done(batch, answer.base_offset if code is ErrorCode.NONE else -1, answer.log_append_time_ms)
            )
            self._settle(line)
            return done
        error = error_of(batch, code, answer)
        if code in _TOO_LARGE:
            return self._refused_as_too_large(batch, error, now)
        if self.transaction is not None and code in _SEQUENCE_LOST:
            # A batch after a failed one has no sequence that the broker accepts: it fails too.
            is_behind = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.sequence != line.acknowledged
            return self._returned(batch, error, now, may_retry=is_behind)
        if self.is_idempotent and code in _SEQUENCE_LOST:
            if not line.returned:
                line.is_lost = True
            return self._returned(batch, error, now, may_retry=True)
        self._cluster.leader_changed(batch.topic_partition, answer.current_leader, endpoints)
        if (
            code.is_retriable
            and code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED
            and not self._has_new_leader(batch)
        ):
            self._cluster.refresh_soon()
        return self._returned(batch, error, now)

    def _returned(
        self, batch: OutboundBatch, error: SparklogError, now: Micros, *, may_retry: bool | None = None
    ) -> list[Done]:
        """Take back an unacknowledged batch: it is sent again, unless the error (or `may_retry`) forbids it,
        or its retries are used up. A new leader is sent it without a back-off (KIP-951).
        """
        self._taken(batch)
        line = self._lines[batch.topic_partition]
        batch.last_error = error
        is_final = (
            isinstance(error, BrokerError) and not error.is_retriable if may_retry is None else not may_retry
        )
        if is_final or now >= batch.deadline or batch.attempts > self._settings.retries:
            done = self._finish(
                Done(batch, error=too_late(batch) if not is_final and now >= batch.deadline else error)
            )
        else:
            line.returned.append(batch)
            self.retried.append((batch.topic_partition, error))
            line.not_before = (
                now if self._has_new_leader(batch) else self._after_backoff(now, batch.attempts - 1)
            )
            if isinstance(error, BrokerError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                # The previous transaction is being completed, which takes milliseconds.
                line.not_before = min(line.not_before, Micros(now + CONCURRENT_BACKOFF_MS * _MS))
            done = []
        self._settle(line)
        return done

    def _refused_as_too_large(self, batch: OutboundBatch, error: BrokerError, now: Micros) -> list[Done]:
        """Send the parts of the batch in its place; a batch of one record has failed."""
        if batch.record_count == 1:
            refused = RecordTooLarge(
                f"{batch.topic_partition}: a record of {len(batch.records)} bytes, with its batch header, is "
                f"above max.message.bytes of the topic: {error.code.name} ({error.code.value})",
                batch.topic_partition,
            )
            return self._returned(batch, refused, now, may_retry=False)
        self._taken(batch)
        line = self._lines[batch.topic_partition]
        line.returned += parts_of(batch, self._settings.batch_bytes_max, self._settings.compression_level)
        self.retried.append((batch.topic_partition, error))
        self._settle(line)
        return []

    def _has_new_leader(self, batch: OutboundBatch) -> bool:
        """Whether the partition has a newer leader than the one that this batch was last sent to."""
        view = self._cluster.partition(batch.topic_partition)
        return view is not None and NO_EPOCH < batch.leader_epoch < view.leader_epoch

    def _taken(self, batch: OutboundBatch) -> None:
        line = self._lines[batch.topic_partition]
        if line.in_flight and line.in_flight[0] is batch:
            line.in_flight.popleft()
        else:
            line.in_flight.remove(batch)

    def _settle(self, line: Line) -> None:
        """Once nothing of a line is in flight, send the returned batches again, and assign new sequences
        if the old ones no longer fit.
        """
        if line.in_flight:
            return
        if line.returned:
            returned = (
                sorted(line.returned, key=lambda batch: distance(line.acknowledged, batch.sequence))
                if self.is_idempotent
                else line.returned
            )
            line.waiting.extendleft(reversed(returned))
            line.returned = []
            self._busy[line.topic_partition] = line
        if not line.waiting:
            self._busy.pop(line.topic_partition, None)
        is_gap = line.sequence != line.acknowledged and not any(
            batch.sequence != NOT_SENT for batch in line.waiting
        )
        if (
            self.is_idempotent
            and self.transaction is None
            and line.producer_id >= 0
            and (line.is_lost or is_gap)
        ):
            self._begin_epoch(line)

    def _begin_epoch(self, line: Line) -> None:
        line.is_lost = False
        line.sequence = line.acknowledged = 0
        for batch in line.waiting:
            batch.sequence = NOT_SENT
        if line.epoch < EPOCH_MAX:
            line.epoch = ProducerEpoch(line.epoch + 1)
        else:
            # No epoch is left: request a new producer id.
            line.producer_id = self._producer_id = NO_PRODUCER_ID
            line.is_known = False

    def _finish(self, done: Done) -> list[Done]:
        if done.error is not None and self.transaction is not None:
            self.transaction.batch_failed(done.error, was_sent=done.batch.sequence != NOT_SENT)
        ended = done if done.batch.split is None else done.batch.split.ended(done)
        if ended is None:
            return []
        self.unfinished -= 1
        return [ended]

    def _after_backoff(self, now: Micros, attempt: int) -> Micros:
        return Micros(
            now
            + backoff_us(
                self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms, attempt, self._entropy
            )
        )


def parts_of(batch: OutboundBatch, bytes_max: int, compression_level: int | None) -> list[OutboundBatch]:
    """A batch of several records in parts of at most half its size, and of at most `bytes_max` bytes before
    compression, except for a part of one record.
    """
    header = read_header(batch.records)
    records = decode_records(batch.records)
    split = Split(batch) if batch.split is None else batch.split
    parts: list[OutboundBatch] = []
    first = 0
    for builder in _builders(records, bytes_max):
        sequence = batch.sequence if batch.sequence == NOT_SENT else (batch.sequence + first) & SEQUENCE_MASK
        content = builder.build(
            codec=codec_of(header),
            compression_level=compression_level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=sequence,
            is_transactional=bool(header.attributes & TRANSACTIONAL_BIT),
        )
        part = OutboundBatch(batch.topic_partition, content, builder.record_count, batch.deadline)
        part.sequence, part.split, part.first = sequence, split, batch.first + first
        parts.append(part)
        first += builder.record_count
    return parts


def _builders(records: list[Record], bytes_max: int) -> list[BatchBuilder]:
    whole = BatchBuilder()
    for record in records:
        whole.append(*_content(record))
    limit = min(bytes_max, HEADER_SIZE + (whole.size - HEADER_SIZE) // 2)
    builders: list[BatchBuilder] = []
    for record in records:
        if not builders or builders[-1].append(*_content(record)) < 0:
            builders.append(BatchBuilder())
            builders[-1].append(*_content(record))  # without a limit, since a part has at least one
            builders[-1].records.limit = limit
    return builders


def _content(record: Record) -> tuple[bytes | None, bytes | None, Headers, int]:
    return record.key, record.value, record.headers, record.timestamp
