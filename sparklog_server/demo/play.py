"""The acts of the demo, in their order."""

import logging
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sparklog import Admin
from sparklog_server.demo import writer
from sparklog_server.demo.broker import LOG as BROKER_LOG
from sparklog_server.demo.broker import Broker, DemoFailed
from sparklog_server.demo.flights import AIRPORTS, COUNT, PARTITIONS, TOPIC, Totals, by_airport
from sparklog_server.demo.page import Kill, Story, write_page
from sparklog_server.demo.reader import Reader
from sparklog_server.demo.spark import LOG as SPARK_LOG
from sparklog_server.demo.spark import Batch, Event, Ready, Spark, what_is_missing
from sparklog_server.demo.watch import Watch, behind_s

FLIGHTS_PER_S: Final = 7_000
"""The year passes in 48 s: longer than Spark takes to start and to catch up."""
PAGE: Final = "flights.html"
CLIENTS_LOG: Final = "clients.log"
OUTPUTS: Final = (
    *("data", "table", "checkpoint", "warehouse", PAGE),
    *(BROKER_LOG, writer.LOG, CLIENTS_LOG, SPARK_LOG),
)
"""All that the demo writes into its directory; a run removes what an earlier one left."""
WRITER_KILLED_AT, BROKER_KILLED_AT = 0.15, 0.75
"""The fractions of the flights that the log has then. The broker is killed sooner if Spark has caught up."""
CAUGHT_UP_S: Final = 1.0
SHOWN_CAUGHT_UP_S: Final = 4.0
WAIT_S_MAX: Final = 300.0
"""For each act: a small or busy machine may take long."""
ASKED_EVERY_S: Final = 0.02


