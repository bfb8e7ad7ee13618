"""The nouns every layer shares: offsets, epochs, identities and the given time.

Nothing here does I/O, and nothing here knows the wire. A NewType keeps an offset out of an epoch's place;
it costs nothing at run time.
"""

from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
NodeId = NewType("NodeId", int)
Millis = NewType("Millis", int)
Micros = NewType("Micros", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
SessionId = NewType("SessionId", int)
Ticket = NewType("Ticket", int)
Uuid = NewType("Uuid", bytes)
"""Sixteen bytes, as they stand on the wire."""

ZERO_UUID = Uuid(bytes(16))
NO_OFFSET = Offset(-1)
NO_EPOCH = LeaderEpoch(-1)


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndEpoch(NamedTuple):
    """An offset together with the leader epoch of the record at or below it."""

    offset: Offset
    epoch: LeaderEpoch


class Instant(NamedTuple):
    """The time given from outside: `mono` for deadlines, `wall` for anything stored.

    `mono_us` never steps back; `wall_ms` is Unix time and may step either way.
    """

    mono_us: Micros
    wall_ms: Millis


def earlier(first: Micros | None, second: Micros | None) -> Micros | None:
    """The earlier of two deadlines, where None stands for none: spelt out, since every turn asks for a
    dozen.
    """
    if first is None or (second is not None and second < first):
        return second
    return first
