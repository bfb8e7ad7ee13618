"""The records of a producer on their way into batches: the partition of each, and its open batch.

A machine without I/O, in front of `Accumulator`. Most records go into a batch that is open and has memory;
for those, `add` looks up one batch and calls the kernel. The others choose a partition and take memory.

A record whose topic is not known has no partition yet: it is held, and so is every later record of the topic.
Once the topic is known, `place` adds them in their order, before any record that comes after.

    add -> [held, by topic] --place--> batches
             +-- the topic is refused, or not known within max_block_ms --> failed
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from sparklog.client.cluster import Cluster, Entropy, TopicView
from sparklog.client.failures import DeliveryFailed, RecordTooLarge, UnknownTopic
from sparklog.client.producer.accumulator import Accumulator, Gathering
from sparklog.client.settings import ClientSettings
from sparklog.errors import SparklogError
from sparklog.kernels import columns
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import HEADER_SIZE, Content, Headers, WholeBatch, record_size_max
from sparklog.record.columns import PartitionBatch

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""(topic, key, value, number of partitions) -> partition."""

_MS: Final = 1000
_NOT_CHOSEN: Final = -1
_HELD_BYTES: Final = 512
"""The memory of a held record besides its content: the objects of Python, measured."""


class Run(NamedTuple):
    """Consecutive records of a batch, from index `first` on."""

    batch: Gathering
    first: int
    record_count: int


class Held(NamedTuple):
    """A record whose topic is not known, and the batch that stands for it."""

    batch: Gathering
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int


