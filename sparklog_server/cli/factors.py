"""The replication factor of topics: `sparklog topics alter --replication-factor`, `sparklog cluster grow`."""

from collections.abc import Collection, Sequence
from typing import Final

import click

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.configs import ConfigResource
from sparklog.errors import SparklogError
from sparklog.model import NodeId, TopicPartition
from sparklog_server.cli.admin import admin, topic_names, topics_named
from sparklog_server.cli.moves import Execution, executes, first, settle_plan
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.partitions_moves import tell_left_out
from sparklog_server.cli.printing import as_json, report
from sparklog_server.operations.balance import resized
from sparklog_server.operations.moves import ClusterFacts, facts_of

FACTOR_WANTED: Final = 3
"""The replication factor of `grow` where the nodes suffice: one node may fail while another is restarted."""
DEFAULT_FACTOR: Final = "default.replication.factor"


def alter_factor(cluster: Admin, names: Sequence[str], factor: int, execution: Execution) -> int:
    """Give topics that exist this replication factor, or show the plan if it is not wanted; the exit code."""
    topics_named(cluster, names)  # the error for an unknown name suggests similar ones
    facts = facts_of(cluster)
    _require_nodes(facts, factor)
    moving = [at for at in facts.reassignments if at.topic in names]
    if moving:
        names_moving = first([f"{at.topic}:{at.partition}" for at in moving])
        raise click.ClickException(
            f"being reassigned already: {names_moving}; wait, or take it back with "
            "`sparklog partitions reassignments --cancel`"
        )
    factors = {at: factor for at in facts.partitions if at.topic in names}
    moves = resized(facts.balanced_nodes(), facts.placed(), factors)
    return settle_plan(
        cluster,
        facts,
        moves,
        execution,
        is_json=False,
        empty=f"nothing to change: the replication factor is {factor}",
        remedy="without --validate-only they move",
    )


def _require_nodes(facts: ClusterFacts, factor: int) -> None:
    able = facts.open_nodes()
    if factor > len(able):
        raise click.ClickException(
            f"a replication factor of {factor} needs {factor} nodes that take replicas; the cluster has "
            f"{len(able)}"
        )


@click.command()
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    help="Raise the replication factor of this topic too. Repeatable.",
    shell_complete=topic_names,
)
@click.option("--all-topics", is_flag=True, help="Raise the replication factor of all topics.")
@click.option(
    "--replication-factor",
    "factor",
    metavar="N",
    type=click.IntRange(1),
    help=f"Raise it to N. [default: {FACTOR_WANTED}, or the number of nodes if they are fewer]",
)
@executes
@reaches_cluster
@as_json
def grow(
    topics: tuple[str, ...], all_topics: bool, factor: int | None, execution: Execution, is_json: bool
) -> int:
    """Plan what makes use of nodes that have joined: a higher replication factor for internal topics and for
    the topics chosen, and moves after which each broker has its share; with --execute, move.

    A replication factor that is higher already stays. Ctrl-C ends the command: moves that have begun go on.
    Exits with 1 if a move is refused.
    """
    if topics and all_topics:
        raise click.UsageError("--topic and --all-topics exclude each other")
    with admin(awaits_silent=False) as cluster:
        if topics:
            topics_named(cluster, topics)
        listed = cluster.list_topics(include_internal=True)
        chosen = {name for name, topic in listed.items() if topic.is_internal or all_topics or name in topics}
        facts = facts_of(cluster)
        able = facts.open_nodes()
        if factor is not None:
            _require_nodes(facts, factor)
        wanted = min(FACTOR_WANTED, len(able)) if factor is None else factor
        factors = {
            at: wanted
            for at, one in facts.partitions.items()
            if at.topic in chosen and len(one.replicas) < wanted
        }
        tell_left_out(facts)
        _tell_raised(facts, factors, wanted)
        moves = resized(facts.balanced_nodes(), facts.placed(), factors, is_balanced=True)
        code = settle_plan(
            cluster,
            facts,
            moves,
            execution,
            is_json=is_json,
            empty="nothing to move: the brokers are balanced",
        )
        _tell_default(cluster, able, wanted)
    return code


def _tell_raised(facts: ClusterFacts, factors: Collection[TopicPartition], wanted: int) -> None:
    """The topics whose replication factor is raised, on stderr."""
    before: dict[str, int] = {}
    for at in factors:
        count = len(facts.partitions[at].replicas)
        before[at.topic] = min(before.get(at.topic, count), count)
    for name, count in sorted(before.items()):
        report(f"replication factor of {name}: {count} → {wanted}")
    if not before:
        report(f"no replication factor is raised: all chosen topics have {wanted} or more")


def _tell_default(cluster: Admin, able: Sequence[NodeId], wanted: int) -> None:
    """Where new topics get fewer replicas, on stderr."""
    for node in able[:1]:
        resource = ConfigResource("broker", str(node))
        try:
            entry = cluster.describe_resources([resource], [DEFAULT_FACTOR])[resource].get(DEFAULT_FACTOR)
        except SparklogError:  # the user may be allowed less
            return
        if entry is not None and entry.value is not None and int(entry.value) < wanted:
            report(
                f"new topics get {entry.value} replica{'s' * (entry.value != '1')}: raise {DEFAULT_FACTOR} "
                "in the settings of each node"
            )
