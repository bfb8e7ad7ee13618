"""The table from ticket to continuation."""

from collections.abc import Callable

import pytest

from sparklog.effects import Run, Steps, Sync
from sparklog.model import Instant, Micros, Millis
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError

NOW = Instant(Micros(5), Millis(7))


def noted(told: list[object]) -> Callable[[object, Instant], None]:
    return lambda result, now: told.append((result, now))


def test_a_result_reaches_the_continuation_of_its_ticket_alone() -> None:
    continuations = Continuations()
    first: list[object] = []
    second: list[object] = []
    continuations.run(lambda: 1, noted(first))
    continuations.sync([], "/data", noted(second))
    run, sync = continuations.take_effects()
    assert isinstance(run, Run)
    assert isinstance(sync, Sync)
    continuations.finished(sync.ticket, None, NOW)
    assert (first, second) == ([], [(None, NOW)])
    continuations.finished(run.ticket, run.work(), NOW)
    assert (first, second) == ([(1, NOW)], [(None, NOW)])


def test_a_job_in_steps_is_marked_as_such() -> None:
    def job() -> Steps[int]:
        yield
        return 3

    continuations = Continuations()
    told: list[object] = []
    continuations.run_in_steps(job, noted(told), is_background=True)
    (run,) = continuations.take_effects()
    assert isinstance(run, Run)
    assert (run.in_steps, run.is_background) == (True, True)
    continuations.finished(run.ticket, run.work(), NOW)
    assert told == [(3, NOW)]


def test_what_is_requested_in_a_continuation_follows_in_order() -> None:
    continuations = Continuations()

    def again(result: object, now: Instant) -> None:
        continuations.sync([], "/a", noted([]))

    scope = continuations.followed_by(lambda _: continuations.sync([], "/b", noted([])))
    scope.run(lambda: None, again)
    (run,) = continuations.take_effects()
    assert isinstance(run, Run)
    continuations.finished(run.ticket, None, NOW)
    assert [effect.log_dir for effect in continuations.take_effects() if isinstance(effect, Sync)] == [
        "/a",
        "/b",
    ]


def test_an_error_of_the_disk_is_a_result() -> None:
    continuations = Continuations()
    told: list[object] = []
    continuations.run(lambda: 1, noted(told))
    (run,) = continuations.take_effects()
    assert isinstance(run, Run)
    error = StorageError("p", "open", "Input/output error")
    continuations.finished(run.ticket, error, NOW)
    assert told == [(error, NOW)]


@pytest.mark.parametrize("error", [ValueError("a defect"), MemoryError()])
def test_another_exception_of_a_job_is_raised(error: Exception) -> None:
    continuations = Continuations()
    continuations.run(lambda: 1, noted([]))
    (run,) = continuations.take_effects()
    assert isinstance(run, Run)
    with pytest.raises(type(error)):
        continuations.finished(run.ticket, error, NOW)


def test_a_job_that_may_run_out_of_memory_is_told_so() -> None:
    continuations = Continuations()
    told: list[object] = []
    continuations.run(lambda: 1, noted(told), out_of_memory=told.append)
    (run,) = continuations.take_effects()
    assert isinstance(run, Run)
    continuations.finished(run.ticket, MemoryError(), NOW)
    assert told == [NOW]
