"""Offsets of a stream as Spark stores them: one canonical JSON text per position.

Spark compares two positions as text, and stores only where each micro-batch ended. So
- there is one spelling: keys sorted, whole numbers, nothing optional; the same position is the same text;
- the place where reading began is carried inside: after a crash in the first micro-batch Spark asks for the initial offset again, and by
  then "latest" may be somewhere else. Whoever plans a batch takes the beginning from the end offset, which was stored.

    {"from": {"flights": {"0": 0, "1": 0}}, "off": {"flights": {"0": 311, "1": 298}}, "v": 1}

`from` and `off` hold the same partitions. `from` of a partition changes only where reading begins anew, as after its records were lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.errors import SparklogError
from sparklog.model import Offset, TopicPartition

VERSION = 1

PartitionOffsets = Mapping[TopicPartition, Offset]
JsonOffsets = dict[str, dict[str, int]]


class OffsetUnreadable(SparklogError):
    """A stored offset is not one of ours, or was written by a newer sparklog."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a stream has come: `began` where reading of a partition began, `reached` the next offset to read of it."""

    began: PartitionOffsets
    reached: PartitionOffsets

    def __post_init__(self) -> None:
        assert self.began.keys() == self.reached.keys(), "every partition has a beginning and a position"

    @classmethod
    def beginning(cls, offsets: PartitionOffsets) -> "StreamOffset":
        """Nothing read yet, reading begins at `offsets`."""
        return cls(began=dict(offsets), reached=dict(offsets))

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> "StreamOffset":
        """What `to_json` gave, perhaps by an older version; raises OffsetUnreadable."""
        version = stored.get("v")
        if not isinstance(version, int) or version < 1:
            raise OffsetUnreadable(f"the checkpoint holds an offset that sparklog did not write: {stored!r}")
        if version > VERSION:
            raise OffsetUnreadable(
                f"the checkpoint was written by a newer sparklog (offset version {version}, known is {VERSION}): upgrade"
            )
        began, reached = _partitions(stored, "from"), _partitions(stored, "off")
        if began.keys() != reached.keys():
            raise OffsetUnreadable(f"the checkpoint holds an offset whose partitions do not match: {stored!r}")
        return cls(began=began, reached=reached)

    def to_json(self) -> dict[str, object]:
        """The canonical form: equal positions give equal text under `json.dumps`."""
        return {"from": _nested(self.began), "off": _nested(self.reached), "v": VERSION}

    def start_in(self, end: "StreamOffset", partition: TopicPartition) -> Offset:
        """Where a batch from here to `end` starts in a partition of `end`: here, unless its reading began elsewhere.

        It also began anew where `end` lies behind: only a topic that was made anew goes back, perhaps to the offset it once began at.
        """
        if self.began.get(partition) == end.began[partition] and self.reached[partition] <= end.reached[partition]:
            return self.reached[partition]
        return end.began[partition]


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
            if isinstance(offset, bool) or not isinstance(offset, int) or not str(partition).isdecimal():
                raise OffsetUnreadable(f"the checkpoint holds an offset with a broken {key!r}: {stored!r}")
            offsets[TopicPartition(str(topic), int(partition))] = Offset(offset)
    return offsets
