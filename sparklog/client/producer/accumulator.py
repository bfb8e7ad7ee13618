"""The accumulator of a producer: one open batch per partition, bounded in memory.

A machine without I/O. A batch is ready when it is full, when it has lingered, during a flush, or when
memory is short. It leaves when its leader can take another request, and grows until then.

    append -> [open batch] --full--> [full batches ...] --take--> outbound
                   +-------------- lingered ------------^
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from sparklog.client.producer.outbound_batch import Done
from sparklog.client.settings import ClientSettings
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import HEADER_SIZE, BatchBuilder, Content, Headers, WholeBatch

_MS: Final = 1000
_STEP_FIRST: Final = 2048
"""The memory that a batch takes at first; many partitions may have few records."""
_NO_RECORDS: Final = BatchBuilder()
"""Of a batch that stands for a held record."""


class Gathering:
    """A batch from its first record to its result. Batches compare by identity."""

    __slots__ = (
        "append",
        "builder",
        "callbacks",
        "created",
        "done",
        "held",
        "memory_bytes",
        "records",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        created: Micros,
        whole: BatchBuilder | WholeBatch | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.created = created
        builder = BatchBuilder() if whole is None else whole
        self.builder: BatchBuilder | WholeBatch = builder
        self.records = builder.records
        self.records.limit = 0
        self.append = self.records.append
        """Add a record while the batch is open and has memory: returns its index, or -1."""
        self.memory_bytes = 0
        self.done: Done | None = None
        self.callbacks: list[Callable[[], object]] = []  # called in the order of the records
        self.held: list[tuple[Gathering, int]] | None = None
        """The batches that stood for records of this one while their topic was not known, with their indices
        here; these are done with this one.
        """

    @property
    def is_open(self) -> bool:
        """Whether the batch takes records, if there is memory for them."""
        return self.records.limit > 0


class Accumulator:
    """The batches of a producer until they are done. Invariants: `used_bytes` is the memory of batches not
    yet released, at most `buffer_memory`; the batches of a partition stay in order.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._batch_bytes_max = settings.batch_bytes_max
        self._memory_bytes_max = settings.buffer_memory
        self._linger_us = settings.linger_ms * _MS
        self._open: dict[TopicPartition, Gathering] = {}
        self._full: dict[TopicPartition, deque[Gathering]] = {}
        self.has_changed = False
        """Set when a batch is opened or becomes full; the caller that acts on it resets it."""
        self.is_short = False
        """Set while a record waits for memory: every batch is then ready to be sent."""
        self.used_bytes = 0
        self.incomplete: dict[Gathering, None] = {}
        """Batches not yet done, oldest first."""

    def append(
        self,
        topic_partition: TopicPartition,
        key: Content,
        value: Content,
        headers: Headers,
        timestamp_ms: int,
        now: Micros,
        size: int,
    ) -> tuple[Gathering, int] | None:
        """Add a record: returns its batch and its index there, or None if there is not enough memory now.
        `size` is the `record_size_max` of the record.
        """
        batch = self._open.get(topic_partition)
        if batch is not None:
            index = batch.append(key, value, headers, timestamp_ms)
            if index >= 0:
                return batch, index
        batch = self.room(topic_partition, now, size)
        return None if batch is None else (batch, batch.append(key, value, headers, timestamp_ms))

    def room(self, topic_partition: TopicPartition, now: Micros, size: int) -> Gathering | None:
        """The open batch of a partition, with memory for a record of `size` bytes; None if there is not
        enough memory now.

        Memory is taken in growing steps, so that most records need no look at it.
        """
        batch = self._open.get(topic_partition)
        if batch is not None and batch.builder.size + size > self._batch_bytes_max:
            self._close(topic_partition, batch)
            batch = None
        size_before, taken = (HEADER_SIZE, 0) if batch is None else (batch.builder.size, batch.memory_bytes)
        needed = size_before + size
        limit = max(needed, min(max(_STEP_FIRST, 2 * taken), self._batch_bytes_max))
        if self.used_bytes + limit - taken > self._memory_bytes_max:
            limit = needed
            if not self.has_memory(limit - taken):
                return None
        if batch is None:
            batch = self._open[topic_partition] = Gathering(topic_partition, now)
            self.incomplete[batch] = None
            self.has_changed = True
        self.used_bytes += limit - taken
        batch.memory_bytes = batch.records.limit = limit
        return batch

    def add_whole(self, topic_partition: TopicPartition, whole: WholeBatch, now: Micros) -> Gathering:
        """Add a whole batch, which is sent after the records added before; `has_memory` of its size holds."""
        batch = self._open.get(topic_partition)
        if batch is not None:
            self._close(topic_partition, batch)
        batch = Gathering(topic_partition, now, whole)
        self.incomplete[batch] = None
        self.used_bytes += whole.size
        batch.memory_bytes = whole.size
        self._full.setdefault(topic_partition, deque()).append(batch)
        self.has_changed = True
        return batch

    def hold(self, topic_partition: TopicPartition, memory_bytes: int, now: Micros) -> Gathering:
        """A batch that stands for a record whose topic is not known; `has_memory` of these bytes holds."""
        batch = Gathering(topic_partition, now, _NO_RECORDS)
        self.incomplete[batch] = None
        self.used_bytes += memory_bytes
        batch.memory_bytes = memory_bytes
        self.has_changed = True
        return batch

    def freed(self, held: Gathering) -> None:
        """Release the memory of a held record, which goes into a batch."""
        self.used_bytes -= held.memory_bytes
        held.memory_bytes = 0

    def placed(self, held: Gathering, batch: Gathering, index: int) -> None:
        """Make a held record done with the record at `index` of `batch`."""
        del self.incomplete[held]
        held.topic_partition = batch.topic_partition
        batch.callbacks += held.callbacks
        held.callbacks = batch.callbacks  # callbacks that are added later keep the order as well
        if batch.held is None:
            batch.held = []
        batch.held.append((held, index))

    def close(self, batch: Gathering) -> None:
        """Make an open batch take no more records: it is full."""
        self._close(batch.topic_partition, batch)

    def has_memory(self, size: int) -> bool:
        """Whether there is enough memory for a record of that size."""
        return self.used_bytes + size <= self._memory_bytes_max or not self.used_bytes

    @property
    def has_full(self) -> bool:
        """Whether a full batch waits to be sent."""
        return bool(self._full)

    def take(self, now: Micros, has_room: Callable[[TopicPartition], bool]) -> list[Gathering]:
        """The ready batches, at most one per partition, of partitions with room for another request; they
        take no more records.
        """
        taken: list[Gathering] = []
        for topic_partition in list(self._full):
            if has_room(topic_partition):
                full = self._full[topic_partition]
                taken.append(full.popleft())
                if not full:
                    del self._full[topic_partition]
        for topic_partition, batch in list(self._open.items()):
            is_ready = self.is_short or now >= batch.created + self._linger_us
            if (
                is_ready
                and topic_partition not in self._full
                and has_room(topic_partition)
                and not _holds(taken, topic_partition)
            ):
                del self._open[topic_partition]
                self._seal(batch)
                taken.append(batch)
        return taken

    def flush(self) -> None:
        """Make every open batch ready to be sent at once."""
        for topic_partition, batch in list(self._open.items()):
            self._close(topic_partition, batch)

    def released(self, batch: Gathering) -> None:
        """Release the memory of a batch that is done."""
        self.used_bytes -= batch.memory_bytes
        self.incomplete.pop(batch, None)

    def expired(self, deadline_created: Micros) -> list[Gathering]:
        """Remove the batches created at or before that time that could not be sent, and return them."""
        old: list[Gathering] = []
        for topic_partition, full in list(self._full.items()):
            while full and full[0].created <= deadline_created:
                old.append(full.popleft())
            if not full:
                del self._full[topic_partition]
        for topic_partition, batch in list(self._open.items()):
            if batch.created <= deadline_created:
                del self._open[topic_partition]
                self._seal(batch)
                old.append(batch)
        return old

    def deadline(self, now: Micros) -> Micros | None:
        """The time at which the next open batch has lingered; None if one has lingered before `now` and waits
        for room.
        """
        return min(
            (
                ready
                for batch in self._open.values()
                if (ready := Micros(batch.created + self._linger_us)) > now
            ),
            default=None,
        )

    def _close(self, topic_partition: TopicPartition, batch: Gathering) -> None:
        del self._open[topic_partition]
        self._seal(batch)
        self._full.setdefault(topic_partition, deque()).append(batch)
        self.has_changed = True

    def _seal(self, batch: Gathering) -> None:
        """End a batch, and release the memory that it does not use."""
        batch.records.limit = 0
        self.used_bytes -= batch.memory_bytes - batch.builder.size
        batch.memory_bytes = batch.builder.size


def _holds(taken: list[Gathering], topic_partition: TopicPartition) -> bool:
    return any(batch.topic_partition == topic_partition for batch in taken)
