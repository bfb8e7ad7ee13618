"""`sparklog log verify`: checks the whole directory of a stopped broker."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from sparklog_server.cli.inspect import other_readers
from sparklog_server.cli.log_repair import repair, written_at
from sparklog_server.cli.printing import as_json, print_json, print_table
from sparklog_server.disk.door import DirectoryInUse, StorageError
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log_tools import examine_directory
from sparklog_server.log_tools.examine_directory import Report
from sparklog_server.log_tools.finding import Finding

EXIT_FAILURE = 1
COLUMNS = (
    "partition",
    "state",
    "segments",
    "batches",
    "records",
    "bytes",
    "start_offset",
    "end_offset",
    "findings",
)


@click.group()
def log() -> None:
    """Verify and repair the files of a stopped broker."""


log.add_command(repair)


@log.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--deep",
    "is_deep",
    is_flag=True,
    help="Check the records of each batch too. Slower: compressed batches are decompressed.",
)
@as_json
def verify(directory: str, is_deep: bool, is_json: bool) -> int:
    """Check the log directory of a stopped broker, or one partition of it, and report each problem with
    file, byte, cause and remedy.

    Nothing is changed. The state of a partition is `sound`, `recoverable` (the
    result of a crash, repaired at the broker's next start: the remedy names the bytes to cut) or
    `damaged`; the exit code is 1 if one is damaged. A directory that a running broker holds is refused.
    """
    disk = OsDisk(is_read_only=True)
    path = directory.rstrip("/") or "/"
    names = disk.list(path)
    if not examine_directory.is_log_directory(names) and not any(name.endswith(".log") for name in names):
        raise click.ClickException(
            f"{path} is no log directory: it has neither meta.properties nor partitions"
        )
    locked = path if examine_directory.is_log_directory(names) else str(Path(path).absolute().parent)
    try:
        disk.lock(locked)
        with progress(examine_directory.bytes_of(disk, path), path) as progressed:
            reports = []
            looking = examine_directory.Looking(
                also=other_readers(), is_deep=is_deep, progressed=progressed, written_at=written_at
            )
            for report in examine_directory.verify(disk, path, looking):
                reports.append(report)
                if is_json:
                    print_json(as_dict(report))
                elif not sys.stdout.isatty():
                    tell([report])
        if not is_json and sys.stdout.isatty():
            tell(reports)
    except DirectoryInUse as error:
        raise click.ClickException(
            f"{error.path} is held by a running broker: stop it first, or use `sparklog inspect`"
        ) from error
    except StorageError as error:
        raise click.ClickException(error.with_remedy) from error
    finally:
        disk.unlock(locked)
    sys.stdout.flush()
    return EXIT_FAILURE if any(report.is_damaged for report in reports) else 0


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


def tell(reports: list[Report]) -> None:
    """Print the partitions, then the findings: lines with tabs begin with `partition`, `damage` or
    `note`.
    """
    is_terminal = sys.stdout.isatty()
    rows = [
        [report.name, report.state, *counts(report), len(report.findings) + report.more] for report in reports
    ]
    print_table(COLUMNS, rows if is_terminal else [["partition", *row] for row in rows])
    found = [
        (finding, "damage" if finding.is_damage else "note")
        for report in reports
        for finding in report.findings
    ]
    if found or not is_terminal:
        print_table(
            ["", "file", "position", "what", "remedy"],
            [[kind, f.path, "" if f.position is None else f.position, f.what, f.remedy] for f, kind in found],
        )


def counts(report: Report) -> list[int]:
    return [
        report.segments,
        report.batches,
        report.records,
        report.bytes,
        report.start_offset,
        report.end_offset,
    ]


def as_dict(report: Report) -> dict[str, object]:
    return (
        {"partition": report.name, "state": report.state}
        | dict(zip(COLUMNS[2:8], counts(report), strict=True))
        | {"findings": [finding_dict(finding) for finding in report.findings], "more_findings": report.more}
    )


def finding_dict(finding: Finding) -> dict[str, object]:
    return finding._asdict()
