"""A replica moves between the log directories of its broker, and clients do not notice."""

import pytest

from tests.broker.moves import elsewhere, fill, home, left_over, move, read, send, started


@pytest.mark.parametrize("flush", ["auto", "never"])
@pytest.mark.parametrize("count", [0, 1, 25])
def test_a_log_is_whole_in_its_new_directory_and_nothing_is_left_of_the_old(count: int, flush: str) -> None:
    world, client = started(**{"sparklog.ack.flush": flush})
    values = fill(world, client, count)
    target = elsewhere(world)
    assert move(world, client, target) == [0]
    world.settle(30_000)
    assert home(world) == [target]
    assert left_over(world) == []
    assert read(world, client) == values
    values += fill(world, client, 12, prefix=b"w")
    assert read(world, client) == values
    for restart in (world.node.stop, world.node.kill):
        restart()
        world.node.start()
        world.settle()
        client = world.node.connect()
        assert home(world) == [target]
        assert read(world, client) == values
        if flush == "auto":
            assert send(world, client, b"more") == 0
            values.append(b"more")
