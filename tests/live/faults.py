"""Faults of a trio. Each one takes place, lasts for its own time, ends, and names what it hit."""

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import trio
from tests.live.load import PLAIN
from tests.live.networks import Network

DOWN_S = (0.0, 4.0)
SUSPENDED_S = (0.5, 15.0)
CUT_S = (0.5, 15.0)
LOST_SHARE = (0.01, 0.2)
DELAY_MS = (5.0, 150.0)
RESETS, RESET_APART_S = 5, (0.05, 1.0)
FULL_S = (1.0, 6.0)
STALLED_S = (0.5, 8.0)
SHIM_SOURCE = Path(__file__).with_name("slow_sync.c")


@dataclass
class Attacked:
    """The cluster, its networks, and where its files are. The directory of node 1 is small; node 2 stalls
    its syncs while `stall` exists.
    """

    cluster: trio.Trio
    networks: Mapping[int, Network]
    small: Path
    stall: Path
    draw: random.Random

    def lasts(self, between_s: tuple[float, float]) -> None:
        time.sleep(self.draw.uniform(*between_s))

    def leader(self) -> int:
        """The leader of the first partition, or a node at random."""
        found = [
            node.described(PLAIN).partitions[0].leader_id
            for node in self.cluster.nodes.values()
            if node.is_running
        ]
        return found[0] if found and found[0] in self.cluster.nodes else self.any()

    def any(self) -> int:
        return self.draw.choice(list(self.cluster.nodes))


def kill_leader(attacked: Attacked) -> str:
    return _killed(attacked, attacked.leader())


def kill_follower(attacked: Attacked) -> str:
    return _killed(attacked, attacked.leader() % trio.COUNT + 1)


def kill_controller(attacked: Attacked) -> str:
    return _killed(attacked, attacked.cluster.controller())


def kill_all(attacked: Attacked) -> str:
    for node in attacked.cluster.nodes.values():
        node.kill()
    for node in attacked.cluster.nodes.values():
        node.start()
    return "all"


def _killed(attacked: Attacked, number: int) -> str:
    node = attacked.cluster.nodes[number]
    node.kill()
    attacked.lasts(DOWN_S)
    node.start()
    return str(number)


def suspend(attacked: Attacked) -> str:
    number = attacked.any()
    node = attacked.cluster.nodes[number]
    node.suspend()
    attacked.lasts(SUSPENDED_S)
    node.resume()
    return str(number)


def cut_one_way(attacked: Attacked) -> str:
    number = attacked.any()
    other = number % trio.COUNT + 1
    with attacked.networks[number].mute(attacked.networks[other].host):
        attacked.lasts(CUT_S)
    return f"{number} to {other}"


def narrow(attacked: Attacked) -> str:
    number = attacked.any()
    with attacked.networks[number].narrow():
        attacked.lasts(CUT_S)
    return str(number)


def lose_packets(attacked: Attacked) -> str:
    number, share = attacked.any(), attacked.draw.uniform(*LOST_SHARE)
    with attacked.networks[number].bad(loss=share):
        attacked.lasts(CUT_S)
    return f"{number} share={share:.2f}"


def delay_packets(attacked: Attacked) -> str:
    """Delay packets, so that some overtake others."""
    number, delay_ms = attacked.any(), attacked.draw.uniform(*DELAY_MS)
    jitter_ms = attacked.draw.uniform(0, delay_ms)
    with attacked.networks[number].bad(delay_ms=delay_ms, jitter_ms=jitter_ms):
        attacked.lasts(CUT_S)
    return f"{number} delay_ms={delay_ms:.0f}"


def reset_connections(attacked: Attacked) -> str:
    """Reset the connections of one node several times in a row."""
    number = attacked.any()
    for _ in range(RESETS):
        attacked.networks[number].reset()
        attacked.lasts(RESET_APART_S)
    return str(number)


def fill_disk(attacked: Attacked) -> str:
    """Take the rest of the small file system; a node that stopped for it is started again."""
    ballast = attacked.small / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:  # until nothing is left
        while file.write(bytes(4096)):
            pass
    attacked.lasts(FULL_S)
    ballast.unlink()
    return "1"


def stall_sync(attacked: Attacked) -> str:
    attacked.stall.touch()
    attacked.lasts(STALLED_S)
    attacked.stall.unlink()
    return "2"


def restart_all(attacked: Attacked) -> str:
    """Restart one node after the other, in order."""
    for node in attacked.cluster.nodes.values():
        node.stop()
        attacked.cluster.restore(PLAIN)
    return "each"


FAULTS: dict[str, Callable[[Attacked], str]] = {
    fault.__name__: fault
    for fault in (
        *(kill_leader, kill_follower, kill_controller, kill_all, suspend, cut_one_way, narrow),
        *(lose_packets, delay_packets, reset_connections, fill_disk, stall_sync, restart_all),
    )
}


def shim(directory: Path) -> Path:
    """Compile the library that stalls syncs."""
    library = directory / "slow_sync.so"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(SHIM_SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library
