"""librdkafka as a load: a small C program, built once, linked to the library that the confluent-kafka
wheel brings.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Protocol, TypedDict

import confluent_kafka

from benchmarks.harness import PROJECT

SOURCE = Path(__file__).with_name("rdkafka_driver.c")
BUILD = PROJECT / "build" / "benchmarks"
SECONDS_MAX = 60


class Addressed(Protocol):
    """A broker or a cluster."""

    @property
    def bootstrap_servers(self) -> str: ...


class Load(TypedDict):
    """The driver's result: records and bytes of values, and the wall seconds it took."""

    records: int
    failed: int
    bytes: int
    seconds: float


def is_available() -> bool:
    """Whether the driver can be built here."""
    return shutil.which(os.environ.get("CC", "cc")) is not None and bool(_libraries())


def produce(subject: Addressed, topic: str, *, count: int, size: int, settings: tuple[str, ...] = ()) -> Load:
    """Produce `count` values of `size` bytes over all partitions; librdkafka's defaults but acks=1."""
    return _run("produce", subject.bootstrap_servers, topic, count, size, SECONDS_MAX, "acks=1", *settings)


def consume(
    subject: Addressed, topic: str, *, count: int, partitions: int, settings: tuple[str, ...] = ()
) -> Load:
    """Consume `count` records from the beginning of `partitions` partitions, without a group."""
    return _run("consume", subject.bootstrap_servers, topic, count, partitions, SECONDS_MAX, *settings)


def _run(*arguments: object) -> Load:
    library = _libraries()[0]
    run = subprocess.run(
        [str(_built(library)), *map(str, arguments)],
        capture_output=True,
        text=True,
        # The wheel's librdkafka finds its own companions (OpenSSL and others) by names that only its
        # directory has.
        env={**os.environ, "LD_LIBRARY_PATH": str(library.parent)},
        timeout=2 * SECONDS_MAX + 10,
        check=False,
    )
    if run.returncode != 0:
        raise RuntimeError(f"rdkafka_driver {' '.join(map(str, arguments))}: {run.stdout}{run.stderr}")
    load: Load = json.loads(run.stdout)
    return load


def _built(library: Path) -> Path:
    """The driver, linked to this library: another release of the wheel has a library of another name."""
    driver = BUILD / f"rdkafka_driver-{library.name}"
    if not driver.exists() or driver.stat().st_mtime < SOURCE.stat().st_mtime:
        BUILD.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CC", "cc")
        link = [str(library), f"-Wl,-rpath-link,{library.parent}"]
        subprocess.run(
            [compiler, "-O2", "-Wall", "-Wextra", "-o", str(driver), str(SOURCE), *link], check=True
        )
    return driver


def _libraries() -> list[Path]:
    package = Path(confluent_kafka.__file__).parent
    return sorted(
        [*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*")]
    )
