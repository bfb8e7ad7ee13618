"""Spark as the demo sees it: a process that tells its progress, a line of JSON for each event."""

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from sparklog_server.demo.flights import Total, Totals

GROUP: Final = "spark"
"""The group under which the stream commits how far it has read."""
LOG: Final = "spark.log"
END_S_MAX: Final = 300.0


class Ready(msgspec.Struct, tag=True):
    """The session is there, and the query has been started."""

    version: str


class Batch(msgspec.Struct, tag=True):
    """A micro-batch that is committed."""

    number: int
    flights: int
    seconds: float


class Hour(msgspec.Struct):
    """A row of the result: an airport in an hour of the day."""

    airport: str
    hour: int
    total: Total


class Table(msgspec.Struct, tag=True):
    """What the table has at the end: rows, distinct flights, and the result by airport and hour."""

    rows: int
    distinct: int
    hours: list[Hour]

    @property
    def totals(self) -> Totals:
        """The result, by airport and hour of the day."""
        return {(one.airport, one.hour): one.total for one in self.hours}


Event = Ready | Batch | Table
_DECODER: Final = msgspec.json.Decoder(Event)


def what_is_missing() -> str:
    """What Spark lacks here, with the remedy; empty if it can run."""
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed; pip install 'sparklog[demo]'"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "no Java; install Java 17 or newer"
    return ""


class Spark:
    """The process, from its start to `finish` or `close`. `told` gets each event, in a thread."""

    def __init__(self, servers: str, output: Path, told: Callable[[Event], None]) -> None:
        self.batches: list[Batch] = []
        self.table: Table | None = None
        self._told = told
        with (output / LOG).open("wb") as log:
            self._child = subprocess.Popen(
                (sys.executable, "-P", "-m", "sparklog_server.demo.spark_job", servers, str(output)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._thread = threading.Thread(target=self._listen, name="spark", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._child.poll() is not None

    def finish(self) -> Table | None:
        """Have the query read to the end of the log, and return the table; None if Spark failed."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._thread.join(END_S_MAX)
        return self.table

    def close(self) -> None:
        """End the process."""
        self._child.kill()
        self._child.wait()
        self._thread.join()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as lines:
            for line in lines:
                event = _DECODER.decode(line)
                if isinstance(event, Batch):
                    self.batches.append(event)
                elif isinstance(event, Table):
                    self.table = event
                self._told(event)
