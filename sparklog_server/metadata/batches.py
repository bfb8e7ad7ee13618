"""Metadata records to record batches and back. A batch survives a crash whole or not at all, so its records
are atomic.
"""

from collections.abc import Iterator, Sequence

from sparklog.model import NO_EPOCH, LeaderEpoch, Millis, Offset
from sparklog.record.batch import build_batch, decode_records
from sparklog.wire.schema import Message

from .records import decode_value, encode_value


def batch_of(
    records: Sequence[Message], wall_ms: Millis, *, leader_epoch: LeaderEpoch = NO_EPOCH
) -> bytearray:
    """One record batch that holds these records, its offsets still relative to 0."""
    return build_batch(
        [(None, encode_value(record), (), wall_ms) for record in records], leader_epoch=leader_epoch
    )


def records_of(batches: bytes | bytearray | memoryview) -> Iterator[tuple[Offset, Message]]:
    """(offset, record) for each metadata record of whole batches; raft's control batches are skipped.

    Raises DecodeError for a record that this release does not know.
    """
    for record in decode_records(batches):
        yield Offset(record.offset), decode_value(record.value)
