"""NoOpRecords in an idle metadata log, by which the lag of the other nodes shows in time."""

from tests.controller.world import World


def test_a_node_alone_writes_none() -> None:
    world = World(idle_interval_ms=500)
    world.run("register 1 life=a")
    world.run("heartbeat 1")
    world.run("register-controller 1 life=a")
    assert world.controller.deadline() is None
    assert world.run("advance 5") == ["(nothing)"]


def test_with_a_second_node_one_is_due_when_nothing_was_written_for_the_interval() -> None:
    world = World(idle_interval_ms=500)
    for line in ("register 1 life=a", "heartbeat 1", "register 2 life=b", "heartbeat 2"):
        world.run(line)
    assert world.run("advance 499ms") == ["(nothing)"]
    world.run("create t partitions=1")
    assert world.run("advance 499ms") == ["(nothing)"]
    assert world.controller.deadline() == world.now.mono_us + 1000
    assert world.run("advance 1ms") == ["NoOpRecord"]
    assert world.run("advance 499ms") == ["(nothing)"]
    world.run("heartbeat 2")  # a heartbeat that changes nothing writes nothing
    assert world.run("advance 1ms") == ["NoOpRecord"]


def test_a_controller_counts_as_a_node_and_a_new_leadership_begins_anew() -> None:
    world = World(idle_interval_ms=500)
    world.run("register 1 life=a")
    world.run("register-controller 2 life=b")
    world.run("advance 300ms")
    world.run("lead")
    assert world.run("advance 499ms") == ["(nothing)"]
    assert world.run("advance 1ms") == ["NoOpRecord"]


def test_an_interval_of_zero_writes_none() -> None:
    world = World(idle_interval_ms=0)
    world.run("register 1 life=a")
    world.run("register-controller 2 life=b")
    assert world.run("advance 5") == ["(nothing)"]
