"""The aborted transactions of a segment: Kafka's bytes, the look-ups of readers, and truncations."""

from struct import pack

import pytest

from sparklog_server.log.segment.txn_index import AbortedTxn, TxnIndex, TxnIndexCorrupt
from sparklog_server.simulation.disk import SimulatedDisk

PATH = "data/00000000000000000100.txnindex"
FIRST = AbortedTxn(producer_id=7, first_offset=90, last_offset=110, last_stable_offset=105)
SECOND = AbortedTxn(producer_id=8, first_offset=105, last_offset=130, last_stable_offset=131)


def disk_with_directory() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("data")
    return disk


def filled(disk: SimulatedDisk) -> TxnIndex:
    index = TxnIndex.load(disk, PATH, 100)
    disk.sync([index.append([FIRST])])
    disk.sync([index.append([SECOND])])
    return index


def test_a_segment_without_aborts_has_no_file() -> None:
    disk = disk_with_directory()
    assert len(TxnIndex.load(disk, PATH, 100)) == 0
    assert disk.list("data") == []


def test_the_bytes_are_kafkas() -> None:
    disk = disk_with_directory()
    filled(disk)
    assert disk.read(PATH) == pack(">hqqqq", 0, *FIRST) + pack(">hqqqq", 0, *SECOND)
    assert TxnIndex.load(disk, PATH, 100).entries == (FIRST, SECOND)


def test_a_reader_learns_of_the_transactions_that_touch_its_offsets_and_whether_to_look_further() -> None:
    index = filled(disk_with_directory())
    assert index.aborted_in(100, 105) == ([FIRST], True)
    assert index.aborted_in(100, 120) == ([FIRST, SECOND], True)
    assert index.aborted_in(111, 200) == ([SECOND], False)
    assert index.aborted_in(131, 200) == ([], False)


def test_a_truncation_drops_the_transactions_whose_marker_is_cut_off() -> None:
    disk = disk_with_directory()
    index = filled(disk)
    index.truncate_to(130)
    assert index.entries == (FIRST,)
    assert TxnIndex.load(disk, PATH, 100).entries == (FIRST,)
    index.append([SECOND])
    assert TxnIndex.load(disk, PATH, 100).entries == (FIRST, SECOND)
    index.truncate_to(100)
    assert disk.read(PATH) == b""


@pytest.mark.parametrize(
    "content",
    [
        pack(">hqqqq", 0, *FIRST)[:-1],
        pack(">hqqqq", 1, *FIRST),
        pack(">hqqqq", 0, *SECOND) + pack(">hqqqq", 0, *FIRST),
        pack(">hqqqq", 0, 7, 90, 99, 99),
        pack(">hqqqq", 0, 7, 120, 110, 99),
    ],
)
def test_a_file_that_cannot_be_is_refused(content: bytes) -> None:
    disk = disk_with_directory()
    disk.write(PATH, content)
    with pytest.raises(TxnIndexCorrupt):
        TxnIndex.load(disk, PATH, 100)
