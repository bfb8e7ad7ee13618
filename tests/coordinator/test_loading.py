"""The records of a window that a load replays: the last record of each key, and all records if there are
transactions.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.effects import FileSlice
from sparklog.model import Offset
from sparklog.record.batch import Record, build_batch
from sparklog.record.compression import Codec
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog_server.coordinator.load_window import Decided, Lost, Step, Undecided, Window, read_window
from sparklog_server.simulation.disk import SimulatedDisk, SimulatedFile

SEED = bytes(range(16))


class Memory:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def pread(self, position: int, length: int) -> bytes:
        return self._content[position : position + length]

    def retain(self) -> None:
        """Memory has no descriptor."""

    def release(self) -> None:
        """Memory has no descriptor."""


def window_of(*batches: bytes | bytearray, length: int | None = None) -> FileSlice:
    content = b"".join(batches)
    return FileSlice(Memory(content), 0, len(content) if length is None else length)


def batch(
    base: int, *records: tuple[bytes, bytes | None], codec: Codec = Codec.NONE, is_transactional: bool = False
) -> bytearray:
    return build_batch(
        [(key, value, (), 7) for key, value in records],
        base_offset=base,
        codec=codec,
        is_transactional=is_transactional,
        producer_id=5 if is_transactional else -1,
        producer_epoch=0 if is_transactional else -1,
    )


def read(window: FileSlice) -> list[tuple[int, bytes | None, bytes | None]]:
    result = read_window(window, SEED)
    assert isinstance(result, Window), result
    return [(record.offset, record.key, record.value) for record in map(record_of, result.steps())]


def record_of(step: Step) -> Record:
    assert not isinstance(step, Decided | Lost)
    return step if isinstance(step, Record) else step.record


def test_only_the_last_record_of_each_key_is_replayed_tombstones_too() -> None:
    window = window_of(batch(0, (b"a", b"1"), (b"b", b"1")), batch(2, (b"a", b"2")), batch(3, (b"b", None)))
    assert read(window) == [(2, b"a", b"2"), (3, b"b", None)]


def test_nothing_is_left_out_where_there_are_transactions() -> None:
    window = window_of(batch(0, (b"a", b"1")), batch(1, (b"a", b"2"), is_transactional=True))
    assert [offset for offset, _, _ in read(window)] == [0, 1]


def test_what_a_transaction_wrote_comes_with_its_producer_and_its_end_in_its_place() -> None:
    marker = build_marker(
        Marker(ControlType.ABORT, 3), producer_id=5, producer_epoch=0, timestamp_ms=7, base_offset=2
    )
    window = window_of(
        batch(0, (b"a", b"1")), batch(1, (b"a", b"2"), is_transactional=True), marker, batch(3, (b"b", b"1"))
    )
    result = read_window(window, SEED)
    assert isinstance(result, Window)
    plain, undecided, decided, last = result.steps()
    assert (record_of(plain).offset, record_of(last).offset) == (0, 3)
    assert isinstance(undecided, Undecided)
    assert (undecided.producer_id, undecided.record.value) == (5, b"2")
    assert decided == Decided(5, False, Offset(2))


def test_compressed_batches_are_replayed_whole() -> None:
    window = window_of(batch(0, (b"a", b"1"), (b"a", b"2"), codec=Codec.ZSTD))
    assert [offset for offset, _, _ in read(window)] == [0, 1]


def test_the_next_window_begins_behind_the_last_batch() -> None:
    result = read_window(window_of(batch(10, (b"a", b"1")), batch(11, (b"a", b"2"), (b"b", b"1"))), SEED)
    assert isinstance(result, Window)
    assert result.next_offset == 13


def file_of(*batches: bytes | bytearray) -> SimulatedFile:
    disk = SimulatedDisk()
    disk.make_directory("d")
    file = disk.open("d/log", create=True)
    file.append(b"".join(batches))
    return file


def read_all(file: SimulatedFile, *, window_bytes: int = 1 << 20) -> tuple[list[int], list[Lost]]:
    """(offsets of the records, skipped ranges), window by window as the runtime continues behind damage."""
    offsets: list[int] = []
    lost: list[Lost] = []
    window: FileSlice | None = FileSlice(file, 0, min(window_bytes, file.size))
    is_rest = False
    while window is not None:
        result = read_window(window, SEED, is_rest=is_rest)
        for step in result.steps():
            if isinstance(step, Lost):
                lost.append(step)
            else:
                offsets.append(record_of(step).offset)
        window, is_rest = result.rest, True
    return offsets, lost


def ten() -> list[bytearray]:
    return [batch(2 * at, (b"%d" % at, b"x" * 50), (b"b%d" % at, b"y")) for at in range(10)]


@pytest.mark.parametrize("at", [0, 4, 9])
@pytest.mark.parametrize("field", [8, 9, 16, 17, 22, 26, 60, 100])
def test_a_damaged_batch_costs_its_own_records_and_is_reported_by_its_byte(at: int, field: int) -> None:
    written = ten()
    written[at][field] ^= 1
    offsets, lost = read_all(file_of(*written))
    size = len(written[0])
    assert offsets == [offset for offset in range(20) if offset // 2 != at]
    assert [(one.path, one.start, one.limit) for one in lost] == [("d/log", size * at, size * (at + 1))]
    assert lost[0].position == size * at + field
    assert lost[0].offset == (2 * at if at else None)
    assert lost[0].next_offset == (2 * at + 2 if at < 9 else None)


def test_damage_over_several_batches_and_the_end_of_the_file_costs_what_it_covers() -> None:
    written = b"".join(ten())
    size = len(written) // 10
    holed = written[: 2 * size + 5] + bytes(3 * size) + written[5 * size + 5 : -7]
    offsets, lost = read_all(file_of(holed))
    assert offsets == [0, 1, 2, 3, *range(10, 18)]
    assert [(one.offset, one.next_offset) for one in lost] == [(4, 10), (18, None)]


def test_damage_at_the_end_of_a_window_does_not_hide_what_follows_in_the_file() -> None:
    written = ten()
    size = len(written[0])
    written[3][8] = 0x7F  # a length beyond the file
    large = batch(20, (b"large", b"z" * (9 << 20)))
    offsets, lost = read_all(file_of(*written, large, batch(21, (b"c", b"1"))), window_bytes=4 * size)
    assert offsets == [*range(6), *range(8, 20), 20, 21]
    assert len(lost) == 1


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.none() | st.binary(max_size=3)), min_size=1, max_size=4),
        max_size=8,
    )
)
def test_what_is_replayed_comes_to_the_same_as_everything(
    batches: list[list[tuple[int, bytes | None]]],
) -> None:
    expected: dict[bytes, bytes | None] = {}
    written, base = [], 0
    for records in batches:
        named = [(b"key-%d" % key, value) for key, value in records]
        expected.update(named)
        written.append(batch(base, *named))
        base += len(named)
    if not written:
        return
    replayed: dict[bytes | None, bytes | None] = {}
    for _, key, value in read(window_of(*written)):
        replayed[key] = value
    assert replayed == expected


def test_what_is_left_of_a_large_window_comes_in_pieces_none_of_which_holds_the_loop() -> None:
    written = [batch(number, (b"key-%d" % number, b"x" * 1000)) for number in range(500)]
    large = batch(500, (b"large", b"x" * 300_000))
    result = read_window(window_of(*written, large), SEED)
    assert isinstance(result, Window)
    assert [record_of(step).offset for step in result.steps()] == list(range(501))
    assert len(result.pieces) > 4
    assert max(map(len, result.pieces[:-1])) <= 128 << 10
