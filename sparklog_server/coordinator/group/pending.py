"""Offsets that producers committed in transactions, until the marker of each transaction.

    TxnOffsetCommit ─► pending ─┬─ COMMIT ─► committed, unless a later record of the partition is
                                ├─ ABORT ──► dropped
                                └─ tombstone of the partition ─► dropped, for every producer

Of two committed records of one partition the later one in the log counts, in any order of the markers,
because compaction keeps the order of the log (KAFKA-8896).
"""

from collections.abc import Iterable, Iterator

from sparklog.model import Offset

from .records import OffsetCommitKey, OffsetCommitValue

_Key = tuple[str, str, int]
"""Group, topic, partition."""


class PendingOffsets:
    """The undecided offsets of one shard. Invariant: `_open` has a key with exactly the producers that have
    it in `_of_producer`.
    """

    def __init__(self) -> None:
        # None: a later commit has replaced the offset, and the transaction is still open.
        self._of_producer: dict[int, dict[_Key, tuple[OffsetCommitValue, Offset] | None]] = {}
        self._open: dict[str, dict[tuple[str, int], dict[int, None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, group_id: str) -> bool:
        """Whether the group has undecided offsets."""
        return group_id in self._open

    def is_undecided(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has an offset of the partition."""
        group = self._open.get(group_id)
        return group is not None and (topic, partition) in group

    def partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        """The partitions of the group with undecided offsets."""
        return iter(self._open.get(group_id, ()))

    def groups(self) -> Iterator[str]:
        """The groups with undecided offsets."""
        return iter(self._open)

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue, offset: Offset) -> None:
        """Add a commit in the transaction of the producer, from the record at `offset`."""
        self._of_producer.setdefault(producer_id, {})[key.group, key.topic, key.partition] = value, offset
        self._open.setdefault(key.group, {}).setdefault((key.topic, key.partition), {})[producer_id] = None

    def overtaken(self, key: OffsetCommitKey) -> None:
        """Let a commit without a transaction replace the undecided offsets of its partition."""
        for producer_id in self._open.get(key.group, {}).get((key.topic, key.partition), ()):
            self._of_producer[producer_id][key.group, key.topic, key.partition] = None

    def forget(self, key: OffsetCommitKey) -> None:
        """Drop the undecided offsets of a partition, because of a tombstone."""
        group = self._open.get(key.group)
        if group is None:
            return
        for producer_id in group.pop((key.topic, key.partition), ()):
            self._drop(producer_id, (key.group, key.topic, key.partition))
        if not group:
            del self._open[key.group]

    def _drop(self, producer_id: int, key: _Key) -> None:
        offsets = self._of_producer[producer_id]
        del offsets[key]
        if not offsets:
            del self._of_producer[producer_id]

    def ended(
        self, producer_id: int, *, is_commit: bool
    ) -> Iterable[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """End the transaction of the producer. Returns the offsets that become committed."""
        counted = []
        for (group_id, topic, partition), undecided in self._of_producer.pop(producer_id, {}).items():
            others = self._closed(group_id, topic, partition, producer_id)
            if not is_commit or undecided is None:
                continue
            value, offset = undecided
            counted.append((OffsetCommitKey(group=group_id, topic=topic, partition=partition), value))
            for other in others:
                of_other = self._of_producer[other]
                known = of_other[group_id, topic, partition]
                if known is not None and known[1] < offset:
                    of_other[group_id, topic, partition] = None
        return counted

    def _closed(self, group_id: str, topic: str, partition: int, producer_id: int) -> tuple[int, ...]:
        """Remove the producer from the partition. Returns the other producers with undecided offsets."""
        group = self._open[group_id]
        producers = group[topic, partition]
        del producers[producer_id]
        if not producers:
            del group[topic, partition]
            if not group:
                del self._open[group_id]
        return tuple(producers)
