"""The latency of one honest client while each test of `tests/hostile` sends its bad input.

Each test is repeated for a while; the honest client produces and fetches 1 KB meanwhile, 200 times a second
each, on a plain listener of the same broker. `nothing` is the time before. Client, attacker and
broker share the machine.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import pytest

from benchmarks import harness
from benchmarks.attack import honest
from sparklog import Admin

P99_MS_MAX: Final = 10
TOPIC: Final = "honest"
QUIET_S: Final = 5.0


class Spans:
    """A plugin of pytest that repeats each input; `of` has the times of each test function."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.of: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.answers: list[honest.Answered] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        """Repeat the input."""
        fixtures = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        broker = pyfuncitem.funcargs["started"]
        began_s = time.monotonic()
        while not (ended_s := time.monotonic()) - began_s >= self._seconds:
            pyfuncitem.obj(**fixtures)
            broker.log()  # a full pipe would stop the broker
        self.of[pyfuncitem.originalname].append((began_s, ended_s))
        return True

    def latencies_ms(self, name: str) -> list[float]:
        """Of the requests that were sent while this test ran."""
        spans = self.of[name]
        return [
            one.latency_ms
            for one in self.answers
            if any(began_s <= one.sent_s <= ended_s for began_s, ended_s in spans)
        ]


@pytest.fixture(scope="session", autouse=True)
def honest_client(request: pytest.FixtureRequest, started: Any) -> Iterator[None]:
    """The honest client of the broker that all tests share."""
    from tests.hostile.conftest import Door

    (spans,) = (one for one in request.config.pluginmanager.get_plugins() if isinstance(one, Spans))
    host, port = started.address(Door.PLAIN)
    with Admin(bootstrap_servers=f"{host}:{port}") as admin:
        admin.create_topics({TOPIC: 1})
    with honest.running(host, port, TOPIC) as client:
        began_s = time.monotonic()
        time.sleep(QUIET_S)
        spans.of["nothing"].append((began_s, time.monotonic()))
        yield
        spans.answers = client.stop()


def main() -> None:
    options = harness.options(__doc__, repeats=1, more=_arguments)
    spans = Spans(options.seconds)
    words = ["tests/hostile", "-q", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main(
        [*words, *(["-k", options.tests] if options.tests else [])], plugins=[spans, sys.modules[__name__]]
    )
    figures = harness.Figures("hostile")
    for name in spans.of:
        latencies_ms = spans.latencies_ms(name)
        if not latencies_ms:
            continue
        what = name.removeprefix("test_").replace("_", " ")
        for percent, bound in ((50, ""), (99, f"<= {P99_MS_MAX}")):
            figures.add(
                f"{what}: p{percent}",
                "ms",
                "sparklog",
                harness.percentile(latencies_ms, percent),
                bound=bound,
            )
        figures.add(f"{what}: longest", "ms", "sparklog", max(latencies_ms))
    figures.report(options)
    raise SystemExit(code)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a test repeats its input")
    parser.add_argument("--tests", help="the tests, as pytest's -k takes them")


if __name__ == "__main__":
    main()
