"""Shrinks a failing scenario: fewer faults, then shorter ones, as long as the run fails.

This relies on random numbers by name: a run without one of its faults draws the same numbers for everything
else.
"""

from collections.abc import Callable

from sparklog_server.simulation.scenario import Fault, Scenario
from sparklog_server.simulation.world import Violation

Fails = Callable[[Scenario], bool]


def shrink_violation(
    scenario: Scenario, violation: Violation, run: Callable[[Scenario], Violation | None]
) -> Scenario:
    """The smallest scenario whose `run` breaks the same rule."""

    def fails(candidate: Scenario) -> bool:
        found = run(candidate)
        return found is not None and found.rule == violation.rule

    return shrink(scenario, fails)


def shrink(scenario: Scenario, fails: Fails) -> Scenario:
    """A scenario that fails, from which no fault can be left out or halved in duration."""
    assert fails(scenario), "only a failing scenario can be shrunk"
    scenario = _fewer(scenario, fails)
    return _shorter(scenario, fails)


def _fewer(scenario: Scenario, fails: Fails) -> Scenario:
    """Delta debugging: leave out ever smaller parts of the list."""
    parts = 2
    while scenario.faults:
        faults = scenario.faults
        size = max(1, (len(faults) + parts - 1) // parts)
        for start in range(0, len(faults), size):
            candidate = scenario._replace(faults=faults[:start] + faults[start + size :])
            if fails(candidate):
                scenario = candidate
                parts = max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(faults))
    return scenario


def _shorter(scenario: Scenario, fails: Fails) -> Scenario:
    for index, fault in enumerate(scenario.faults):
        while fault.for_ms > 1:
            shorter = fault._replace(for_ms=fault.for_ms // 2)
            candidate = _with(scenario, index, shorter)
            if not fails(candidate):
                break
            scenario, fault = candidate, shorter
    return scenario


def _with(scenario: Scenario, index: int, fault: Fault) -> Scenario:
    return scenario._replace(faults=(*scenario.faults[:index], fault, *scenario.faults[index + 1 :]))
