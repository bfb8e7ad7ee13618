"""The accumulator of a producer: one open batch per partition, bounded in memory; and the choice of a
partition for a record.

A machine without I/O. A batch is ready when it is full, when it has lingered, during a flush, or when
memory is short. It leaves when its leader can take another request, and grows until then.

    append -> [open batch] --full--> [full batches ...] --take--> outbound
                   +-------------- lingered ------------^
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from sparklog.client.cluster import Entropy, TopicView
from sparklog.client.outbound_batch import Done
from sparklog.client.settings import ClientSettings
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import BatchBuilder, Headers
from sparklog.record.partitioner import partition_for

_MS: Final = 1000


class Gathering:
    """A batch from its first record to its result. Batches compare by identity."""

    __slots__ = ("builder", "callbacks", "created", "done", "memory_bytes", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, created: Micros) -> None:
        self.topic_partition = topic_partition
        self.created = created
        self.builder = BatchBuilder()
        self.memory_bytes = 0
        self.done: Done | None = None
        self.callbacks: list[Callable[[], None]] = []  # called in the order of the records


class Accumulator:
    """The batches of a producer until they are done. Invariants: `used_bytes` is the memory of batches not
    yet released, at most `buffer_memory`; the batches of a partition stay in order.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._batch_bytes_max = settings.batch_size
        self._memory_bytes_max = settings.buffer_memory
        self._linger_us = settings.linger_ms * _MS
        self._open: dict[TopicPartition, Gathering] = {}
        self._full: dict[TopicPartition, deque[Gathering]] = {}
        self.is_short = False
        """Set while a record waits for memory: every batch is then ready to be sent."""
        self.used_bytes = 0
        self.incomplete: dict[Gathering, None] = {}
        """Batches not yet done, oldest first."""

    def append(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now: Micros,
        size: int,
    ) -> tuple[Gathering, int] | None:
        """Add a record: returns its batch and its index there, or None if there is not enough memory now.
        `size` is the `record_size_max` of the record.
        """
        if not self.has_memory(size):
            return None
        batch = self._open.get(topic_partition)
        if batch is not None and batch.builder.size + size > self._batch_bytes_max:
            self._close(topic_partition, batch)
            batch = None
        if batch is None:
            batch = self._open[topic_partition] = Gathering(topic_partition, now)
            self.incomplete[batch] = None
        builder = batch.builder
        index = builder.record_count
        builder.append(key, value, headers, timestamp_ms)
        self.used_bytes += size
        batch.memory_bytes += size
        return batch, index

    def has_memory(self, size: int) -> bool:
        """Whether there is enough memory for a record of that size."""
        return self.used_bytes + size <= self._memory_bytes_max or not self.used_bytes

    def is_beginning(self, topic_partition: TopicPartition) -> bool:
        """Whether the next record of the partition begins a new batch."""
        return topic_partition not in self._open

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
                old.append(self._open.pop(topic_partition))
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
        self._full.setdefault(topic_partition, deque()).append(batch)


def _holds(taken: list[Gathering], topic_partition: TopicPartition) -> bool:
    return any(batch.topic_partition == topic_partition for batch in taken)


class StickyPartitioner:
    """Kafka's default partitioner: murmur2 of the key; records without a key go to one partition until it has
    received the bytes of a batch, then to another (KIP-794).
    """

    __slots__ = ("_batch_bytes", "_chances", "_current", "_entropy", "_ignores_keys")

    def __init__(self, settings: ClientSettings, entropy: Entropy) -> None:
        self._batch_bytes = settings.batch_size
        self._ignores_keys = settings.partitioner_ignore_keys
        self._entropy = entropy
        self._current: dict[str, tuple[int, int]] = {}  # the partition, and the bytes that it has received
        self._chances = b""

    def choose(
        self, topic: TopicView, key: bytes | None, size: int, is_beginning: Callable[[TopicPartition], bool]
    ) -> int:
        """The partition of a record of about `size` bytes."""
        if key is not None and not self._ignores_keys:
            return partition_for(key, len(topic.partitions))
        partition, sent = self._current.get(topic.name, (-1, 0))
        is_due = sent >= self._batch_bytes and (
            sent >= 2 * self._batch_bytes or is_beginning(TopicPartition(topic.name, partition))
        )
        if partition < 0 or is_due or partition >= len(topic.partitions):
            # While no partition has a leader, any of them is chosen.
            among = topic.available or tuple(range(len(topic.partitions)))
            partition, sent = among[self._chance() % len(among)], 0
        self._current[topic.name] = (partition, sent + size)
        return partition

    def _chance(self) -> int:
        """A random number in [0, 2^16); entropy is read for many numbers at once, because each read is a
        system call.
        """
        if not self._chances:
            self._chances = self._entropy(512)
        drawn, self._chances = self._chances[:2], self._chances[2:]
        return int.from_bytes(drawn, "big")
