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
from sparklog_server.coordinator.loader import Decided, ReplayDamaged, Step, Undecided, read_window
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
    return [(record.offset, record.key, record.value) for record in map(record_of, result.steps())]


def record_of(step: Step) -> Record:
    assert not isinstance(step, Decided)
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
    assert result.next_offset == 13


def file_of(*batches: bytes | bytearray) -> SimulatedFile:
    disk = SimulatedDisk()
    disk.make_directory("d")
    file = disk.open("d/log", create=True)
    file.append(b"".join(batches))
    return file


def ten() -> list[bytearray]:
    return [batch(2 * at, (b"%d" % at, b"x" * 50), (b"b%d" % at, b"y")) for at in range(10)]


@pytest.mark.parametrize("at", [0, 4, 9])
@pytest.mark.parametrize("field", [8, 9, 16, 17, 22, 26, 60, 100])
def test_a_damaged_batch_is_refused_with_its_byte_and_the_repair_command(at: int, field: int) -> None:
    written = ten()
    written[at][field] ^= 1
    file = file_of(*written)
    with pytest.raises(ReplayDamaged) as refused:
        read_window(FileSlice(file, 0, file.size), SEED)
    assert f"d/log: at byte {len(written[0]) * at + field}: " in str(refused.value)
    assert "sparklog log repair " in refused.value.remedy


def test_a_batch_that_the_end_of_the_file_cuts_is_refused() -> None:
    file = file_of(b"".join(ten())[:-7])
    with pytest.raises(ReplayDamaged):
        read_window(FileSlice(file, 0, file.size), SEED)


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
    assert [record_of(step).offset for step in result.steps()] == list(range(501))
    assert len(result.pieces) > 4
    assert max(map(len, result.pieces[:-1])) <= 128 << 10
