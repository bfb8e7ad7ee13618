"""The power is cut at every call that changes the disk, and the disk comes back with any part of the unsynced
bytes.

After each cut: no durable record is missing, none is there twice, offsets are dense, the indexes agree with a
full scan, and producer state equals a replay of all batches. Recovery is interrupted too, and the records
written after it are cut again.
"""

from copy import deepcopy
from functools import cache
from random import Random

import pytest

from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.history import Fuse, History, PowerCut, reopened

SAMPLED_SEEDS = range(2)
ALL_SEEDS = range(100, 130)
PIECES = 4


@cache
def calls_of(seed: int) -> int:
    """The number of calls that change the disk in the uncut history of this seed."""
    disk = SimulatedDisk()
    disk.fault = fuse = Fuse()
    History(disk, seed).live()
    return fuse.count


def cut_short(seed: int, at: int) -> History:
    """The history up to one call, at which the process dies."""
    disk = SimulatedDisk()
    history = History(disk, seed)
    disk.fault = Fuse(at)
    with pytest.raises(PowerCut):
        history.live()
    disk.fault = None
    history.die()
    return history


def go_on(history: History, seed: int, at: int, fate: int) -> None:
    """Restore the disk after the crash; `fate` decides which unsynced bytes it keeps, and the next
    operations.
    """
    disk = history.disk
    history.random = random = Random(seed * 1_000_003 + at * 1_009 + fate)
    disk.crash(random)
    if fate % 2:
        _cut_recovery(disk, random)
    history.check()
    if random.random() < 0.5:
        history.live_on()
        disk.crash(random)
        history.check()
    history.live_on()
    history.stop()


def _cut_recovery(disk: SimulatedDisk, random: Random) -> None:
    """Cut the power once more while the directory is being opened."""
    disk.fault = Fuse(random.randrange(12))
    try:
        reopened(disk)
    except PowerCut:
        pass
    finally:
        disk.fault = None
    disk.crash(random)


@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("seed", SAMPLED_SEEDS)
def test_a_history_cut_at_any_call_keeps_its_promises(seed: int, piece: int) -> None:
    for at in range(piece, calls_of(seed), PIECES):
        go_on(cut_short(seed, at), seed, at, fate=at % 7)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("seed", ALL_SEEDS)
def test_every_history_cut_at_every_call_keeps_its_promises_whatever_the_disk_kept(
    seed: int, piece: int
) -> None:
    for at in range(piece, calls_of(seed), PIECES):
        history = cut_short(seed, at)
        for fate in range(6):
            go_on(deepcopy(history), seed, at, fate)
