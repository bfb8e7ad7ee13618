"""The clock of a shard under test, which advances to the shard's deadlines."""

from collections.abc import Iterator
from typing import Final, Protocol

from sparklog.model import Instant, Micros, Millis
from sparklog_server.coordinator.shard import Decision, Shard

EPOCH_MS: Final = 1_700_000_000_000
BEGINNING: Final = Instant(Micros(0), Millis(EPOCH_MS))
_TICKS_MAX: Final = 100_000


class World(Protocol):
    """A shard and the time of its clock."""

    now: Instant

    @property
    def shard(self) -> Shard: ...


def ticks(world: World, elapsed_us: int) -> Iterator[Decision]:
    """Let time pass, tick by tick; the caller replays each decision before the next tick."""
    until_us = world.now.mono_us + elapsed_us
    for _ in range(_TICKS_MAX):
        deadline = world.shard.deadline()
        if deadline is None or deadline > until_us:
            world.now = _moved(world.now, until_us)
            return
        world.now = _moved(world.now, max(deadline, world.now.mono_us))
        yield from world.shard.tick(world.now)
    raise AssertionError(f"the shard asks for tick after tick at {world.now}")


def _moved(now: Instant, mono_us: int) -> Instant:
    return Instant(Micros(mono_us), Millis(now.wall_ms + mono_us // 1000 - now.mono_us // 1000))
