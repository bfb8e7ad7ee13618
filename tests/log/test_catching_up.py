"""The last records that a copy of a log lacks when it replaces the log: all of them are copied, or none."""

import pytest

from sparklog.model import Offset
from sparklog_server.disk.door import StorageError
from sparklog_server.log.directory.future_log import catch_up
from sparklog_server.simulation.disk import SimulatedDisk

LOG = "00000000000000000000.log"
ABORTED = "00000000000000000000.txnindex"


def disk_with(**files: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/old", "/new")
    for name, content in files.items():
        file = disk.open(f"/old/{LOG if name == 'log' else ABORTED}", create=True)
        file.append(content)
    return disk


def test_the_index_of_aborted_transactions_comes_along_where_there_is_one() -> None:
    disk = disk_with(log=b"records", aborted=b"entries")
    assert catch_up(disk, "/old", "/new", Offset(0), copied=0, end=7, has_aborted=True, bytes_max=100)
    assert (disk.read(f"/new/{LOG}"), disk.read(f"/new/{ABORTED}")) == (b"records", b"entries")
    disk = disk_with(log=b"records")
    assert catch_up(disk, "/old", "/new", Offset(0), copied=0, end=7, has_aborted=False, bytes_max=100)
    assert (disk.read(f"/new/{LOG}"), disk.read(f"/new/{ABORTED}")) == (b"records", None)


def test_an_index_of_aborted_transactions_that_cannot_be_opened_is_not_taken_for_none() -> None:
    disk = disk_with(log=b"records", aborted=b"entries")
    disk.fault = lambda call, path: "EIO" if (call, path) == ("open", f"/old/{ABORTED}") else None
    with pytest.raises(StorageError, match="EIO"):
        catch_up(disk, "/old", "/new", Offset(0), copied=0, end=7, has_aborted=True, bytes_max=100)
