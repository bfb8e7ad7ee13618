"""The types that every layer shares: offsets, epochs, identities and times.

This module does no I/O and does not depend on the wire format. A NewType prevents an offset in the place of
an epoch, at no cost at run time.
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
    """The time as an argument: `mono` for deadlines, `wall` for anything stored.

    `mono_us` never steps back; `wall_ms` is Unix time and may step either way.
    """

    mono_us: Micros
    wall_ms: Millis


def earlier(first: Micros | None, second: Micros | None) -> Micros | None:
    """The earlier of two deadlines; None is no deadline. Written without `min`, because every turn calls this
    a dozen times.
    """
    if first is None or (second is not None and second < first):
        return second
    return first
