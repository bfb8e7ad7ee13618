"""`sparklog cluster cordon`, `drain`, `decommission` and `activate`: what the cluster leaves to a node.

    cordoned          new replicas go to other nodes
    drained           … and leaderships move to other nodes
    decommissioned    … and replicas; the node is unregistered once it has none and has stopped

The controller does the work whether or not the command still runs: the command asks for the state, waits, and
says of each partition that is left why it is still there.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.configs import ConfigResource
from sparklog.errors import BrokerError, ErrorCode, SparklogError
from sparklog.model import ZERO_UUID, NodeId
from sparklog_server.cli.admin import admin
from sparklog_server.cli.moves import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    REPORTED_EVERY_S,
    elect_preferred,
    first,
    partitions_text,
    takes_throttle,
)
from sparklog_server.cli.option_values import duration_option
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import print_line, print_table, report
from sparklog_server.operations.moves import (
    ClusterFacts,
    Remaining,
    facts_of,
    leading_on,
    remaining_on,
    set_throttle,
)
from sparklog_server.operations.node_states import (
    asked_nodes,
    nodes_text,
    require_room,
    require_voter,
    too_high_factors,
)
from sparklog_server.operations.refused import OperationRefused

if TYPE_CHECKING:
    from sparklog.client.admin.cluster import Quorum
    from sparklog.client.admin.configs import BrokerState

Command = TypeVar("Command", bound=Callable[..., Any])

LOOK_EVERY_S: Final = 0.5
STUCK_S: Final = 5.0
"""A command ends with 1 if for this long every partition left has waited for what only an operator does."""
SHOWN_MAX: Final = 10
SILENT_S_MAX: Final = 30.0
"""A cluster that does not answer for this long ends the wait: the active controller may be stopping."""
_AUTO_JOIN: Final = "controller.quorum.auto.join.enable"


class Left(NamedTuple):
    """What is still on one of the nodes, and why."""

    node: NodeId
    remaining: Remaining


def _takes_nodes(command: Command) -> Command:
    return click.argument("nodes", nargs=-1, required=True, metavar="NODE...", type=click.IntRange(0))(
        command
    )


def _waits(command: Command) -> Command:
    for option in (
        click.option(
            "--timeout",
            "timeout_ms",
            metavar="DURATION",
            callback=duration_option,
            help="Exit with 1 after this time, such as 10m. The cluster goes on. [default: none]",
        ),
        click.option("--no-wait", is_flag=True, help="Ask for the state only; the cluster does the work."),
    ):
        command = option(command)
    return command


@click.command()
@_takes_nodes
@reaches_cluster
def cordon(nodes: tuple[int, ...]) -> None:
    """Give NODEs no new replicas; those that they have stay."""
    with admin(awaits_silent=False) as cluster:
        facts = facts_of(cluster)
        with _refusals():
            asked = asked_nodes(facts, nodes)
            require_room(facts, asked)
        _set(cluster, asked, "cordoned")
    report(
        f"{nodes_text(asked)} cordoned: new replicas go to other nodes; `sparklog cluster activate` ends it"
    )


@click.command()
@_takes_nodes
@_waits
@reaches_cluster
def drain(nodes: tuple[int, ...], no_wait: bool, timeout_ms: int | None) -> int:
    """Move the leaderships of NODEs to replicas in sync on other nodes, give NODEs no new replicas, and wait
    until they lead nothing.

    A drained node still replicates: stop it, and clients notice nothing. Exits with 1 and the reasons if
    leaderships are left that only an operator can move.
    """
    with admin(awaits_silent=False) as cluster:
        facts = facts_of(cluster)
        with _refusals():
            asked = asked_nodes(facts, nodes)
            require_room(facts, asked)
        _set(cluster, asked, "drained")
        if no_wait:
            report(f"{nodes_text(asked)} drained; `sparklog cluster status` shows what is left")
            return 0
        code = _waited(cluster, asked, leading_on, timeout_ms, "leaderships", "drained")
    if code == 0:
        report(f"{nodes_text(asked)} drained: no partition is led there; `sparklog cluster activate` ends it")
    return code


@click.command()
@_takes_nodes
@takes_throttle
@_waits
@reaches_cluster
def decommission(nodes: tuple[int, ...], throttle: int | None, no_wait: bool, timeout_ms: int | None) -> int:
    """Move every replica of NODEs to other nodes, wait until none is left, and unregister NODEs: those that
    run, as soon as they have stopped.

    NODEs may be dead, and may have been unregistered while partitions still list them. A voter is removed
    from the metadata quorum as well. Exits with 1 and the reasons if replicas are left that only an operator
    can move; the state stays, and the cluster goes on once it can.
    """
    with admin(awaits_silent=False) as cluster:
        facts = facts_of(cluster)
        with _refusals():
            asked = asked_nodes(facts, nodes)
            require_room(facts, asked)
            require_voter(_quorum(cluster), asked)
        _set(cluster, asked, "decommissioned")
        if throttle is not None:  # after the moves have begun: the controller removes it where nothing moves
            set_throttle(cluster, throttle)
        _tell_high_factors(facts, asked)
        if no_wait:
            report(f"{nodes_text(asked)} decommissioned; `sparklog cluster status` shows what is left")
            return 0
        code = _waited(cluster, asked, remaining_on, timeout_ms, "replicas", "decommissioned")
        if code == 0:
            code = _forgotten(cluster, asked)
    return code


@click.command()
@_takes_nodes
@reaches_cluster
def activate(nodes: tuple[int, ...]) -> None:
    """End the state of NODEs: they get replicas again, and the leaderships of which they are the preferred
    replica.
    """
    with admin(awaits_silent=False) as cluster:
        facts = facts_of(cluster)
        with _refusals():
            asked = asked_nodes(facts, nodes)
        _set(cluster, asked, "active")
        due = [
            at
            for at, one in facts.partitions.items()
            if one.replicas[0] in asked and one.leader != one.replicas[0] and one.replicas[0] in one.isr
        ]
        elect_preferred(cluster, due)
        leaving = [at for at, one in facts.reassignments.items() if not asked.isdisjoint(one.removing)]
    report(f"{nodes_text(asked)} active; `sparklog partitions balance` moves replicas there")
    if leaving:
        report(
            f"{partitions_text(len(leaving))} go on moving away: {first([str(at) for at in leaving])}; "
            "`sparklog partitions reassignments --cancel` takes that back"
        )


# -- what is refused -----------------------------------------------------------------------------------------


@contextmanager
def _refusals() -> Iterator[None]:
    """Refusals as errors of the command."""
    try:
        yield
    except OperationRefused as error:
        raise click.ClickException(str(error)) from None


def _tell_high_factors(facts: ClusterFacts, asked: frozenset[NodeId]) -> None:
    """The topics whose replication factor is above the nodes left: their replicas stay."""
    if topics := too_high_factors(facts, asked):
        able = len([node for node in facts.open_nodes() if node not in asked])
        report(
            f"{len(topics)} topic{'s have' if len(topics) > 1 else ' has'} a replication factor above the "
            f"{able} node{'s' * (able != 1)} left: {first(topics)}. Replicas stay until a node is added, or "
            f"until `sparklog topics alter TOPIC --replication-factor {max(able, 1)}` lowers the factor."
        )


# -- work ----------------------------------------------------------------------------------------------------


def _set(cluster: Admin, asked: frozenset[NodeId], state: "BrokerState") -> None:
    for node in sorted(asked):
        cluster.set_broker_state(node, state)


def _waited(
    cluster: Admin,
    asked: frozenset[NodeId],
    left_on: Callable[[ClusterFacts, NodeId], list[Remaining]],
    timeout_ms: int | None,
    what: str,
    state: str,
) -> int:
    """Wait until nothing is left on the nodes; the exit code, after the reasons have been printed."""
    try:
        left = _wait(cluster, asked, left_on, timeout_ms, what)
    except KeyboardInterrupt:
        report(f"{nodes_text(asked)} still {state}: the cluster goes on; `sparklog cluster activate` ends it")
        return EXIT_INTERRUPTED
    if not left:
        return 0
    print_table(["node", "partition", "why it is still there"], [_cells(one) for one in left])
    print_line(
        f"sparklog: {partitions_text(len(left))} left; {nodes_text(asked)} still {state}, "
        "and the cluster goes on once it can",
        is_error=True,
    )
    return EXIT_FAILURE


def _cells(left: Left) -> list[object]:
    at, reason, _ = left.remaining
    return [left.node, f"{at.topic}:{at.partition}", reason]


def _wait(
    cluster: Admin,
    asked: frozenset[NodeId],
    left_on: Callable[[ClusterFacts, NodeId], list[Remaining]],
    timeout_ms: int | None,
    what: str,
) -> list[Left]:
    """What is left once nothing more can be expected, or the time is over; empty if all is done."""
    begun_s = changed_s = answered_s = time.monotonic()
    left: list[Left] | None = None
    with _progress(what) as told:
        while True:
            now_s = time.monotonic()
            try:
                facts = facts_of(cluster)
            except SparklogError:
                if now_s - answered_s >= SILENT_S_MAX:
                    raise
            else:
                answered_s = now_s
                seen = [Left(node, one) for node in sorted(asked) for one in left_on(facts, node)]
                if seen != left:
                    left, changed_s = seen, now_s
                told(left)
                if not left:
                    return []
                if now_s - changed_s >= STUCK_S and all(one.remaining.is_stuck for one in left):
                    return left
            if timeout_ms is not None and now_s - begun_s >= timeout_ms / 1000:
                return left or []
            time.sleep(LOOK_EVERY_S)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[Sequence[Left]], None]]:
    """What is left with its reasons on stderr if that is a terminal; elsewhere a line every ten seconds."""
    if not sys.stderr.isatty():
        yield _Lines(what).told
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), transient=True) as live:

        def told(left: Sequence[Left]) -> None:
            lines = [f"{len(left)} {what} left"]
            lines += ["  ".join(map(str, _cells(one))) for one in left[:SHOWN_MAX]]
            live.update(Group(*[Text(line, overflow="ellipsis", no_wrap=True) for line in lines]))

        yield told


class _Lines:
    """Says on stderr how much is left, every ten seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._told_s = time.monotonic()

    def told(self, left: Sequence[Left]) -> None:
        """A look at the cluster found this left."""
        if left and time.monotonic() - self._told_s >= REPORTED_EVERY_S:
            self._told_s = time.monotonic()
            node, partition, reason = _cells(left[0])
            report(f"{len(left)} {self._what} left; node {node}, {partition}: {reason}")


