"""`sparklog selftest`: what this machine can do, and what to expect of a broker on it."""

from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from sparklog.kernels import implementation
from sparklog_server.cli import selftest_runs as runs
from sparklog_server.cli.findings import Finding, print_findings
from sparklog_server.cli.printing import as_json

if TYPE_CHECKING:
    from sparklog_server.cli.selftest_runs import BrokerSpeed, DiskSpeed, Spread

SYNC_P50_MS_MIN: Final = 0.01
"""A sync of a disk takes longer; one of memory takes a microsecond."""
SYNC_P50_MS_MAX: Final = 10.0
SYNC_P99_MS_MAX: Final = 100.0
APPEND_MB_S_MIN: Final = 100.0
"""A network of a gigabit brings as much."""
ROUND_TRIP_P50_MS_MAX: Final = 0.2


class Measured(NamedTuple):
    """The results of the runs; `reference` in place of `compiled` kernels is slower."""

    disk: "DiskSpeed"
    round_trip: "Spread"
    crc_gb_s: float
    broker: "BrokerSpeed"
    kernels: str


class Reference(NamedTuple):
    """The same on the machine of docs/operations.md, where the conditions are described."""

    append_mb_s: float
    sync_p50_ms: float
    round_trip_p50_ms: float
    crc_gb_s: float
    records_s: float
    acked_p50_ms: float


REFERENCE: Final = Reference(556.0, 0.21, 0.045, 19.7, 181_000.0, 0.88)


@click.command()
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, writable=True),
    help="Measure the disk of this directory. [default: ./sparklog-data, or .]",
)
@as_json
def selftest(directory: str | None, is_json: bool) -> int:
    """Measure disk, loopback network and processor, and a producer with a temporary broker.

    Takes about ten seconds and up to 0.5 GiB of the directory, which is freed at the end. Do not run
    it beside a broker that is in use. Exits with 1 if a setting or the machine should be changed.
    """
    if directory is None:
        directory = "sparklog-data" if Path("sparklog-data").is_dir() else "."
    free = disk_usage(directory).free
    if free < runs.SPACE_BYTES_MIN:
        raise click.ClickException(
            f"{directory} has {free} bytes free, and the test needs {runs.SPACE_BYTES_MIN}: name another "
            f"with --directory"
        )
    measured = Measured(
        runs.disk_speed(directory),
        runs.round_trips(),
        runs.crc_gb_s(),
        runs.broker_speed(directory),
        implementation(),
    )
    return print_findings(judged(measured), is_json=is_json, more=_as_json(measured))


def judged(measured: Measured) -> "list[Finding]":
    """A line for each measurement with what to expect, beside that of the reference machine."""
    disk, sync, broker = measured.disk, measured.disk.sync, measured.broker
    found = [
        Finding(
            "WARN" if disk.append_mb_s < APPEND_MB_S_MIN else "OK",
            "disk append",
            f"{disk.append_mb_s:.0f} MB/s ({_beside(disk.append_mb_s, REFERENCE.append_mb_s, 'MB/s')}): the "
            f"producers of all topics cannot write more for long",
            "list a directory on each of several disks in log.dirs"
            if disk.append_mb_s < APPEND_MB_S_MIN
            else "",
        ),
        _sync(sync),
        Finding(
            "WARN" if measured.round_trip.p50_ms > ROUND_TRIP_P50_MS_MAX else "OK",
            "loopback network",
            f"a round trip of {_times(measured.round_trip)} "
            f"({_beside(measured.round_trip.p50_ms, REFERENCE.round_trip_p50_ms, 'ms')})",
            "other processes use the processors, or the machine is a small virtual one: each request takes "
            "at least this"
            if measured.round_trip.p50_ms > ROUND_TRIP_P50_MS_MAX
            else "",
        ),
        Finding(
            "OK",
            "crc32c",
            f"{measured.crc_gb_s:.1f} GB/s of one core "
            f"({_beside(measured.crc_gb_s, REFERENCE.crc_gb_s, 'GB/s')}): each byte is checked once when it "
            f"is produced",
        ),
        Finding(
            "OK",
            "produce",
            f"{broker.records_s:.0f} records/s of 1 kB, {broker.mb_s:.0f} MB/s "
            f"({_beside(broker.records_s, REFERENCE.records_s, 'records/s')}): one producer in Python beside "
            f"its broker; a C client writes several times as much",
        ),
        Finding(
            "OK",
            "acks=all",
            f"one record at a time is acknowledged after {_times(broker.acked)} "
            f"({_beside(broker.acked.p50_ms, REFERENCE.acked_p50_ms, 'ms')}): with one replica it waits for "
            f"a sync; records that come meanwhile share the next one",
        ),
    ]
    if measured.kernels != "compiled":
        found.append(
            Finding(
                "WARN",
                "kernels",
                "pure Python, several times slower",
                "install a C compiler, then sparklog again, or a wheel that has them",
            )
        )
    return found


def _sync(sync: "Spread") -> "Finding":
    text = f"{_times(sync)} ({_beside(sync.p50_ms, REFERENCE.sync_p50_ms, 'ms')})"
    if sync.p50_ms < SYNC_P50_MS_MIN:
        return Finding(
            "WARN",
            "disk sync",
            f"{text}: no disk is that fast, so a record is lost with the power",
            "name a directory on a disk: this one is in memory, or its disk ignores syncs",
        )
    if sync.p50_ms > SYNC_P50_MS_MAX:
        return Finding(
            "WARN",
            "disk sync",
            f"{text}: acks=all waits as long with one replica",
            "use a disk with a write cache that survives power loss; with three replicas, "
            "sparklog.ack.flush=never acknowledges by replication",
        )
    if sync.p99_ms > SYNC_P99_MS_MAX:
        return Finding(
            "WARN",
            "disk sync",
            f"{text}: elections and changes of topics wait for the slow ones",
            "put metadata.log.dir on a disk of its own",
        )
    return Finding("OK", "disk sync", text)


def _times(spread: "Spread") -> str:
    return f"p50 {spread.p50_ms:.3g} ms, p99 {spread.p99_ms:.3g} ms"


def _beside(value: float, reference: float, unit: str) -> str:
    shown = f"{reference:.0f}" if reference >= 100 else f"{reference:g}"
    return f"reference {shown} {unit}, {value / reference:.2g} of it"


def _as_json(measured: Measured) -> dict[str, object]:
    return {
        "measured": {
            "append_mb_s": measured.disk.append_mb_s,
            "sync_ms": measured.disk.sync._asdict(),
            "round_trip_ms": measured.round_trip._asdict(),
            "crc_gb_s": measured.crc_gb_s,
            "records_s": measured.broker.records_s,
            "produce_mb_s": measured.broker.mb_s,
            "acked_ms": measured.broker.acked._asdict(),
            "kernels": measured.kernels,
        },
        "reference": REFERENCE._asdict(),
    }
