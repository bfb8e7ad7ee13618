"""The demo without Spark: the writer and the broker are killed, and every flight is counted."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sparklog_server.demo import play as demo
from sparklog_server.demo import writer
from sparklog_server.demo.broker import Broker, DemoFailed
from sparklog_server.demo.flights import Total
from sparklog_server.demo.page import Story, write_page
from sparklog_server.demo.play import check
from sparklog_server.demo.spark import Batch, what_is_missing
from sparklog_server.demo.watch import Sample, behind_s, curve, lags, line, rates

SAMPLES = [Sample(0.5 * number, 6000 * number, 6000 * number, 4000 * number, True) for number in range(12)]


@pytest.mark.compat
def test_every_flight_is_counted_after_both_kills(tmp_path: Path) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    (tmp_path / "flights.html").write_text("an earlier run")
    (tmp_path / "mine").write_text("kept")
    demo.play(tmp_path, console, with_spark=False, limit=6_000, flights_per_s=4_000)
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.getvalue())
    assert "without Spark: --no-spark was given" in text
    assert "kill -9 of the writer" in text
    assert "kill -9 of the broker" in text
    assert "Python reader: 6,000 flights: none missing, none doubled" in text
    assert "mean departure delay by scheduled hour" in text
    assert (tmp_path / "mine").read_text() == "kept"
    assert "kill -9 broker" in (tmp_path / "flights.html").read_text()


def test_a_writer_that_fails_ends_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: object) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])

    monkeypatch.setattr(writer, "start", ended)
    with pytest.raises(DemoFailed, match="the writer failed: see"):
        demo.play(tmp_path, Console(file=io.StringIO()), with_spark=False, limit=100)


def test_a_broker_that_does_not_start_names_its_log(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no directory")
    with pytest.raises(DemoFailed, match=r"did not start: see .*broker\.log"):
        Broker(tmp_path)


@pytest.mark.parametrize("counted", [(299, 299), (301, 300), (300, 299)])
def test_a_missing_or_doubled_flight_is_a_failure(counted: tuple[int, int]) -> None:
    with pytest.raises(
        DemoFailed, match=f"table: {counted[0]} records of {counted[1]} flights, expected 300"
    ):
        check({"reader": (300, 300), "table": counted}, 300, {}, {})


def test_other_results_are_a_failure() -> None:
    with pytest.raises(DemoFailed, match="differ"):
        check({"reader": (1, 1)}, 1, {("JFK", 6): Total(1, 0, 5)}, {("JFK", 6): Total(1, 0, 6)})


def test_what_spark_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert what_is_missing() == "pyspark and pyarrow not installed; pip install 'sparklog[demo]'"


def test_samples_tell_rates_lags_and_how_far_behind_a_reader_is() -> None:
    assert rates(SAMPLES[:3], "written") == [12_000.0, 12_000.0]
    assert lags(SAMPLES[:3], "spark") == [0, 2000, 4000]
    assert (behind_s(SAMPLES, "python"), behind_s(SAMPLES, "spark")) == (0.0, 2.0)
    assert curve([0, 1, 7]) == "▁▂█"
    assert line(SAMPLES, has_spark=True).endswith("Python lag       0 ( 0.0 s)  Spark lag  22,000 ( 2.0 s)")


def test_the_page_names_no_other_address(tmp_path: Path) -> None:
    page = tmp_path / "flights.html"
    totals = {("EWR", 6): Total(100, 3, 970), ("JFK", 7): Total(200, 0, 4000)}
    write_page(Story(SAMPLES, [], [Batch(0, 300, 2.0)], {"Spark's table": (300, 300)}, totals), page)
    text = page.read_text()
    assert re.findall(r'(?:src|href)="', text) == []
    assert "<td>JFK John F. Kennedy</td><td>200</td><td>0</td><td>20.0</td>" in text
    assert "<td>0</td><td>300</td><td>2.00</td>" in text