class Intake:
    """Puts records into batches. Every method that adds returns None while memory is short, and has changed
    nothing then. Invariant: while records of a topic are held, none of its later records is in a batch.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        cluster: Cluster,
        clock: Callable[[], Micros],
        entropy: Entropy,
        partitioner: Partitioner | None = None,
    ) -> None:
        self._settings = settings = accumulator.settings
        self._accumulator = accumulator
        self._cluster = cluster
        self._clock = clock
        self._partitioner = partitioner
        self._ignores_keys = settings.partitioner_ignore_keys
        self._held_us = settings.max_block_ms * _MS
        self._sticky = StickyPartitioner(settings, entropy)
        self.sticky_batches = self._sticky.batches
        """The last batch of each topic that records without a key went to; empty with a partitioner."""
        self._by_topic: dict[str, list[Gathering | None]] = {}
        """The last batch of each partition, open or not."""
        self.held: dict[str, deque[Held]] = {}
        """The records of topics that are not known, oldest first."""
        self.has_unasked = False
        """Set when the first record of a topic is held; the caller that wakes the worker resets it."""

    def add(
        self,
        topic: str,
        key: Content,
        value: Content,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
    ) -> tuple[Gathering, int] | None:
        """Add a record, or hold it: its batch, and its index there. Raises RecordTooLarge, UnknownTopic, and
        TypeError for content that is neither bytes nor text.
        """
        if partition is None and (key is None or self._ignores_keys):
            batch = self.sticky_batches.get(topic)
        else:
            batch = self._last_batch(topic, key, partition)
        if batch is not None and (index := batch.append(key, value, headers, timestamp_ms)) >= 0:
            return batch, index
        if self._holds(topic):
            return self._hold(topic, key, value, headers, partition, timestamp_ms)
        begun = self._begin(topic, key, value, headers, partition)
        return None if begun is None else (begun, begun.append(key, value, headers, timestamp_ms))

    def rows(
        self,
        topic: str,
        keys: list[Content] | None,
        values: list[Content],
        partition: int | None,
        timestamp_ms: int,
    ) -> "Iterator[Rows]":
        """The records of one call, those of a partition in one `Rows`; those to be held are single. Each is
        added before the next is taken.
        """
        start = 0
        while start < len(values) and self._holds(topic):
            one_key = None if keys is None else [keys[start]]
            yield Rows(self, topic, one_key, [values[start]], partition, timestamp_ms)
            start += 1
        if start == len(values):
            return
        if start:
            values, keys = values[start:], None if keys is None else keys[start:]
        count = len(self._cluster.topics[topic].partitions)
        has_no_keys = keys is None or self._ignores_keys
        if partition is not None or (self._partitioner is None and has_no_keys):
            yield Rows(self, topic, keys, values, partition, timestamp_ms)
            return
        chosen: dict[int | None, tuple[list[Content], list[Content]]] = {}
        for key, value in zip([None] * len(values) if keys is None else keys, values, strict=True):
            if self._partitioner is not None:
                number: int | None = self._partitioner(topic, bytes_of(key), bytes_of(value), count)
            else:
                number = None if key is None else partition_for(key, count)
            some_keys, some_values = chosen.setdefault(number, ([], []))
            some_keys.append(key)
            some_values.append(value)
        for number, some in chosen.items():
            yield Rows(self, topic, *some, number, timestamp_ms)

    def add_whole(self, topic: str, built: PartitionBatch) -> Run | None:
        """Add a whole batch behind the records of its partition; returns None also while records of the topic
        are held. Raises RecordTooLarge.
        """
        size = len(built.batch)
        is_one = built.record_count == 1  # more are bounded before compression
        if is_one:
            self._require_room(f"a batch of {size} bytes", size, "max_request_size")
        self._require_room(f"a batch of {size} bytes", size, "buffer_memory")
        if not self.has_room_for_whole(topic, size):
            return None
        whole = WholeBatch(built.batch, built.record_count)
        partition = TopicPartition(topic, built.partition)
        return Run(self._accumulator.add_whole(partition, whole, self._clock()), 0, built.record_count)

    def has_memory(self, topic: str, size: int) -> bool:
        """Whether there is memory for a record of `size` bytes, header of a batch included."""
        return self._accumulator.has_memory(size + _HELD_BYTES if self._holds(topic) else size)

    def has_room_for_whole(self, topic: str, size: int) -> bool:
        """Whether a whole batch of that size can be added."""
        return topic not in self.held and self._accumulator.has_memory(size)

    # -- held records ----------------------------------------------------------------------------------------

    def place(
        self,
        now: Micros,
        refusal: Callable[[str], SparklogError | None],
        lateness: Callable[[str], SparklogError],
    ) -> list[tuple[Gathering, SparklogError]]:
        """Add the held records of topics that are known now; returns those that failed. `refusal` is asked
        for the error of a topic that waiting does not resolve, `lateness` for that of one that is not known
        in time.
        """
        failed: list[tuple[Gathering, SparklogError]] = []
        latest_created = now - self._held_us
        for topic, held in list(self.held.items()):
            if (error := refusal(topic)) is not None:
                failed += [(one.batch, error) for one in self.held.pop(topic)]
            elif topic in self._cluster.topics:
                failed += self._place(topic, self.held.pop(topic))
            elif held[0].batch.created <= latest_created:
                error = lateness(topic)
                while held and held[0].batch.created <= latest_created:
                    failed.append((held.popleft().batch, error))
                if not held:
                    del self.held[topic]
        return failed

    def deadline(self) -> Micros | None:
        """The time at which the next held record fails."""
        created = min((held[0].batch.created for held in self.held.values()), default=None)
        return None if created is None else Micros(created + self._held_us)

    def _holds(self, topic: str) -> bool:
        """Whether a record of the topic would be held."""
        return topic in self.held or topic not in self._cluster.topics

    def _hold(
        self,
        topic: str,
        key: Content,
        value: Content,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
    ) -> tuple[Gathering, int] | None:
        size = self._checked_size(key, value, headers)
        memory_bytes = HEADER_SIZE + size + _HELD_BYTES
        if not self._accumulator.has_memory(memory_bytes):
            return None
        if topic not in self.held:
            self.held[topic] = deque()
            self.has_unasked = True
            # A topic that was known before may have open batches, which later records must not enter.
            self._by_topic.pop(topic, None)
            self.sticky_batches.pop(topic, None)
        place = TopicPartition(topic, _NOT_CHOSEN if partition is None else partition)
        batch = self._accumulator.hold(place, memory_bytes, self._clock())
        # Copies: the caller may change what it gave after the call.
        pairs = tuple((name, None if content is None else bytes(content)) for name, content in headers)
        self.held[topic].append(Held(batch, bytes_of(key), bytes_of(value), pairs, partition, timestamp_ms))
        return batch, 0

    def _place(self, topic: str, held: deque[Held]) -> list[tuple[Gathering, SparklogError]]:
        """Add records to batches, which may be sent at once: their records have waited."""
        failed: list[tuple[Gathering, SparklogError]] = []
        touched: dict[Gathering, None] = {}
        for one in held:
            self._accumulator.freed(one.batch)
            try:
                taken = self.add(topic, one.key, one.value, one.headers, one.partition, one.timestamp_ms)
            except SparklogError as error:
                failed.append((one.batch, error))
            except Exception as error:
                reason = f"the partitioner raised {error!r}"
                failed.append((one.batch, DeliveryFailed(one.batch.topic_partition, reason)))
            else:
                # The memory that was released is at least that of the record in a new batch.
                assert taken is not None
                self._accumulator.placed(one.batch, *taken)
                touched[taken[0]] = None
        for batch in touched:
            if batch.is_open:
                self._accumulator.close(batch)
        return failed

    # -- inside ----------------------------------------------------------------------------------------------

    def _checked_size(self, key: Content, value: Content, headers: Headers) -> int:
        size = record_size_max(key, value, headers)
        self._require_room(f"a record of about {size} bytes", size, "max_request_size")
        self._require_room(f"a record of about {size} bytes", size, "buffer_memory")
        return size

    def _require_room(
        self, what: str, size: int, setting: Literal["max_request_size", "buffer_memory"]
    ) -> None:
        """Raises RecordTooLarge for a size above that limit."""
        limit: int = getattr(self._settings, setting)
        if size > limit:
            raise RecordTooLarge(f"{what} is larger than {setting}={limit}: raise {setting}")

    def _last_batch(self, topic: str, key: Content, partition: int | None) -> Gathering | None:
        """The last batch of the record's partition."""
        batches = self._by_topic.get(topic)
        if not batches or (partition is None and self._partitioner is not None):
            return None
        if partition is None:
            partition = partition_for(key, len(batches))
        return batches[partition] if 0 <= partition < len(batches) else None

    def _begin(
        self, topic: str, key: Content, value: Content, headers: Headers, partition: int | None
    ) -> Gathering | None:
        """A batch with memory for this record, whose topic is known."""
        view = self._cluster.topics[topic]
        size = self._checked_size(key, value, headers)
        batches = self._by_topic.get(topic)
        if batches is None or len(batches) != len(view.partitions):
            batches = self._by_topic[topic] = [None] * len(view.partitions)
        is_sticky = False
        if partition is None and self._partitioner is not None:
            partition = self._partitioner(topic, bytes_of(key), bytes_of(value), len(view.partitions))
        elif key is not None and not self._ignores_keys and partition is None:
            partition = partition_for(key, len(batches))
        elif partition is None:
            partition, is_sticky = self._sticky.choose(view, size, self._accumulator), True
        self._checked(view, partition)
        batch = self._accumulator.room(TopicPartition(topic, partition), self._clock(), size)
        if batch is not None:
            batches[partition] = batch
            if is_sticky:
                self._sticky.batches[topic] = batch
        return batch

    def _checked(self, view: TopicView, partition: int) -> int:
        if not 0 <= partition < len(view.partitions):
            raise UnknownTopic(f"topic {view.name!r} has no partition {partition}")
        return partition


