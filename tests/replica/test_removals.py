"""File removals: one step at a time."""

from sparklog.effects import Run
from sparklog.model import Instant, Micros, Millis
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.removal import Removal
from sparklog_server.replica.removals import Removals

SECOND_US = 1_000_000


class World:
    """Removals of this many steps with this duration each."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.now_us = 0
        self.begun_us: list[int] = []
        self.continuations = Continuations()
        self.removals = Removals(self.continuations, trace=lambda what, **_: self.told.append(what))

    @property
    def now(self) -> Instant:
        return Instant(Micros(self.now_us), Millis(1_700_000_000_000))

    def removal(self, steps: int) -> Removal:
        return lambda: self.removal(steps - 1) if steps > 1 else None

    def due(self) -> list[Run]:
        """The jobs that are begun now."""
        self.removals.begin_due(self.now)
        return [effect for effect in self.continuations.take_effects() if isinstance(effect, Run)]

    def run(self, until_us: int, step_us: int = 1000) -> None:
        """Run the due steps, and advance to the next deadline."""
        while (deadline := self.removals.deadline()) is not None and max(deadline, self.now_us) < until_us:
            self.now_us = max(deadline, self.now_us)
            for run in self.due():
                self.begun_us.append(self.now_us)
                self.now_us += step_us
                assert self.removals.deadline() is None
                assert self.due() == []
                self.continuations.finished(run.ticket, run.job(), self.now)
                assert self.continuations.take_effects() == []


def test_one_step_is_under_way_at_a_time_until_the_files_are_gone() -> None:
    world = World()
    world.removals.add(world.removal(3), Micros(5_000))
    world.run(SECOND_US)
    assert world.begun_us == [5_000, 6_000, 7_000]


def test_who_was_due_first_goes_first_with_all_its_steps() -> None:
    world = World()
    done: list[str] = []
    for name, due_us in (("later", 2_000), ("sooner", 1_000)):

        def step(name: str = name) -> Removal:
            done.append(name)
            return lambda: done.append(name)

        world.removals.add(step, Micros(due_us))
    world.run(SECOND_US)
    assert done == ["sooner", "sooner", "later", "later"]


def test_a_step_that_fails_is_told_and_others_go_on() -> None:
    world = World()
    world.removals.add(world.removal(2))
    world.removals.add(world.removal(1))
    (run,) = world.due()
    world.continuations.finished(run.ticket, StorageError("p", "remove", "Input/output error"), world.now)
    assert world.continuations.take_effects() == []
    assert world.told == ["removal-failed"]
    world.run(SECOND_US)
    assert len(world.begun_us) == 1
    assert world.removals.deadline() is None


def test_once_stopped_it_begins_nothing_more() -> None:
    world = World()
    world.removals.add(world.removal(2))
    (run,) = world.due()
    assert not world.removals.is_quiet
    world.removals.stop()
    world.continuations.finished(run.ticket, run.job(), world.now)
    assert world.continuations.take_effects() == []
    assert world.removals.is_quiet
    world.removals.add(world.removal(1))
    world.removals.add(world.removal(1), Micros(0))
    assert world.removals.deadline() is None
    world.now_us = SECOND_US
    assert world.due() == []
