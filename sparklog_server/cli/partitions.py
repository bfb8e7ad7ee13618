"""`sparklog partitions`: elections of leaders, and moves of replicas."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from sparklog.client.admin.admin import ItemsFailed
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import TopicPartition
from sparklog_server.cli.admin import admin, partitions_named, topic_names
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.partitions_moves import balance, reassign, reassignments
from sparklog_server.cli.printing import as_json, print_json, print_line, print_table, report

if TYPE_CHECKING:
    from sparklog.client.admin.cluster import ElectionType

EXIT_FAILURE = 1
NAMES_MAX = 5


@click.group()
def partitions() -> None:
    """Spread, move and show replicas, and elect the leaders of partitions."""


partitions.add_command(balance)
partitions.add_command(reassign)
partitions.add_command(reassignments)


@partitions.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=topic_names)
@click.option("--all", "is_all", is_flag=True, help="Elect the leaders of all partitions that need it.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect a replica that is not in sync, for a partition without a leader. Records are lost.",
)
@reaches_cluster
@as_json
def elect(topics: tuple[str, ...], is_all: bool, unclean: bool, is_json: bool) -> int:
    """Elect the preferred replica, the first of the replicas, as leader of partitions, and print the outcome.

    A partition that its preferred replica leads needs no election. Exits with 1 if a partition that needs one
    has none, as while its preferred replica is not in sync.
    """
    if is_all == bool(topics):
        raise click.UsageError("select partitions with either TOPIC, TOPIC:0,1 or --all")
    kind: ElectionType = "unclean" if unclean else "preferred"
    errors: dict[TopicPartition, BrokerError] = {}
    with admin() as cluster:
        wanted = None if is_all else partitions_named(cluster, topics)
        try:
            elected = cluster.elect_leaders(wanted, election=kind)
        except ItemsFailed as failed:
            elected, errors = failed.results, failed.errors
    outcomes = {at: "elected" if is_elected else "not needed" for at, is_elected in elected.items()}
    outcomes |= dict.fromkeys(errors, "failed")
    if is_json:
        print_json(
            [
                {
                    "topic": at.topic,
                    "partition": at.partition,
                    "outcome": outcomes[at],
                    "error": str(errors[at]) if at in errors else None,
                }
                for at in sorted(outcomes)
            ]
        )
    else:
        print_table(
            ["topic", "partition", "election"],
            [[at.topic, at.partition, outcomes[at]] for at in sorted(outcomes)],
            empty="no election is needed",
        )
    _tell_outcome(outcomes, errors)
    return EXIT_FAILURE if errors else 0


def _tell_outcome(
    outcomes: Mapping[TopicPartition, str], errors: Mapping[TopicPartition, BrokerError]
) -> None:
    """How many partitions have their leader, and why which others do not, on stderr."""
    by_reason: dict[ErrorCode, list[str]] = {}
    for at, error in sorted(errors.items()):
        by_reason.setdefault(error.code, []).append(str(at))
    elected = sum(outcome == "elected" for outcome in outcomes.values())
    if elected or errors:
        report(f"{elected} of {elected + len(errors)} partitions that need an election have their leader")
    for code, names in by_reason.items():
        shown = ", ".join(names[:NAMES_MAX])
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        remedy = ""
        if code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            remedy = (
                "; the preferred replica is not in sync: start its broker, or wait until it has caught up"
            )
        print_line(
            f"sparklog: {len(names)} failed: {code.name} ({code.value}): {shown}{more}{remedy}", is_error=True
        )
