"""The state that a partition keeps of idempotent producers: the epoch and the last five batches of each, to
distinguish the next batch from a duplicate and from a gap.

    next sequence             ──► appended
    one of the last five      ──► success, with the offset it had
    any other sequence        ──► error 45
    older epoch               ──► error 47
    newer epoch               ──► must begin at sequence 0

An unknown producer may begin at any sequence: retention may have deleted its records. A batch of a
transaction needs an open transaction in this partition, or a `Verification` that is still valid (KIP-890). A
marker has the epoch of the transaction, or the next one if the producer uses transaction version 2.

    no transaction open ── begin ──► Verification ── the coordinator agrees ──► append with it ──► open: no
                                          │                                          more proof is needed
                                          └── a marker is appended meanwhile ──► void: the append is refused

The object itself is the proof: a verification begun before a marker is not valid for the transaction after
it. It is never written to disk; after a crash the waiting producer retries.

A producer expires by this broker's clock at its newest append, not by the timestamps of its records: a
client that copies old records keeps its deduplication. Kafka expires by the records' time. The `.snapshot`
file of offset N holds the state of everything below N, in Kafka's format; the timestamp is that of the
append:

    0  version = 1  int16
    2  CRC-32C of the following bytes  uint32
    6  count  int32
    10 entries of 46 bytes: producer id int64, epoch int16, last sequence int32, last offset int64, offset
       delta int32, timestamp int64, coordinator epoch int32, first offset of the open transaction int64 (-1
       for none)
"""

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from struct import Struct, error

import msgspec

from sparklog.effects import Steps
from sparklog.errors import ErrorCode
from sparklog.kernels import scan
from sparklog.record.batch import CONTROL_BIT, NO_TIMESTAMP, SEQUENCE_MAX, TRANSACTIONAL_BIT, BatchHeader

from .validate import RecordsRefused

BATCHES_KEPT = 5
MANY = 1024
"""From this number of producers on, all are visited only in a job, or some at a time."""
_SWEPT_PER_APPEND = 8
_SWEPT_AT_ONCE = 1024
_STEP = 256
SNAPSHOT_VERSION = 1
NO_SEQUENCE = -1
_EPOCH_MAX = 2**15 - 1
_VERIFICATIONS_MAX = 4096
"""The most verifications of a partition; one more drops the oldest, whose transaction must then be
aborted.
"""
_VERIFICATION_KEPT_MS = 120_000
"""Longer than a request waits for its coordinator."""
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6

Batch = tuple[int, int, int, int, int]
"""First sequence, last sequence, first offset, last offset, greatest timestamp."""


class SnapshotCorrupt(Exception):
    """The file is not a complete snapshot."""


class Producer(msgspec.Struct, gc=False):
    """One producer id. Invariants: `batches` are of `epoch`, oldest first, at most five. A producer with an
    older `age` than its `ProducerState` belongs to a `FrozenProducers`, and does not change.

    `last_timestamp` is the greatest timestamp of its newest batch, `appended_ms` the wall clock at the append
    of that batch. The garbage collector tracks neither this object nor its tuples of numbers: walking
    hundreds of thousands of them takes too long.
    """

    epoch: int
    age: int
    last_timestamp: int = NO_TIMESTAMP
    appended_ms: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    transaction_start: int = -1
    batches: tuple[Batch, ...] = ()

    def copy(self, age: int) -> "Producer":
        """A copy that may change."""
        return msgspec.structs.replace(self, age=age)


class FrozenProducers:
    """An immutable copy of the producers of one partition, for a job."""

    __slots__ = ("producers",)

    def __init__(self, producers: dict[int, Producer]) -> None:
        self.producers = producers

    def in_order(self) -> Steps[Iterator[tuple[int, Producer]]]:
        """The producers sorted by id, in runs: to sort or to free all of them at once would hold the GIL for
        too long.
        """
        items = iter(self.producers.items())
        runs: list[Iterator[tuple[int, Producer]]] = []
        while run := sorted(islice(items, _STEP), key=_id_of):
            yield
            runs.append(iter(run))
        return merge(*runs, key=_id_of)

    def render(self) -> Steps[bytes]:
        """The content of a snapshot file, sorted by id, so that equal producers give equal bytes; Kafka's
        hash table has the same order while it is small.
        """
        entries = bytearray()
        items = yield from self.in_order()
        while part := list(islice(items, _STEP)):
            yield
            for producer_id, producer in part:
                entries += _entry(producer_id, producer)
        return _content(len(self.producers), entries)


