"""Batches for tests: any records, and then any damage, with a correct CRC so that the damage is reached."""

from collections.abc import Sequence
from struct import pack_into, unpack_from

from crc32c import crc32c
from hypothesis import strategies as st

from sparklog.record.batch import build_batch

Fields = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]

contents = st.none() | st.binary(max_size=20) | st.integers(0, 400).map(bytes)
names = st.text(max_size=6)
timestamps = st.integers(-1, 2**41) | st.sampled_from([0, -1, 2**61, -(2**61)])
records = st.tuples(contents, contents, st.lists(st.tuples(names, contents), max_size=3), timestamps)
record_lists = st.lists(records, min_size=1, max_size=12)


def one_batch(
    fields: Sequence[Fields], *, base_offset: int = 0, attributes: int = 0, producer_id: int = -1
) -> bytearray:
    """A correct, uncompressed batch, with some more attribute bits than a client would set."""
    batch = build_batch(
        fields, base_offset=base_offset, producer_id=producer_id, base_sequence=0 if producer_id >= 0 else -1
    )
    if attributes:
        pack_into(">h", batch, 21, attributes)
        reseal(batch, 0)
    return batch


def reseal(buffer: bytearray, position: int) -> None:
    """Correct the CRC of the batch at `position`, if it is whole."""
    if len(buffer) - position < 61:
        return
    end = position + 12 + unpack_from(">i", buffer, position + 8)[0]
    if position + 61 <= end <= len(buffer):
        pack_into(">I", buffer, position + 17, crc32c(memoryview(buffer)[position + 21 : end]))


interesting = st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF]) | st.integers(0, 255)
damages = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), interesting), max_size=4)


def damaged(
    buffer: bytes | bytearray, damage: list[tuple[float, int]], cut: int, first: int = 0
) -> bytearray:
    """`buffer` with some bytes from `first` on replaced and `cut` bytes missing at the end."""
    hurt = bytearray(buffer[: max(0, len(buffer) - cut)])
    for place, byte in damage:
        at = first + int(place * (len(hurt) - first))
        if at < len(hurt):
            hurt[at] = byte
    return hurt


def outcome(function: object, *arguments: object) -> object:
    """The result of a call, or the ValueError it raises, in a form that compares."""
    try:
        return function(*arguments)  # type: ignore[operator]
    except ValueError as refused:
        return ("refused", *refused.args)
