"""A broker in virtual time on a disk in memory, and a client's connection to it."""

from collections.abc import Iterator

import pytest

from tests.broker.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """One node, started and ready."""
    world = World(seed=1)
    world.node.start()
    world.settle()
    assert world.node.running.is_ready
    yield world
    assert world.node.halted is None