class Rows:
    """Records of one call on their way into batches: all of one partition, or all for the sticky one."""

    __slots__ = ("_intake", "_keys", "_partition", "_start", "_timestamp_ms", "_topic", "_values")

    def __init__(
        self,
        intake: Intake,
        topic: str,
        keys: list[Content] | None,
        values: list[Content],
        partition: int | None,
        timestamp_ms: int,
    ) -> None:
        self._intake = intake
        self._topic = topic
        self._keys = keys
        self._values = values
        self._partition = partition
        self._timestamp_ms = timestamp_ms
        self._start = 0

    @property
    def is_done(self) -> bool:
        """Whether every record is in a batch."""
        return self._start == len(self._values)

    def has_memory(self) -> bool:
        """Whether there is memory for the next record."""
        key = None if self._keys is None else self._keys[self._start]
        size = HEADER_SIZE + record_size_max(key, self._values[self._start], ())
        return self._intake.has_memory(self._topic, size)

    def add(self) -> Run | None:
        """Add the next records, as many as go into one batch; raises as `Intake.add`."""
        start, keys, stamp = self._start, self._keys, self._timestamp_ms
        key = None if keys is None else keys[start]
        taken = self._intake.add(self._topic, key, self._values[start], (), self._partition, stamp)
        if taken is None:
            return None
        batch, first = taken
        if not batch.is_open:  # it is held
            self._start += 1
            return Run(batch, first, 1)
        try:
            count = 1 + batch.records.extend(self._values, keys, stamp, start + 1)
        except TypeError:
            # Those before the refused one are in the batch; the next call raises the error.
            count = batch.records.record_count - first
        self._start += count
        return Run(batch, first, count)