class Verification:
    """The verification in progress for one producer in one partition.

    `lowest_sequence` is the lowest sequence that was sent in `epoch`: a later batch must not be appended
    before it. `adds_partitions` marks a producer of transaction version 2, whose coordinator adds the
    partition; for older producers it only checks that the transaction has it.
    """

    __slots__ = ("adds_partitions", "begun_ms", "epoch", "lowest_sequence")

    def __init__(self, sequence: int, epoch: int, *, adds_partitions: bool, now_ms: int) -> None:
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.adds_partitions = adds_partitions
        self.begun_ms = now_ms

    def tried(self, sequence: int, epoch: int) -> None:
        """Note that another batch waits for the same verification."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence

    def is_voided_by(self, epoch: int, *, is_control: bool) -> bool:
        """Whether a batch of a transaction, once appended, voids this verification. Only a marker of version
        2 in the same epoch does not: it belongs to the previous transaction.
        """
        return not (self.adds_partitions and is_control and epoch == self.epoch)


class ProducerState:
    """The idempotent and transactional producers of one partition, as of the last batch of its log.

    With `MANY` producers or more, each append also examines some for expiration: every new client has a new
    id, and the check at a roll alone may come too seldom.
    """

    __slots__ = ("_age", "_unswept", "_verifications", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self._age = 0
        self._unswept: list[int] = []
        self._verifications: dict[int, Verification] = {}

    # -- verification

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, adds_partitions: bool, now_ms: int
    ) -> Verification | None:
        """The verification that a batch of a transaction needs before it is appended; None if the transaction
        is open in this partition. Raises RecordsRefused.
        """
        producer = self.producers.get(producer_id)
        if producer is not None:
            _check_epoch(producer_id, epoch, producer.epoch)
            if producer.transaction_start >= 0 and producer.epoch == epoch:
                return None
        found = self._verifications.get(producer_id)
        if found is None:
            self._sweep_verifications(now_ms)
            found = self._verifications[producer_id] = Verification(
                sequence, epoch, adds_partitions=adds_partitions, now_ms=now_ms
            )
        else:
            found.tried(sequence, epoch)
        return found

    def _sweep_verifications(self, now_ms: int) -> None:
        """Drop the verifications that have expired; those that a coordinator refused stay until then."""
        verifications = self._verifications
        while verifications:
            producer_id, oldest = next(iter(verifications.items()))
            if (
                len(verifications) < _VERIFICATIONS_MAX
                and 0 <= now_ms - oldest.begun_ms < _VERIFICATION_KEPT_MS
            ):
                return
            del verifications[producer_id]

    def _check_verified(
        self, header: BatchHeader, producer: Producer | None, proof: Verification | None
    ) -> None:
        """Check the first batch of a transaction in this partition. Raises RecordsRefused."""
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        if producer is not None:
            _check_epoch(producer_id, epoch, producer.epoch)
        known = self._verifications.get(producer_id)
        if proof is None or proof is not known:
            raise RecordsRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"The batch of producer {producer_id} is not part of an ongoing transaction.",
            )
        if first < 0:
            return  # of a coordinator, which has no sequence
        if known.adds_partitions and first != 0 and (producer is None or not producer.batches):
            message = (
                f"Producer {producer_id} of transaction version 2 is not known here, but began with sequence "
                f"{first} instead of 0."
            )
            raise RecordsRefused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        if first > known.lowest_sequence:
            message = (
                f"Producer {producer_id} sent sequence {first} before {known.lowest_sequence}, which was "
                "tried and is missing."
            )
            raise RecordsRefused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    # -- append

    def check(self, header: BatchHeader, proof: Verification | None, is_verified: bool) -> Batch | None:
        """Check the next batch of a client with a producer id. Returns None if it is to be appended, or the
        earlier batch that it repeats. Raises RecordsRefused.

        `is_verified` tells whether the first batch of a transaction needs a `proof`.
        """
        producer = self.producers.get(header.producer_id)
        epoch, first = header.producer_epoch, header.base_sequence
        if header.attributes & TRANSACTIONAL_BIT and is_verified:
            is_open = producer is not None and producer.transaction_start >= 0 and producer.epoch == epoch
            if not is_open and (known := self._repeated(header, producer)) is not None:
                return known
            if not is_open:
                self._check_verified(header, producer, proof)
        if producer is None:
            return None
        if epoch == producer.epoch:
            batches = producer.batches
            last_known = batches[-1][1] if batches else NO_SEQUENCE
            if first == last_known + 1:
                self._check_transaction(header, producer)
                return None
            last = (first + header.last_offset_delta) & SEQUENCE_MAX
            for batch in batches:
                if batch[0] == first and batch[1] == last:
                    return batch
            if first != 0 or last_known != SEQUENCE_MAX:
                raise RecordsRefused(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {header.producer_id} sent sequence {first}, but its last sequence here is "
                    f"{last_known}.",
                )
        elif epoch < producer.epoch:
            _check_epoch(header.producer_id, epoch, producer.epoch)
        elif first != 0:
            producer_id = header.producer_id
            message = (
                f"Producer {producer_id} began its new epoch {epoch} with sequence {first} instead of 0."
            )
            raise RecordsRefused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        self._check_transaction(header, producer)
        return None

    def _repeated(self, header: BatchHeader, producer: Producer | None) -> Batch | None:
        """The batch that this one repeats, if that is among the last five."""
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, (header.base_sequence + header.last_offset_delta) & SEQUENCE_MAX
        return next((batch for batch in producer.batches if batch[0] == first and batch[1] == last), None)

    def check_proof(self, header: BatchHeader, proof: Verification | None, *, is_verified: bool) -> None:
        """Check a batch that the coordinator of this broker writes in a producer's transaction. Raises
        RecordsRefused.
        """
        producer = self.producers.get(header.producer_id)
        if producer is not None:
            _check_epoch(header.producer_id, header.producer_epoch, producer.epoch)
            if producer.transaction_start >= 0 and producer.epoch == header.producer_epoch:
                return
        if is_verified:
            self._check_verified(header, producer, proof)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, *, is_bumped: bool) -> None:
        """Check a marker; `is_bumped` tells that its epoch must be greater than the transaction's (KIP-890).
        Raises RecordsRefused.
        """
        producer = self.producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch or (is_bumped and epoch == producer.epoch):
            # A repeated marker has no effect: the answer to the first was lost, or the coordinator was loaded
            # anew (KAFKA-19999).
            is_repeated = (
                is_bumped
                and epoch == producer.epoch
                and (producer.transaction_start < 0 or epoch == _EPOCH_MAX)
            )
            if not is_repeated:
                than = "not newer" if is_bumped else "older"
                message = (
                    f"The marker of producer {producer_id} has epoch {epoch}, {than} than the last seen "
                    f"epoch {producer.epoch}."
                )
                raise RecordsRefused(ErrorCode.INVALID_PRODUCER_EPOCH, message)
        if producer.coordinator_epoch > coordinator_epoch:
            known = producer.coordinator_epoch
            message = (
                f"The marker of producer {producer_id} is of coordinator epoch {coordinator_epoch}, older "
                f"than {known}."
            )
            raise RecordsRefused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)

    def _check_transaction(self, header: BatchHeader, producer: Producer) -> None:
        if producer.transaction_start >= 0 and not header.attributes & TRANSACTIONAL_BIT:
            message = (
                f"Producer {header.producer_id} has a transaction open here, but sent a batch outside of it."
            )
            raise RecordsRefused(ErrorCode.INVALID_TXN_STATE, message)

    def appended(self, header: BatchHeader, base_offset: int, max_timestamp: int, now_ms: int) -> None:
        """Take a batch with a producer id that has been appended."""
        producer = self.producers.get(header.producer_id)
        epoch = header.producer_epoch
        if producer is None:
            producer = self.producers[header.producer_id] = Producer(epoch, self._age)
        elif producer.age != self._age:
            producer = self.producers[header.producer_id] = producer.copy(self._age)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches = ()
        producer.appended_ms = now_ms
        if self._verifications and header.attributes & TRANSACTIONAL_BIT:
            verification = self._verifications.get(header.producer_id)
            if verification is not None and verification.is_voided_by(
                epoch, is_control=header.attributes & CONTROL_BIT != 0
            ):
                del self._verifications[header.producer_id]
        if header.attributes & CONTROL_BIT:
            producer.transaction_start = -1
            producer.last_timestamp = max_timestamp
            return
        if header.attributes & TRANSACTIONAL_BIT and producer.transaction_start < 0:
            producer.transaction_start = base_offset
        producer.last_timestamp = max_timestamp
        first, delta = header.base_sequence, header.last_offset_delta
        last = (first + delta) & SEQUENCE_MAX if first >= 0 else NO_SEQUENCE
        producer.batches = (
            *producer.batches[1 - BATCHES_KEPT :],
            (first, last, base_offset, base_offset + delta, max_timestamp),
        )

    def decided(self, producer_id: int, coordinator_epoch: int) -> None:
        """Note that a marker with this coordinator epoch, which `check_marker` has accepted, ended a
        transaction of a producer.
        """
        self.producers[
            producer_id
        ].coordinator_epoch = coordinator_epoch  # not below the one that `appended` has set

    def freeze(self) -> FrozenProducers:
        """All producers as they are now."""
        self._age += 1
        return FrozenProducers(self.producers.copy())

    def open_transactions(self) -> list[int]:
        """The first offsets of the open transactions."""
        return [
            producer.transaction_start
            for producer in self.producers.values()
            if producer.transaction_start >= 0
        ]

    def last_batches(self) -> list[tuple[int, int, int]]:
        """Note that a marker with this coordinator epoch ended a transaction of a producer, which is in
        `producers`.
        """
        return sorted(
            (producer_id, producer.batches[-1][3] if producer.batches else -1, producer.epoch)
            for producer_id, producer in self.producers.items()
        )

    def keep_times_of(self, known: "ProducerState") -> None:
        """Take over the times of the newest appends from `known`, the state before the log was truncated."""
        for producer_id, producer in self.producers.items():
            if (before := known.producers.get(producer_id)) is not None:
                producer.appended_ms = before.appended_ms

    def expire_some(self, now_ms: int, expiration_ms: int) -> None:
        """Expire some producers as part of an append."""
        self.expire(now_ms, expiration_ms, _SWEPT_PER_APPEND)

    def expire(self, now_ms: int, expiration_ms: int, most: int = _SWEPT_AT_ONCE) -> None:
        """Examine the next `most` producers, and drop those without an open transaction that have not
        appended for `expiration_ms`.
        """
        producers = self.producers
        if not self._unswept:
            self._unswept = list(producers)
        unswept = self._unswept
        for _ in range(min(most, len(unswept))):
            producer_id = unswept.pop()
            producer = producers.get(producer_id)
            if (
                producer is not None
                and producer.transaction_start < 0
                and now_ms - producer.appended_ms >= expiration_ms
            ):
                del producers[producer_id]

    def render(self) -> bytes:
        """The content of a snapshot file, at once."""
        entries = bytearray()
        for producer_id, producer in sorted(self.producers.items(), key=_id_of):
            entries += _entry(producer_id, producer)
        return _content(len(self.producers), entries)

    @classmethod
    def parse(cls, content: bytes) -> "ProducerState":
        """The producers of a snapshot file. Raises SnapshotCorrupt."""
        try:
            version, crc, count = _HEAD.unpack_from(content)
        except error as short:
            raise SnapshotCorrupt("shorter than its head") from short
        if version != SNAPSHOT_VERSION or len(content) != _HEAD.size + count * _ENTRY.size:
            raise SnapshotCorrupt(f"version {version} with {count} entries in {len(content)} bytes")
        if scan.crc(memoryview(content)[_CRC_END:]) != crc:
            raise SnapshotCorrupt("CRC-32C does not match")
        state = cls()
        for (
            producer_id,
            epoch,
            last,
            last_offset,
            delta,
            timestamp,
            coordinator_epoch,
            start,
        ) in _ENTRY.iter_unpack(content[_HEAD.size :]):
            producer = state.producers[producer_id] = Producer(epoch, 0)
            producer.last_timestamp = producer.appended_ms = timestamp
            producer.coordinator_epoch = coordinator_epoch
            producer.transaction_start = start
            if last_offset >= 0:
                first = (
                    (last - delta) & SEQUENCE_MAX if last >= 0 else NO_SEQUENCE
                )  # of a coordinator, which has no sequence
                producer.batches = ((first, last, last_offset - delta, last_offset, timestamp),)
        return state


def _id_of(item: tuple[int, Producer]) -> int:
    return item[0]


def _entry(producer_id: int, producer: Producer) -> bytes:
    _, last, first_offset, last_offset, _ = producer.batches[-1] if producer.batches else (-1, -1, -1, -1, -1)
    return _ENTRY.pack(
        producer_id,
        producer.epoch,
        last,
        last_offset,
        last_offset - first_offset,
        producer.appended_ms,
        producer.coordinator_epoch,
        producer.transaction_start,
    )


def _content(count: int, entries: bytearray) -> bytes:
    content = bytearray(_HEAD.pack(SNAPSHOT_VERSION, 0, count)) + entries
    return _HEAD.pack(SNAPSHOT_VERSION, scan.crc(memoryview(content)[_CRC_END:]), count) + bytes(entries)


def _check_epoch(producer_id: int, epoch: int, known: int) -> None:
    if epoch < known:
        message = f"Producer {producer_id} has epoch {epoch}, older than the last seen epoch {known}."
        raise RecordsRefused(ErrorCode.INVALID_PRODUCER_EPOCH, message)
