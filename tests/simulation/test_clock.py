"""Clocks of nodes: each has its own start, rate and wall time."""

import pytest

from sparklog_server.simulation.clock import NodeClock, VirtualClock
from sparklog_server.simulation.randomness import random_for


@pytest.mark.parametrize("rate_ppm", [-200, -1, 0, 1, 200])
def test_a_deadline_is_reached_at_its_world_time_and_not_a_microsecond_earlier(rate_ppm: int) -> None:
    world = VirtualClock()
    clock = NodeClock(world, start_us=77, rate_ppm=rate_ppm)
    for mono_us in (77, 78, 1_000, 2_000_000, 3_600_000_007):
        at_us = clock.world_us(mono_us)
        world.us = at_us
        assert clock.now.mono_us >= mono_us
        world.us = at_us - 1
        assert clock.now.mono_us < mono_us


def test_a_change_of_the_rate_counts_from_now_on() -> None:
    world = VirtualClock()
    clock = NodeClock(world, start_us=0)
    world.run(until_us=world.us + 1_000_000)
    clock.run_at(1_000)
    assert clock.now.mono_us == 1_000_000
    world.run(until_us=world.us + 1_000_000)
    assert clock.now.mono_us == 2_001_000


def test_a_step_moves_the_wall_clock_and_not_the_monotonic_one() -> None:
    clock = NodeClock(VirtualClock())
    before = clock.now
    clock.step_wall(-3_600_000)
    assert clock.now.mono_us == before.mono_us
    assert clock.now.wall_ms == before.wall_ms - 3_600_000


def test_a_sequence_depends_on_its_seed_and_its_name_alone() -> None:
    assert random_for(1, "disk 2").random() == random_for(1, "disk 2").random()
    assert random_for(1, "disk 2").random() != random_for(1, "disk 3").random()
    assert random_for(1, "disk 2").random() != random_for(2, "disk 2").random()
    assert random_for(3, "network 1 to 2").getrandbits(32) == 1227658806
