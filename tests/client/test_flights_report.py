"""What the flights demo shows: curves on a terminal, lines elsewhere, and a page that needs no other file."""

import io
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from rich.console import Console

import sparklog
from examples.flights_report import Counts, PartitionOfLog, Story, write_chart, write_page
from examples.flights_watch import Sample, Watch, line, plot, rates
from examples.flights_writer import PARTITIONS, TOPIC, Killed

SAMPLES = [Sample(0.5 * number, 6000 * number, 4000 * number, 40.0) for number in range(12)]


def story(*, committed: int = 300) -> Story:
    batch = SimpleNamespace(batchId=0, numInputRows=300, batchDuration=2000, processedRowsPerSecond=150.0)
    hours = pd.DataFrame(
        {"origin": ["EWR", "JFK"], "hour": [6, 7], "mean_delay": [1.5, 2.5], "flights": [100, 200]}
    )
    counts = Counts(expected=300, committed=committed, distinct=300, aborted=7, in_table=300, hours=2)
    partitions = [PartitionOfLog(0, 310, 3 << 20)]
    return Story(SAMPLES, 100.0, Killed(102.0, 7, 0.3), [batch], partitions, counts, hours)


def test_the_page_has_the_log_the_stream_and_the_table_and_no_other_address(tmp_path: Path) -> None:
    chart, page = tmp_path / "flights.png", tmp_path / "flights.html"
    write_chart(story(), chart)
    write_page(story(), chart, page)
    text = page.read_text()
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert set(re.findall(r'(?:src|href)="([^:]+):', text)) == {"data"}
    assert "300 flights: none missing, none doubled" in text
    assert "7 records of aborted transactions" in text
    assert re.findall(r"<h2>(.*)</h2>", text) == ["The log", "The stream", "The table"]
    assert "<td>0</td><td>310</td><td>3.0 MiB</td>" in text


def test_the_page_does_not_claim_what_was_not_counted(tmp_path: Path) -> None:
    chart, page = tmp_path / "flights.png", tmp_path / "flights.html"
    chart.write_bytes(b"")
    write_page(story(committed=301), chart, page)
    assert "none missing" not in page.read_text()


def test_rates_are_those_between_neighbours() -> None:
    assert rates(SAMPLES[:3], "written") == [0.0, 12_000.0, 12_000.0]
    assert [sample.lag for sample in SAMPLES[:3]] == [0, 2000, 4000]


def test_a_curve_has_the_size_that_is_asked_for() -> None:
    drawn = plot([0.0, 1.0, 2.0], "lag", [1.0, 5.0, 2.0], "cyan", width=40)
    lines = [re.sub(r"\x1b\[[\d;]*m", "", one) for one in drawn.splitlines()]
    assert len(lines) == 9
    assert {len(one) for one in lines} == {40}


@pytest.mark.compat
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_watch_samples_a_broker(*, is_terminal: bool) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=is_terminal, width=120)
    with sparklog.embedded() as broker:
        with sparklog.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics({TOPIC: PARTITIONS})
        with sparklog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send_many(TOPIC, [b"flight"] * 100)
            producer.flush()
        with Watch(broker.bootstrap_servers, broker.pids, console, total=100) as watch:
            while len(watch.samples) < 3:
                time.sleep(0.01)
    newest = watch.samples[-1]
    assert (newest.written, newest.read, newest.lag) == (100, 0, 100)
    assert 10 < newest.memory_mb < 500
    assert "written     100" in line(watch.samples)
    assert ("lag of the stream" in shown.getvalue()) is is_terminal