class Play:
    """One run of the demo."""

    def __init__(self, output: Path, console: Console, *, limit: int, flights_per_s: float) -> None:
        self._output = output
        self._console = console
        self._limit = limit
        self._flights_per_s = flights_per_s
        self._writer: subprocess.Popen[bytes] | None = None
        self._spark: Spark | None = None
        self._has_caught_up = threading.Event()
        self._caught_up_s = 0.0
        self._is_writer_wanted = False
        self._kills: list[Kill] = []

    def run(self, *, with_spark: bool) -> None:
        """Raises DemoFailed where a flight is missing or doubled."""
        began_s = time.monotonic()
        missing = what_is_missing() if with_spark else "--no-spark was given"
        with ExitStack() as until_counted:
            broker = Broker(self._output)
            until_counted.callback(broker.close)
            self._say(
                f"the broker is ready at {broker.address}, {time.monotonic() - began_s:.1f} s after the start"
            )
            admin = until_counted.enter_context(Admin(bootstrap_servers=broker.address))
            admin.create_topics({TOPIC: PARTITIONS, writer.PROGRESS: 1})
            until_counted.callback(self._close)
            self._start_writer(broker)
            reader = until_counted.enter_context(Reader(broker.address))
            self._say(f"a writer sends {self._flights_per_s:,.0f} flights/s, each day in a transaction")
            with Watch(
                broker.address, reader, self._console, total=self._limit, has_spark=not missing
            ) as watch:
                self._wait("the first record", lambda: bool(reader.records))
                after_s = time.monotonic() - began_s
                self._say(f"the Python reader has the first flights, {after_s:.1f} s after the start")
                if missing:
                    self._say(f"[yellow]without Spark:[/] {escape(missing)}")
                else:
                    self._spark = Spark(broker.address, self._output, self._told)
                    self._say("Spark starts")
                self._kill_writer(broker, admin, watch)
                self._kill_broker(broker, watch)
                self._wait("the writer's last flight", self._has_written)
                self._say("the writer has written the last flight")
                end = writer.last_stable(admin)
                self._wait("the Python reader", lambda: reader.position >= end)
                if self._spark is not None:
                    self._wait("Spark", lambda: watch.samples[-1].spark >= end)
                table = self._spark.finish() if self._spark is not None else None
            if self._spark is not None and table is None:
                raise DemoFailed(f"Spark failed: see {self._output / SPARK_LOG}")
        totals = reader.totals
        counted = {"Python reader": (reader.records, len(reader.ids))}
        if table is not None:
            counted["Spark's table"] = (table.rows, table.distinct)
            totals = table.totals
        check(counted, self._limit, totals, reader.totals)
        lines = [f"{name}: {rows:,} flights" for name, (rows, _) in counted.items()]
        self._say(f"{'; '.join(lines)}: [green]none missing, none doubled")
        self._show(totals)
        batches = self._spark.batches if self._spark is not None else []
        story = Story(watch.samples, self._kills, batches, counted, totals)
        write_page(story, self._output / PAGE)

    def _told(self, event: Event) -> None:
        """In the thread of Spark's events."""
        if isinstance(event, Ready):
            self._say(f"Spark {event.version} is ready, and reads what was written meanwhile")
        elif isinstance(event, Batch) and not self._has_caught_up.is_set():
            self._say(f"  micro-batch {event.number}: {event.flights:,} flights in {event.seconds:.1f} s")

    def _kill_writer(self, broker: Broker, admin: Admin, watch: Watch) -> None:
        self._wait("flights", lambda: _written(watch) >= self._limit * WRITER_KILLED_AT)
        assert self._writer is not None
        running, left_open = self._writer, 0
        while not left_open:
            if self._has_written():
                raise DemoFailed("the writer ended before it could be killed")
            left_open = writer.stopped_in_transaction(running, admin)
        self._is_writer_wanted = False
        running.kill()
        running.wait()
        at_s, before = time.monotonic(), writer.last_stable(admin)
        self._say(
            f"[bold red]kill -9[/] of the writer, with {left_open:,} flights in an open transaction; "
            "another one starts"
        )
        self._start_writer(broker)
        # Each partition of the aborted transaction gets a marker, which is no flight.
        end = before + left_open + PARTITIONS
        self._wait("the next writer", lambda: _written(watch) > end)
        back_s = time.monotonic() - at_s
        self._kills.append(Kill("writer", at_s - watch.began_s, {"writer": back_s}))
        self._say(
            f"the writer continued after {back_s:.1f} s; readers see no flight of the aborted transaction"
        )

    def _kill_broker(self, broker: Broker, watch: Watch) -> None:
        self._wait("Spark", lambda: self._is_time_for_broker(watch))
        before = watch.samples[-1]
        broker.kill()
        at_s = time.monotonic()
        self._say("[bold red]kill -9[/] of the broker")
        ready_s = broker.start_again()
        self._say(f"the broker started on the same directory, and was ready after {ready_s:.1f} s")
        back_s: dict[str, float] = {}
        names = {"writer": "written", "Python reader": "python"}
        if self._has_caught_up.is_set():
            names["Spark"] = "spark"

        def are_back() -> bool:
            newest = watch.samples[-1]
            for name, field in names.items():
                if newest.at_s + watch.began_s > at_s + ready_s and getattr(newest, field) > getattr(
                    before, field
                ):
                    back_s.setdefault(name, time.monotonic() - at_s)
            return len(back_s) == len(names)

        self._wait("the clients", are_back)
        self._kills.append(Kill("broker", at_s - watch.began_s, back_s))
        told = ", ".join(f"{name} after {seconds:.1f} s" for name, seconds in back_s.items())
        self._say(f"clients continued by themselves: {told}")

    def _is_time_for_broker(self, watch: Watch) -> bool:
        """Whether Spark was shown for a while beside the live writer, or it takes too long."""
        samples = watch.samples
        batches = self._spark.batches if self._spark is not None else []
        is_new = not self._has_caught_up.is_set()
        if is_new and batches and behind_s(samples, "spark") < CAUGHT_UP_S:
            self._has_caught_up.set()
            self._caught_up_s = samples[-1].at_s
            self._say(f"Spark has caught up with the writer after {len(batches)} micro-batches")
        if self._has_caught_up.is_set() and samples[-1].at_s - self._caught_up_s >= SHOWN_CAUGHT_UP_S:
            return True
        return _written(watch) >= self._limit * BROKER_KILLED_AT

    def _start_writer(self, broker: Broker) -> None:
        self._writer = writer.start(broker.address, self._limit, self._flights_per_s, self._output)
        self._is_writer_wanted = True

    def _has_written(self) -> bool:
        assert self._writer is not None
        return self._writer.poll() == 0

    def _wait(self, what: str, is_there: Callable[[], bool]) -> None:
        until_s = time.monotonic() + WAIT_S_MAX
        while not is_there():
            if self._writer is not None and self._is_writer_wanted and self._writer.poll() not in (None, 0):
                raise DemoFailed(f"the writer failed: see {self._output / writer.LOG}")
            if self._spark is not None and self._spark.has_ended:
                raise DemoFailed(f"Spark failed: see {self._output / SPARK_LOG}")
            if time.monotonic() > until_s:
                raise DemoFailed(f"waited {WAIT_S_MAX:.0f} s for {what}")
            time.sleep(ASKED_EVERY_S)

    def _close(self) -> None:
        if self._spark is not None:
            self._spark.close()
        if self._writer is not None:
            self._writer.kill()
            self._writer.wait()

    def _show(self, totals: Totals) -> None:
        table = Table("airport", "flights", "cancelled", "mean delay", "worst hour")
        table.title = "Departures from New York, 2013"
        for column in table.columns[1:]:
            column.justify = "right"
        for airport, total in by_airport(totals).items():
            hours = {hour: one.mean_delay for (at, hour), one in totals.items() if at == airport}
            worst = max(hours, key=hours.__getitem__, default=0)
            table.add_row(
                f"{airport} {AIRPORTS[airport]}",
                f"{total.flights:,}",
                f"{total.cancelled:,}",
                f"{total.mean_delay:.1f} min",
                f"{worst}:00, {hours.get(worst, 0.0):.0f} min",
            )
        self._console.print(table)

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]•[/] {text}", highlight=False, soft_wrap=True)


