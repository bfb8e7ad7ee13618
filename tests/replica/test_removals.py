"""When files leave the disks: one step at a time."""

from itertools import count

from sparklog.model import Instant, Micros, Millis, Ticket
from sparklog_server.disk.door import StorageError
from sparklog_server.log.removal import Removal
from sparklog_server.replica.removals import Removals

SECOND_US = 1_000_000


class World:
    """Removals of so many steps, each of which takes so long."""

    def __init__(self) -> None:
        tickets = count(100)
        self.told: list[str] = []
        self.now_us = 0
        self.begun_us: list[int] = []
        self.removals = Removals(
            tickets=lambda: Ticket(next(tickets)), trace=lambda what, **_: self.told.append(what)
        )

    @property
    def now(self) -> Instant:
        return Instant(Micros(self.now_us), Millis(1_700_000_000_000))

    def removal(self, steps: int) -> Removal:
        return lambda: self.removal(steps - 1) if steps > 1 else None

    def run(self, until_us: int, step_us: int = 1000) -> None:
        """Do what is due, and go on to the next deadline."""
        while (deadline := self.removals.deadline()) is not None and max(deadline, self.now_us) < until_us:
            self.now_us = max(deadline, self.now_us)
            for run in self.removals.due_jobs(self.now):
                self.begun_us.append(self.now_us)
                self.now_us += step_us
                assert self.removals.deadline() is None
                assert self.removals.due_jobs(self.now) == []
                assert self.removals.finished(run.ticket, run.job(), self.now) == []


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
    (run,) = world.removals.due_jobs(world.now)
    assert (
        world.removals.finished(run.ticket, StorageError("p", "remove", "Input/output error"), world.now)
        == []
    )
    assert world.told == ["removal-failed"]
    world.run(SECOND_US)
    assert len(world.begun_us) == 1
    assert world.removals.deadline() is None


def test_once_stopped_it_begins_nothing_more() -> None:
    world = World()
    world.removals.add(world.removal(2))
    (run,) = world.removals.due_jobs(world.now)
    assert not world.removals.is_quiet
    world.removals.stop()
    assert world.removals.finished(run.ticket, run.job(), world.now) == []
    assert world.removals.is_quiet
    world.removals.add(world.removal(1))
    world.removals.add(world.removal(1), Micros(0))
    assert world.removals.deadline() is None
    assert world.removals.due_jobs(Instant(Micros(SECOND_US), Millis(0))) == []


def test_the_ticket_of_somebody_else_is_left_to_him() -> None:
    assert World().removals.finished(Ticket(7), None, Instant(Micros(0), Millis(0))) is None
