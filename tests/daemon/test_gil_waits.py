"""The wait for the GIL is sampled by the loop itself, once per interval."""

from collections.abc import Callable

from sparklog_server.daemon.http_metrics import SAMPLED_EVERY_S, GilWaits


def test_each_sample_is_one_duration_and_asks_for_the_next() -> None:
    due: list[tuple[float, Callable[[], None]]] = []
    waits = GilWaits(0, lambda delay_s, sample: due.append((delay_s, sample)))
    waits.sample()
    for number in range(1, 6):
        assert sum(waits.times.buckets) == number
        ((delay_s, sample),) = due
        assert delay_s == SAMPLED_EVERY_S
        due.clear()
        sample()