def play(
    output: Path,
    console: Console,
    *,
    with_spark: bool = True,
    limit: int = COUNT,
    flights_per_s: float = FLIGHTS_PER_S,
) -> None:
    """Run the demo with the first `limit` flights; raises DemoFailed."""
    began_s = time.monotonic()
    output.mkdir(parents=True, exist_ok=True)
    for name in OUTPUTS:
        path = output / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    console.rule("[bold]sparklog: a year of flights through a broker, Python and Spark")
    with _log_of_clients(output / CLIENTS_LOG):
        Play(output, console, limit=limit, flights_per_s=flights_per_s).run(with_spark=with_spark)
    page = (output / PAGE).resolve()
    console.print(f"[dim]•[/] [bold]done in {time.monotonic() - began_s:.0f} s[/]", highlight=False)
    for line in (
        f"{page.as_uri()}   the curves of this run",
        f"{Path(sys.argv[0]).name} start --data-dir {output / 'data'}   the same broker, with all records",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)


@contextmanager
def _log_of_clients(path: Path) -> Iterator[None]:
    """Have the clients of this process write to a file: on the screen they would be in the way."""
    logger, handler = logging.getLogger("sparklog.client"), logging.FileHandler(path)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.removeHandler(handler)
        handler.close()


def check(counted: dict[str, tuple[int, int]], expected: int, totals: Totals, seen: Totals) -> None:
    """Raises DemoFailed if a count of records or of distinct flights is not `expected`, or if Spark's result
    is not that of the Python reader.
    """
    for name, (rows, distinct) in counted.items():
        if (rows, distinct) != (expected, expected):
            raise DemoFailed(f"{name}: {rows} records of {distinct} flights, expected {expected}")
    if totals != seen:
        raise DemoFailed("the results of Spark and of the Python reader differ")


def _written(watch: Watch) -> int:
    return watch.samples[-1].written if watch.samples else 0
