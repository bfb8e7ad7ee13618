"""What a partition remembers of idempotent producers: epoch and last five batches each, to tell the next batch from a duplicate or a gap.

    next sequence ──► appended      one of the last five ──► success, with the offset it had      anything else ──► 45
    older epoch ──► 47              newer epoch ──► must begin at sequence 0

A producer that is not known may begin anywhere: its records may have been deleted by retention. The `.snapshot` file of offset N holds
what is known of everything below N:

    0  version = 1  int16    2  CRC-32C of what follows  uint32    6  count  int32    10  entries of 46 bytes:
    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32,
    first offset of the open transaction int64 (-1 for none)
"""

from struct import Struct, error

from sparklog.errors import ErrorCode
from sparklog.kernels import scan
from sparklog.record.batch import CONTROL_BIT, NO_TIMESTAMP, SEQUENCE_MAX, TRANSACTIONAL_BIT

from .validate import HeaderFields, RecordsRefused

BATCHES_KEPT = 5
_SWEPT_FROM = 1024
SNAPSHOT_VERSION = 1
NO_SEQUENCE = -1
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6

Batch = tuple[int, int, int, int, int]
"""First sequence, last sequence, first offset, last offset, greatest timestamp."""


class SnapshotCorrupt(Exception):
    """The file is not a whole snapshot."""


class Producer:
    """One producer id. Invariant: `batches` are of `epoch`, oldest first, at most five."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_start")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = -1
        self.transaction_start = -1
        self.batches: list[Batch] = []


class ProducerState:
    """The producers of one partition, as of everything in its log.

    `swept_from` is how many are enough to look for expired ones: every client brings an id of its own, and a log may seldom roll.
    """

    __slots__ = ("producers", "swept_from")

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.swept_from = _SWEPT_FROM

    def check(self, header: HeaderFields) -> Batch | None:
        """Judge the next batch of a client that has a producer id: None to append it, or the batch it repeats. Raises RecordsRefused."""
        producer = self.producers.get(header[9])
        if producer is None:
            return None
        epoch, first = header[10], header[11]
        if epoch == producer.epoch:
            batches = producer.batches
            last_known = batches[-1][1] if batches else NO_SEQUENCE
            if first == last_known + 1:
                self._check_transaction(header, producer)
                return None
            last = (first + header[6]) & SEQUENCE_MAX
            for batch in batches:
                if batch[0] == first and batch[1] == last:
                    return batch
            if first != 0 or last_known != SEQUENCE_MAX:
                raise RecordsRefused(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {header[9]} sent sequence {first}, but its last sequence here is {last_known}.",
                )
        elif epoch < producer.epoch:
            message = f"Producer {header[9]} has epoch {epoch}, older than the last seen epoch {producer.epoch}."
            raise RecordsRefused(ErrorCode.INVALID_PRODUCER_EPOCH, message)
        elif first != 0:
            message = f"Producer {header[9]} began its new epoch {epoch} with sequence {first} instead of 0."
            raise RecordsRefused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        self._check_transaction(header, producer)
        return None

    def _check_transaction(self, header: HeaderFields, producer: Producer) -> None:
        if producer.transaction_start >= 0 and not header[5] & TRANSACTIONAL_BIT:
            message = f"Producer {header[9]} has a transaction open here, but sent a batch outside of it."
            raise RecordsRefused(ErrorCode.INVALID_TXN_STATE, message)

    def appended(self, header: HeaderFields, base_offset: int, max_timestamp: int) -> None:
        """Remember a batch with a producer id that is in the log now, whoever checked it."""
        producer = self.producers.get(header[9])
        epoch = header[10]
        if producer is None:
            producer = self.producers[header[9]] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        if header[5] & CONTROL_BIT:
            producer.transaction_start = -1
            producer.last_timestamp = max_timestamp
            return
        if header[5] & TRANSACTIONAL_BIT and producer.transaction_start < 0:
            producer.transaction_start = base_offset
        producer.last_timestamp = max_timestamp
        first, delta = header[11], header[6]
        batches = producer.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append((first, (first + delta) & SEQUENCE_MAX, base_offset, base_offset + delta, max_timestamp))

    def open_transactions(self) -> list[int]:
        """Where the open transactions begin."""
        return [producer.transaction_start for producer in self.producers.values() if producer.transaction_start >= 0]

    def last_batches(self) -> list[tuple[int, int, int]]:
        """(producer id, last offset of its last batch of data or -1, epoch) of each producer, sorted by id."""
        return sorted(
            (producer_id, producer.batches[-1][3] if producer.batches else -1, producer.epoch)
            for producer_id, producer in self.producers.items()
        )

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were silent for `expiration_ms` and have no transaction open."""
        expired = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.transaction_start < 0 and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        self.swept_from = max(_SWEPT_FROM, 2 * len(self.producers))

    def render(self) -> bytes:
        """The content of a snapshot file: the same for the same producers, by id, as Kafka's hash table has them until it grows large."""
        entries = bytearray()
        for producer_id, producer in sorted(self.producers.items()):
            _, last, first_offset, last_offset, _ = producer.batches[-1] if producer.batches else (-1, -1, -1, -1, -1)
            entries += _ENTRY.pack(
                producer_id,
                producer.epoch,
                last,
                last_offset,
                last_offset - first_offset,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
        content = bytearray(_HEAD.pack(SNAPSHOT_VERSION, 0, len(self.producers))) + entries
        return _HEAD.pack(SNAPSHOT_VERSION, scan.crc(memoryview(content)[_CRC_END:]), len(self.producers)) + bytes(entries)

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
        for producer_id, epoch, last, last_offset, delta, timestamp, coordinator_epoch, start in _ENTRY.iter_unpack(content[_HEAD.size :]):
            producer = state.producers[producer_id] = Producer(epoch)
            producer.last_timestamp = timestamp
            producer.coordinator_epoch = coordinator_epoch
            producer.transaction_start = start
            if last_offset >= 0:
                producer.batches.append(((last - delta) & SEQUENCE_MAX, last, last_offset - delta, last_offset, timestamp))
        return state
