"""The file that tells a process that was killed from a machine that lost power, in each data directory:
`{"version":0,"bootId":…,"brokerEpoch":…}`.

A process that is killed leaves every byte that it wrote in the page cache. A broker writes the boot id of the
machine and its broker epoch when it is registered, before it acknowledges a record. If the next process finds
the same boot id, the directory still contains every record that was acknowledged under that broker epoch. The
file need not be durable: after a loss of power the boot id differs.

See docs/decisions/0018-a-killed-process-loses-nothing.md.
"""

import contextlib

import msgspec

from sparklog_server.disk.door import Disk, StorageError

FILE_NAME = ".sparklog-boot"


class _Boot(msgspec.Struct, rename="camel", tag_field="version", tag=0):
    boot_id: str
    broker_epoch: int


def write_boot(disk: Disk, directory: str, broker_epoch: int) -> None:
    """Write the file where the boot id is known. A disk that fails leaves a file that proves nothing."""
    if not disk.boot_id:
        return
    with contextlib.suppress(StorageError):
        file = disk.open(f"{directory}/{FILE_NAME}", create=True)
        file.truncate(0)
        file.append(msgspec.json.encode(_Boot(disk.boot_id, broker_epoch)))
        file.close()


def forget_boot(disk: Disk, directory: str) -> None:
    """Empty the file: the disk failed, and the kernel may have dropped written pages."""
    with contextlib.suppress(StorageError):
        file = disk.open(f"{directory}/{FILE_NAME}")
        file.truncate(0)
        file.close()


def epoch_of_boot(disk: Disk, directory: str) -> int:
    """The broker epoch of the process before if the machine has kept the page cache since, else -1. Raises
    StorageError.
    """
    content = disk.read(f"{directory}/{FILE_NAME}")
    try:
        boot = msgspec.json.decode(content or b"", type=_Boot)
    except ValueError:
        return -1
    return boot.broker_epoch if disk.boot_id and boot.boot_id == disk.boot_id else -1
