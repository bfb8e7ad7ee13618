"""`sparklog log repair`: shows the repair of a stopped broker's directory and its cost, then performs it."""

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from sparklog.model import LeaderEpoch
from sparklog_server.cli.inspect import other_readers
from sparklog_server.cli.printing import as_json, print_json, print_table, report
from sparklog_server.disk.door import DirectoryInUse, Disk, StorageError
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.directory.first_start import METADATA_DIRECTORY
from sparklog_server.log_tools.examine_directory import (
    Looking,
    Report,
    is_log_directory,
    partition_directories,
    verify,
)
from sparklog_server.log_tools.examine_files import OFFSET_FILES
from sparklog_server.log_tools.known_metadata import KnownMetadata, read_metadata
from sparklog_server.log_tools.repair import Plan, Repairing, plans
from sparklog_server.log_tools.repair_directory import offsets_in, plan_directory, plan_identity
from sparklog_server.log_tools.repair_metadata import plan_metadata
from sparklog_server.raft.election_state import ElectionState

EXIT_FAILURE = 1
ROUNDS_MAX = 4
_DIRECTORY = click.Path(exists=True, file_okay=False)


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--execute",
    "is_executed",
    is_flag=True,
    help="Perform the steps. Without this option nothing is changed.",
)
@click.option(
    "--beside",
    metavar="DIR",
    multiple=True,
    type=_DIRECTORY,
    help="Take ids from another log directory of the broker. Repeatable.",
)
@click.option(
    "--cluster-id", metavar="ID", help="Set the cluster id for meta.properties, if no other directory has it."
)
@click.option(
    "--node-id",
    metavar="ID",
    type=int,
    help="Set the node id for meta.properties, if no other directory has it.",
)
@click.option(
    "--deep",
    "is_deep",
    is_flag=True,
    help="Check the records of each batch too, and take out those that cannot be read.",
)
@as_json
def repair(
    directory: str,
    is_executed: bool,
    beside: tuple[str, ...],
    cluster_id: str | None,
    node_id: int | None,
    is_deep: bool,
    is_json: bool,
) -> int:
    """Repair the log directory of a stopped broker: print each step with its file, byte, reason and cost;
    with --execute, perform them.

    Unreadable stretches of a log are copied aside and replaced by an empty batch, so that no offset is
    used twice; sound batches are kept. The metadata log is cut at the first batch that cannot be read.
    Indexes, snapshots and checkpoints are rebuilt. The exit code is 1 if damage cannot be repaired,
    or, without --execute, if there is damage. A directory that a running broker holds is
    refused.
    """
    path = directory.rstrip("/") or "/"
    disk = OsDisk(is_read_only=not is_executed)
    if not is_log_directory(disk.list(path)):
        raise click.ClickException(
            f"{path} is no log directory: it has neither meta.properties nor partitions"
        )
    try:
        disk.lock(path)
        all_steps = 0
        for round_number in range(ROUNDS_MAX):
            if round_number + 1 == ROUNDS_MAX:
                break  # the check reports the remaining damage
            made = planned(disk, path, beside, cluster_id=cluster_id, node_id=node_id, is_deep=is_deep)
            steps = tell(made, is_json=is_json, is_executed=is_executed)
            all_steps += steps
            is_possible = all(step.is_possible for plan in made for step in plan.steps)
            if not is_executed or not steps:
                break
            for plan in made:
                plan.execute()
            if not is_possible:
                break
        reports = checked(disk, path, is_deep=is_deep) if is_executed else []
    except DirectoryInUse as error:
        raise click.ClickException(f"{error.path} is held by a running broker: stop it first") from error
    except StorageError as error:
        raise click.ClickException(error.with_remedy) from error
    finally:
        disk.unlock(path)
    return summed_up(all_steps, reports, is_executed=is_executed, is_possible=is_possible)


def planned(
    disk: Disk,
    path: str,
    beside: Sequence[str] = (),
    *,
    cluster_id: str | None = None,
    node_id: int | None = None,
    is_deep: bool = False,
    wall_ms: int | None = None,
) -> list[Plan]:
    """The plans in the order in which they are executed. Raises StorageError."""
    known = KnownMetadata()
    for one in (*beside, path):
        read_metadata(disk, f"{one.rstrip('/')}/{METADATA_DIRECTORY}", known)
    now_ms = int(time.time() * 1000) if wall_ms is None else wall_ms
    repairing = Repairing(
        disk, now_ms, Looking(also=other_readers(), is_deep=is_deep, written_at=written_at), known.topic_ids
    )
    made: list[Plan] = []
    names = partition_directories(disk.list(path))
    if METADATA_DIRECTORY in names:
        names.remove(METADATA_DIRECTORY)
        made.append(plan_metadata(repairing, path, vote))
    checkpoints = {file: offsets_in(disk, f"{path}/{file}")[0] for file in OFFSET_FILES}
    partitions = list(plans(repairing, path, names, checkpoints))
    own = plan_directory(repairing, path, partitions)
    identity = plan_identity(repairing, path, known, beside, cluster_id=cluster_id, node_id=node_id)
    return [*made, *partitions, own, identity]


def written_at(path: str) -> str | None:
    """The modification time of a file, in UTC; None if it does not exist."""
    try:
        return datetime.fromtimestamp(Path(path).stat().st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OSError:
        return None


def vote(epoch: int) -> bytes:
    """The content of `quorum-state` for a voter in this epoch, without a vote."""
    return ElectionState(epoch=LeaderEpoch(epoch)).render()


def checked(disk: Disk, path: str, *, is_deep: bool) -> list[Report]:
    """The current reports of `log verify`. Raises StorageError."""
    return list(verify(disk, path, Looking(also=other_readers(), is_deep=is_deep, written_at=written_at)))


def tell(made: list[Plan], *, is_json: bool, is_executed: bool) -> int:
    """Print the steps; returns their number."""
    steps = [(plan.name, step) for plan in made for step in plan.steps]
    kinds = {True: "done" if is_executed else "planned", False: "impossible"}
    if is_json:
        for name, step in steps:
            print_json({"partition": name, "kind": kinds[step.is_possible]} | step._asdict())
    elif steps:
        rows = [
            [
                kinds[one.is_possible],
                one.path,
                "" if one.position is None else one.position,
                one.what,
                one.action,
                one.lost or "nothing",
            ]
            for _, one in steps
        ]
        print_table(["", "file", "position", "what", "action", "lost"], rows)
    sys.stdout.flush()
    return len(steps)


def summed_up(steps: int, reports: list[Report], *, is_executed: bool, is_possible: bool) -> int:
    """The last line, on stderr, and the exit code."""
    if not steps:
        report("nothing to repair")
        return 0
    if not is_executed:
        report(f"{steps} steps planned, nothing was changed: add --execute to do them")
        return EXIT_FAILURE
    damaged = [report.name for report in reports if report.is_damaged]
    if damaged or not is_possible:
        report(f"still damaged: {', '.join(damaged) or 'see the steps that are impossible'}")
        return EXIT_FAILURE
    report(f"{steps} steps done, `sparklog log verify` finds no damage")
    return 0