def _forgotten(cluster: Admin, asked: frozenset[NodeId]) -> int:
    """Remove voters, wait until the cluster has forgotten the nodes that are down, and say what is to be done
    with those that run.
    """
    nodes = cluster.describe_cluster(include_fenced=True).nodes
    running = asked.intersection(one.node_id for one in nodes if not one.is_fenced)
    code = _without_voters(cluster, asked, running)
    until_s = time.monotonic() + SILENT_S_MAX
    waiting = asked - running
    while waiting:
        registered = {one.node_id for one in cluster.describe_cluster(include_fenced=True).nodes}
        for node in sorted(waiting - registered):
            report(f"node {node} has been unregistered")
        waiting &= registered
        if waiting and time.monotonic() >= until_s:
            print_line(f"sparklog: {nodes_text(waiting)} still registered", is_error=True)
            return EXIT_FAILURE
        time.sleep(LOOK_EVERY_S if waiting else 0)
    for node in sorted(running):
        report(f"node {node} has no replicas: stop it now; the cluster forgets it by itself")
    return code


def _without_voters(cluster: Admin, asked: frozenset[NodeId], running: frozenset[NodeId]) -> int:
    """Remove the nodes from the voters of the metadata quorum, or say how; the exit code."""
    quorum = _quorum(cluster)
    if quorum is None:
        return 0
    voters = {one.node_id: one for one in sorted(quorum.voters, key=lambda one: one.last_fetch_ms)}
    for node in sorted(asked & voters.keys()):
        if voters[node].directory_id == ZERO_UUID:
            report(
                f"node {node} is a voter of a static quorum: it stays a controller until "
                "controller.quorum.voters of all nodes changes"
            )
            continue
        if node in running and _joins_again(cluster, node):
            report(
                f"node {node} is a voter and would join again ({_AUTO_JOIN}=true): stop it, then "
                f"`sparklog quorum remove-voter {node}`"
            )
            continue
        try:
            cluster.remove_raft_voter(node, voters[node].directory_id)
        except BrokerError as error:
            if error.code is ErrorCode.VOTER_NOT_FOUND:
                continue
            print_line(
                f"sparklog: node {node} is still a voter: {error}; try `sparklog quorum remove-voter {node}`",
                is_error=True,
            )
            return EXIT_FAILURE
        left = len(voters) - 1
        del voters[node]
        report(f"node {node} is no voter of the metadata quorum any more; {left} left")
        if left == 2:
            report("two voters need each other: add a third with `sparklog quorum add-voter`, or remove one")
    return 0


def _joins_again(cluster: Admin, node: NodeId) -> bool:
    resource = ConfigResource("broker", str(node))
    try:
        entry = cluster.describe_resources([resource], [_AUTO_JOIN])[resource].get(_AUTO_JOIN)
    except SparklogError:
        return False
    return entry is not None and entry.value == "true"


def _quorum(cluster: Admin) -> "Quorum | None":
    try:
        return cluster.describe_quorum()
    except SparklogError:
        return None
