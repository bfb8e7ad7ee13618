"""`sparklog partitions balance`, `reassign` and `reassignments`: replicas move to other brokers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, Final

import click

from sparklog.client.admin.admin import Admin
from sparklog.errors import BrokerError
from sparklog.model import NodeId, TopicPartition
from sparklog_server.cli.admin import (
    PARTITION_NUMBER_MAX,
    admin,
    partitions_in,
    partitions_named,
    topic_names,
    topics_named,
)
from sparklog_server.cli.moves import (
    EXIT_FAILURE,
    Execution,
    executes,
    first,
    partitions_text,
    settle_plan,
    tell_refused,
)
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import (
    as_json,
    bytes_text,
    listed,
    print_json,
    print_line,
    print_table,
    report,
)
from sparklog_server.cli.watching import can_watch
from sparklog_server.operations.balance import PlannedMove, planned
from sparklog_server.operations.moves import ClusterFacts, behind_of, cancel, facts_of, reassigning

FILE_BYTES_MAX: Final = 64 << 20
NODE_MAX: Final = (1 << 31) - 1
_NOT_A_PLAN: Final = (
    'is no plan: write {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
)


@click.command()
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    help="Balance the partitions of this topic only. Repeatable.",
    shell_complete=topic_names,
)
@executes
@reaches_cluster
@as_json
def balance(topics: tuple[str, ...], execution: Execution, is_json: bool) -> int:
    """Plan moves after which each broker has its share of bytes, replicas and leaderships, and no rack two
    replicas of a partition without need; with --execute, move them.

    Partitions that are being reassigned, and brokers that are fenced, cordoned, drained or decommissioned,
    are left as they are. Ctrl-C ends the command: moves that have begun go on. Exits with 1 if a move is
    refused.
    """
    with admin(awaits_silent=False) as cluster:
        if topics:
            topics_named(cluster, topics)  # the error for an unknown name suggests similar ones
        facts = facts_of(cluster)
        chosen = [one for one in facts.placed() if not topics or one.at.topic in topics]
        moves = planned(facts.balanced_nodes(), chosen)
        tell_left_out(facts)
        return settle_plan(
            cluster,
            facts,
            moves,
            execution,
            is_json=is_json,
            empty="nothing to move: the brokers are balanced",
        )


def tell_left_out(facts: ClusterFacts) -> None:
    """The brokers and partitions that no plan changes, on stderr."""
    able = facts.open_nodes()
    for one in facts.nodes:
        if one.node_id not in able:
            state = "fenced" if one.is_fenced else facts.states.get(one.node_id, "active")
            report(f"node {one.node_id} is {state}: it gets no replicas")
    if facts.reassignments:
        report(f"{partitions_text(len(facts.reassignments))} being reassigned already: they are left out")


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=topic_names)
@click.option("--to", metavar="1,2,3", help="Put the replicas on these nodes; the first leads.")
@click.option(
    "--file",
    type=click.File("r", encoding="utf-8-sig"),
    help="Read the plan from a JSON file of kafka-reassign-partitions.",
)
@executes
@reaches_cluster
@as_json
def reassign(
    topics: tuple[str, ...], to: str | None, file: IO[str] | None, execution: Execution, is_json: bool
) -> int:
    """Show what it means to put the replicas of partitions on other brokers; with --execute, move them.

    The replicas that a partition has are removed once the new ones are in sync. A plan with a partition that
    cannot move is refused as a whole. Exits with 1 if a move is refused.
    """
    if (file is None) == (not topics):
        raise click.UsageError("name partitions with TOPIC or TOPIC:0,1 and --to, or a plan with --file")
    if (file is None) != (to is not None):
        raise click.UsageError(
            "--file has the replicas: leave --to out" if file else "name the replicas with --to 1,2,3"
        )
    wanted = None if file is None else _plan_in(file)
    nodes = None if to is None else _nodes_in(to)
    with admin(awaits_silent=False) as cluster:
        if nodes is not None:
            wanted = dict.fromkeys(partitions_named(cluster, topics), nodes)
        assert wanted is not None
        facts = facts_of(cluster)
        problems: dict[str, list[str]] = {}
        for name, problem in _problems(facts, wanted):
            problems.setdefault(problem, []).append(name)
        for problem, names in problems.items():
            print_line(f"sparklog: {first(names)}: {problem}", is_error=True)
        if problems:
            count = sum(map(len, problems.values()))
            report(f"nothing was changed: {count} of {partitions_text(len(wanted))} cannot move")
            return EXIT_FAILURE
        moves = [_move(facts, at, after) for at, after in wanted.items()]
        return settle_plan(
            cluster,
            facts,
            [one for one in moves if one.before != one.after],
            execution,
            is_json=is_json,
            empty="nothing to move: the replicas are where the plan has them",
        )


def _move(facts: ClusterFacts, at: TopicPartition, after: tuple[NodeId, ...]) -> PlannedMove:
    before = facts.partitions[at].replicas
    return PlannedMove(at, before, after, facts.size_of(at) * len(set(after) - set(before)))


def _problems(
    facts: ClusterFacts, wanted: Mapping[TopicPartition, Sequence[NodeId]]
) -> Iterable[tuple[str, str]]:
    """The partitions of a plan that cannot move, each with the reason."""
    registered = {one.node_id for one in facts.nodes}
    for at, after in wanted.items():
        name = f"{at.topic}:{at.partition}"
        if at not in facts.partitions:
            yield name, "no such partition"
        elif at in facts.reassignments:
            yield (
                name,
                "being reassigned already; `sparklog partitions reassignments --cancel` takes that back",
            )
        elif not after:
            yield name, "no replicas are listed"
        elif len(set(after)) < len(after):
            yield name, f"a node is listed twice in {listed(after)}"
        elif unknown := [node for node in after if node not in registered]:
            known = listed(sorted(registered))
            yield name, f"node {listed(unknown)} is not registered; the cluster has {known}"
        else:
            added = [node for node in after if node not in facts.partitions[at].replicas]
            for node in added:
                if node not in facts.alive:
                    yield name, f"node {node} is down"
                elif (state := facts.states.get(node, "active")) != "active":
                    yield name, f"node {node} is {state}: it gets no new replicas"
                else:
                    continue
                break


def _nodes_in(text: str) -> tuple[NodeId, ...]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) <= NODE_MAX for part in parts):
        raise click.BadParameter(f"{text!r} is not like 1,2,3", param_hint="--to")
    return tuple(NodeId(int(part)) for part in parts)


def _plan_in(file: IO[str]) -> dict[TopicPartition, tuple[NodeId, ...]]:
    """The plan of a JSON file as kafka-reassign-partitions has it."""
    content = file.read(FILE_BYTES_MAX + 1)
    try:
        if len(content) > FILE_BYTES_MAX:
            raise ValueError
        plan: Any = json.loads(content)
        found: dict[TopicPartition, tuple[NodeId, ...]] = {}
        for one in plan["partitions"]:
            at = TopicPartition(one["topic"], one["partition"])
            replicas = one["replicas"]
            if not isinstance(at.topic, str) or not _are_numbers([at.partition, *replicas]):
                raise ValueError
            if at in found:
                raise click.BadParameter(
                    f"{at.topic}:{at.partition} is listed a second time", param_hint="--file"
                )
            if any(directory != "any" for directory in one.get("log_dirs", ())):
                raise click.BadParameter(
                    f"{at.topic}:{at.partition} names log directories: `sparklog log-dirs move` changes them",
                    param_hint="--file",
                )
            found[at] = tuple(map(NodeId, replicas))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise click.BadParameter(f"{file.name} {_NOT_A_PLAN}", param_hint="--file") from None
    if not found:
        raise click.BadParameter("no partition is named", param_hint="--file")
    return found


def _are_numbers(values: Iterable[object]) -> bool:
    return all(
        isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= PARTITION_NUMBER_MAX
        for one in values
    )


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=topic_names)
@click.option(
    "--cancel",
    "is_cancelled",
    is_flag=True,
    help="Give the partitions their original replicas again.",
)
@reaches_cluster
@as_json
@can_watch
def reassignments(topics: tuple[str, ...], is_cancelled: bool, is_json: bool) -> int:
    """Show the partitions that are being reassigned: the replicas that are added and removed, the bytes that
    new replicas lack, and what each partition waits for; of all if no TOPIC is given.

    With --cancel, exits with 1 if a reassignment cannot be taken back.
    """
    with admin(awaits_silent=False) as cluster:
        found = cluster.list_reassignments()
        if topics:
            for name in topics:
                partitions_in(name)
            named = set(partitions_named(cluster, topics))
            found = {at: one for at, one in found.items() if at in named}
        if is_cancelled:
            return _cancel(cluster, [*found], is_json=is_json)
        facts = facts_of(cluster, sorted({at.topic for at in found})) if found else None
        shown = [] if facts is None else [one for one in reassigning(facts) if one.at in found]
    rows = [
        {
            "topic": one.at.topic,
            "partition": one.at.partition,
            "replicas": [node for node in moving.replicas if node not in moving.removing],
            "adding": moving.adding,
            "removing": moving.removing,
            "bytes_behind": behind_of(facts, one.at),
            "reason": one.reason,
        }
        for one in shown
        if facts is not None
        for moving in [facts.reassignments[one.at]]
    ]
    if is_json:
        print_json(rows)
        return 0
    print_table(
        ["partition", "replicas", "adding", "removing", "behind", "waits for"],
        [
            [
                f"{row['topic']}:{row['partition']}",
                *(listed(row[name]) for name in ("replicas", "adding", "removing")),  # type: ignore[arg-type]
                bytes_text(row["bytes_behind"]),  # type: ignore[arg-type]
                row["reason"],
            ]
            for row in rows
        ],
        empty="no partition is being reassigned",
    )
    return 0


def _cancel(cluster: Admin, partitions: Sequence[TopicPartition], *, is_json: bool) -> int:
    outcomes = cancel(cluster, partitions)
    refused: dict[TopicPartition, BrokerError] = {
        at: error for at, error in outcomes.items() if error is not None
    }
    if is_json:
        print_json(
            [
                {"topic": at.topic, "partition": at.partition, "error": str(error) if error else None}
                for at, error in outcomes.items()
            ]
        )
    else:
        tell_refused(refused)
        done = [f"{at.topic}:{at.partition}" for at, error in outcomes.items() if error is None]
        if not outcomes:
            report("nothing to cancel: no partition is being reassigned")
        elif done:
            report(f"cancelled {partitions_text(len(done))}: {first(done)}")
    return EXIT_FAILURE if refused else 0
