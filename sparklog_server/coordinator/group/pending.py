"""Offsets that producers committed within transactions, until the marker of each says whether they count.

    TxnOffsetCommit ─► pending ─┬─ COMMIT ─► committed, unless something newer is: a later commit, or one that was decided before
                                └─ ABORT ──► forgotten
                    tombstone ─► forgotten, of whichever producer

Of two that are committed for one partition the later record counts, whichever was decided first: the order
of the log is what compaction keeps (KAFKA-8896).
"""  # noqa: E501

from collections.abc import Iterable, Iterator

from sparklog.model import Offset

from .records import OffsetCommitKey, OffsetCommitValue

_Key = tuple[str, str, int]
"""Group, topic, partition."""


class PendingOffsets:
    """What is undecided in one shard. Invariant: a key is in `_open` with exactly the producers that have
    it in `_of_producer`.
    """

    def __init__(self) -> None:
        self._of_producer: dict[
            int, dict[_Key, tuple[OffsetCommitValue, Offset] | None]
        ] = {}  # None: overtaken, and undecided still
        self._open: dict[str, dict[tuple[str, int], dict[int, None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, group_id: str) -> bool:
        """Whether anything is undecided for the group."""
        return group_id in self._open

    def is_undecided(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction may yet change what is committed for the partition."""
        group = self._open.get(group_id)
        return group is not None and (topic, partition) in group

    def partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        """The partitions for which something is undecided in the group."""
        return iter(self._open.get(group_id, ()))

    def groups(self) -> Iterator[str]:
        """The groups for which something is undecided."""
        return iter(self._open)

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue, offset: Offset) -> None:
        """A commit within the producer's transaction, in the record at `offset`."""
        self._of_producer.setdefault(producer_id, {})[key.group, key.topic, key.partition] = value, offset
        self._open.setdefault(key.group, {}).setdefault((key.topic, key.partition), {})[producer_id] = None

    def overtaken(self, key: OffsetCommitKey) -> None:
        """A commit outside of any transaction is newer than all that is undecided."""
        for producer_id in self._open.get(key.group, {}).get((key.topic, key.partition), ()):
            self._of_producer[producer_id][key.group, key.topic, key.partition] = None

    def forget(self, key: OffsetCommitKey) -> None:
        """A tombstone: nothing that is undecided for the partition will count."""
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
        """The producer's transaction is over: what counts of it from now on."""
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
        """The producer is done with the partition; who is not."""
        group = self._open[group_id]
        producers = group[topic, partition]
        del producers[producer_id]
        if not producers:
            del group[topic, partition]
            if not group:
                del self._open[group_id]
        return tuple(producers)