class Whole:
    """A whole batch on its way into the accumulator, as `Rows`."""

    __slots__ = ("_built", "_intake", "_topic", "is_done")

    def __init__(self, intake: Intake, topic: str, built: PartitionBatch) -> None:
        self._intake = intake
        self._topic = topic
        self._built = built
        self.is_done = False

    def has_memory(self) -> bool:
        """Whether the batch can be added."""
        return self._intake.has_room_for_whole(self._topic, len(self._built.batch))

    def add(self) -> Run | None:
        """Add the batch behind the records of its partition; raises RecordTooLarge."""
        run = self._intake.add_whole(self._topic, self._built)
        self.is_done = run is not None
        return run


class StickyPartitioner:
    """Kafka's partitioner for records without a key: they go to one partition until it has received the bytes
    of a batch, then to another (KIP-794).
    """

    __slots__ = ("_batch_bytes", "_chances", "_current", "_entropy", "batches")

    def __init__(self, settings: ClientSettings, entropy: Entropy) -> None:
        self._batch_bytes = settings.batch_bytes_max
        self._entropy = entropy
        self._current: dict[str, tuple[int, int]] = {}  # the partition, and the bytes of its closed batches
        self._chances = b""
        self.batches: dict[str, Gathering] = {}
        """The last batch of each topic that records without a key went to."""

    def choose(self, topic: TopicView, size: int, accumulator: Accumulator) -> int:
        """The partition of a record of about `size` bytes for which the last batch has no room."""
        partition, sent = self._current.get(topic.name, (-1, 0))
        last = self.batches.get(topic.name)
        if last is not None:
            sent += last.records.size
            if last.is_open and sent + size > self._batch_bytes:
                accumulator.close(last)
            if not last.is_open:
                del self.batches[topic.name]
                self._current[topic.name] = (partition, sent)
        if partition < 0 or sent + size > self._batch_bytes or partition >= len(topic.partitions):
            # While no partition has a leader, any of them is chosen.
            among = topic.available or tuple(range(len(topic.partitions)))
            partition = among[self._chance() % len(among)]
            self._current[topic.name] = (partition, 0)
        return partition

    def _chance(self) -> int:
        """A random number in [0, 2^16); entropy is read for many numbers at once, because each read is a
        system call.
        """
        if not self._chances:
            self._chances = self._entropy(512)
        drawn, self._chances = self._chances[:2], self._chances[2:]
        return int.from_bytes(drawn, "big")


def bytes_of(content: Content) -> bytes | None:
    """Content as bytes; text is encoded as UTF-8. TypeError for other values."""
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"{type(content).__name__} is neither bytes nor text: give the producer a serializer")


def partition_for(key: Content, count: int) -> int:
    """The partition in `[0, count)` of a key, as of Kafka's Java client. librdkafka's own default is CRC32
    (`consistent_random`); `partitioner=murmur2_random` there agrees with this.
    """
    return (columns.murmur2(bytes_of(key) or b"") & 0x7FFFFFFF) % count
