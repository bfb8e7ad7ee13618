"""Offsets of a stream as Spark stores them: one canonical JSON text per position.

Spark compares two positions as text, and stores only the end of each micro-batch. Therefore:
- The same position always gives the same text: keys are sorted, numbers are integers.
- The position contains the start of reading. After a crash in the first micro-batch, Spark requests the
  initial offset again, and "latest" may have moved since. The planner takes the start from the end offset.
- The position contains topic ids, so a recreated topic is not taken for the deleted one.
- The position contains the number of lost offsets of each partition, a lower bound.

    {"from": {"flights": {"0": 0, "1": 0}}, "ids": {"flights": "pK3cNcDzSiOsPj4cqbwIgA"},
     "off": {"flights": {"0": 311, "1": 298}}, "v": 2}

`from` of a partition changes only if reading starts anew, for example after a loss. `lost` appears only
after a loss, and `ids` omits topics of brokers without topic ids. Version 1 had neither. An offset that
Spark's Kafka connector has stored, `{"flights": {"0": 311}}`, is read as a position without a start: the
batch before it has the start.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparklog.errors import SparklogError
from sparklog.model import ZERO_UUID, Offset, TopicPartition, Uuid

VERSION = 2

_OFFSET_MAX = 2**63 - 1
_PARTITION_MAX = 2**31 - 1

PartitionOffsets = Mapping[TopicPartition, Offset]
JsonOffsets = dict[str, dict[str, int]]


class OffsetUnreadable(SparklogError):
    """The stored offset has an unknown format, or a newer sparklog wrote it."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The position of a stream: `began` has the start of each partition, `reached` the next offset to read.

    Every partition with a start has a position. Only an offset stored by another connector has positions
    without a start.
    """

    began: PartitionOffsets
    reached: PartitionOffsets
    ids: Mapping[str, Uuid] = field(default_factory=dict)
    lost: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The number of offsets lost since the query began; a lower bound."""

    def __post_init__(self) -> None:
        assert self.began.keys() <= self.reached.keys(), "a partition with a start has a position"

    @classmethod
    def beginning(cls, offsets: PartitionOffsets, ids: Mapping[str, Uuid] | None = None) -> "StreamOffset":
        """The position before the first record: each partition starts at `offsets`."""
        return cls(began=dict(offsets), reached=dict(offsets), ids=dict(ids or {}))

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> "StreamOffset":
        """Reads what `to_json` of this or an older version, or `format("kafka")`, has stored; raises
        OffsetUnreadable.
        """
        version = stored.get("v")
        if isinstance(version, bool) or not isinstance(version, int):
            if not stored:
                raise OffsetUnreadable("the checkpoint holds an empty offset")
            return cls(began={}, reached=_partitions({"off": stored}, "off"))
        if version < 1:
            raise OffsetUnreadable(f"the checkpoint holds an offset that sparklog did not write: {stored!r}")
        if version > VERSION:
            raise OffsetUnreadable(
                f"the checkpoint was written by a newer sparklog (offset version {version}, known is "
                f"{VERSION}): upgrade"
            )
        began, reached = _partitions(stored, "from"), _partitions(stored, "off")
        if began.keys() != reached.keys():
            raise OffsetUnreadable(
                f"the checkpoint holds an offset whose partitions do not match: {stored!r}"
            )
        lost = _partitions(stored, "lost") if "lost" in stored else {}
        return cls(
            began=began,
            reached=reached,
            ids=_ids(stored),
            lost={tp: int(count) for tp, count in lost.items()},
        )

    def to_json(self) -> dict[str, object]:
        """The canonical form: equal positions give equal text under `json.dumps`."""
        assert self.began.keys() == self.reached.keys(), "every partition has a start"
        ids = {topic: _id_text(self.ids[topic]) for topic in sorted(self.ids) if self.ids[topic] != ZERO_UUID}
        lost = {"lost": _nested({tp: Offset(count) for tp, count in self.lost.items()})} if self.lost else {}
        return {"from": _nested(self.began), "ids": ids, **lost, "off": _nested(self.reached), "v": VERSION}

    @property
    def is_foreign(self) -> bool:
        """Whether another connector stored it."""
        return self.began.keys() != self.reached.keys()

    def is_same_topic(self, other: "StreamOffset", topic: str) -> bool:
        """Whether both have the same topic id, as far as it is known; a topic that was deleted and
        recreated has another.
        """
        return (
            self.ids.get(topic) is None or other.ids.get(topic) is None or self.ids[topic] == other.ids[topic]
        )

    def start_in(self, end: "StreamOffset", partition: TopicPartition) -> Offset | None:
        """The start of a batch from here to `end` in a partition of `end`: the position here, unless `end`
        has a new start.

        A start is also new if `end` is below this position: only a recreated topic goes backwards, perhaps
        to the same start. None if neither knows a start: Spark's Kafka connector begins a new partition at
        its earliest record.
        """
        if partition not in end.began:
            return self.reached.get(partition)
        is_known = self.began.get(partition) == end.began[partition] and self.is_same_topic(
            end, partition.topic
        )
        if is_known and self.reached[partition] <= end.reached[partition]:
            return self.reached[partition]
        return end.began[partition]


def _id_text(topic_id: Uuid) -> str:
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def _ids(stored: Mapping[str, object]) -> dict[str, Uuid]:
    ids: dict[str, Uuid] = {}
    result = stored.get("ids", {})
    if not isinstance(result, Mapping):
        raise OffsetUnreadable(f"the checkpoint holds an offset with a broken 'ids': {stored!r}")
    for topic, text in result.items():
        try:
            topic_id = urlsafe_b64decode(str(text) + "==")
        except ValueError:
            topic_id = b""
        if len(topic_id) != len(ZERO_UUID):
            raise OffsetUnreadable(f"the checkpoint holds an offset with a broken 'ids': {stored!r}")
        ids[str(topic)] = Uuid(topic_id)
    return ids


def _nested(offsets: PartitionOffsets) -> JsonOffsets:
    nested: JsonOffsets = {}
    for topic, partition in sorted(offsets, key=lambda tp: (tp.topic, str(tp.partition))):
        nested.setdefault(topic, {})[str(partition)] = int(offsets[TopicPartition(topic, partition)])
    return nested


def _partitions(stored: Mapping[str, object], key: str) -> dict[TopicPartition, Offset]:
    nested = stored.get(key)
    if not isinstance(nested, Mapping):
        raise OffsetUnreadable(f"the checkpoint holds an offset without {key!r}: {stored!r}")
    offsets: dict[TopicPartition, Offset] = {}
    for topic, by_partition in nested.items():
        if not isinstance(by_partition, Mapping):
            raise OffsetUnreadable(f"the checkpoint holds an offset with a broken {key!r}: {stored!r}")
        for partition, offset in by_partition.items():
            if (
                isinstance(offset, bool)
                or not isinstance(offset, int)
                or not 0 <= offset <= _OFFSET_MAX
                or not _is_number(partition)
            ):
                raise OffsetUnreadable(f"the checkpoint holds an offset with a broken {key!r}: {stored!r}")
            offsets[TopicPartition(str(topic), int(partition))] = Offset(offset)
    return offsets


def _is_number(partition: object) -> bool:
    text = str(partition)
    return (
        text.isascii()
        and text.isdecimal()
        and len(text) <= len(str(_PARTITION_MAX))
        and int(text) <= _PARTITION_MAX
    )
