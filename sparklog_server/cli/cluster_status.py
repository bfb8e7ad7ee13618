"""`sparklog cluster status`: the state of each node in one table."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import click

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.configs import ConfigResource
from sparklog.client.admin.topics import Partition, Topic
from sparklog.errors import SparklogError
from sparklog.model import NodeId, TopicPartition
from sparklog_server.cli.admin import admin
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, print_line, print_table, say
from sparklog_server.cli.watching import can_watch

if TYPE_CHECKING:
    from sparklog.client.admin.cluster import Cluster, Quorum, Reassignment

BALANCE_KEY = "auto.leader.rebalance.enable"
SILENT_MS = 3_000
"""A node of the quorum that has not fetched from the leader for this long is shown as silent; a live one
fetches every 500 ms.
"""


class NodeStatus(NamedTuple):
    """A row. `lag` is that of its metadata log, None if it is not known; `offline` counts partitions without
    a leader that have a replica here; `asked` is the state that was asked of the node: active, cordoned,
    drained or decommissioned.
    """

    node: int
    address: str | None
    roles: tuple[str, ...]
    is_leader: bool
    state: str
    leaders: int
    offline: int
    lag: int | None
    replicas: int = 0
    asked: str = "active"


def statuses(
    cluster: "Cluster",
    quorum: "Quorum | None",
    topics: Iterable[Topic],
    states: Mapping[NodeId, str] = MappingProxyType({}),
) -> list[NodeStatus]:
    """The nodes of the brokers and the quorum, by id. No quorum: it has no leader that answers."""
    led: Counter[int] = Counter()
    offline: Counter[int] = Counter()
    held: Counter[int] = Counter()
    for topic in topics:
        for partition in topic.partitions:
            held.update(partition.replicas)
            if partition.leader >= 0:
                led[partition.leader] += 1
            else:
                offline.update(partition.replicas)
    voters = {one.node_id: one for one in quorum.voters} if quorum else {}
    replicas = {one.node_id: one for one in quorum.observers} | voters if quorum else {}
    own = replicas.get(quorum.leader) if quorum else None
    endpoints = {one.node_id: f"{one.host}:{one.port}" for one in quorum.endpoints} if quorum else {}
    brokers = {one.node_id: one for one in cluster.nodes}
    found = []
    for node in sorted(brokers.keys() | voters.keys()):
        broker, replica = brokers.get(node), replicas.get(node)
        faults = ["fenced"] if broker is not None and broker.is_fenced else []
        lag = None
        if replica is not None and own is not None:
            lag = None if replica.log_end_offset < 0 else max(0, own.log_end_offset - replica.log_end_offset)
            silent_ms = own.last_fetch_ms - replica.last_fetch_ms
            if replica.last_fetch_ms < 0:
                faults.append("never heard")
            elif silent_ms >= SILENT_MS:
                faults.append(f"silent for {silent_ms // 1000} s")
        roles = ("broker",) * (broker is not None) + ("controller",) * (node in voters)
        found.append(
            NodeStatus(
                node,
                f"{broker.host}:{broker.port}" if broker is not None else endpoints.get(node),
                roles,
                quorum is not None and node == quorum.leader,
                ", ".join(faults) or "ok",
                led[node],
                offline[node],
                lag,
                held[node],
                states.get(node, "active"),
            )
        )
    return found


@click.command()
@reaches_cluster
@as_json
@can_watch
def status(is_json: bool) -> int:
    """Show each node: its roles, state, leaderships, offline partitions, and the lag of its metadata.

    A fenced broker is registered and out of service. Leaderships are due to return where the preferred
    replica is in sync and another one leads. `asked` is the state that `cordon`, `drain` or `decommission`
    asked for. Exits with 1 if a node is not ok, a partition has no leader, or the quorum has none.
    """
    is_balanced: bool | None = None
    states: Mapping[NodeId, str] = {}
    moving: Mapping[TopicPartition, Reassignment] = {}
    with admin(awaits_silent=False) as asked:
        cluster = asked.describe_cluster(include_fenced=True)
        topics = asked.list_topics(include_internal=True).values()
        quorum, reason = None, ""
        try:
            quorum = asked.describe_quorum()
        except SparklogError as error:
            reason = str(error)
        partitions = [partition for topic in topics for partition in topic.partitions]
        with suppress(SparklogError):  # the user may be allowed less
            states = asked.broker_states([one.node_id for one in cluster.nodes])
            moving = asked.list_reassignments()
        due = sum(_is_due(partition, states) for partition in partitions)
        if due and quorum is not None:
            with suppress(SparklogError):  # refused, or a controller that is no broker
                is_balanced = _is_balanced(asked, quorum.leader)
    rows = statuses(cluster, quorum, topics, states)
    offline = sum(partition.leader < 0 for partition in partitions)
    is_ok = quorum is not None and not offline and all(row.state == "ok" for row in rows)
    if is_json:
        print_json(
            {
                "cluster_id": cluster.cluster_id,
                "leader": quorum.leader if quorum is not None else None,
                "voters": [one.node_id for one in quorum.voters] if quorum is not None else None,
                "partitions": len(partitions),
                "offline_partitions": offline,
                "due_leaders": due,
                "reassignments": len(moving),
                "nodes": [row._asdict() for row in rows],
            }
        )
        return 0 if is_ok else 1
    print_line(
        "cluster",
        f"id={cluster.cluster_id}",
        f"nodes={len(rows)}",
        f"voters={len(quorum.voters) if quorum is not None else 'unknown'}",
        f"leader={quorum.leader if quorum is not None else 'none'}",
        f"partitions={len(partitions)}",
        f"offline={offline}",
        f"due_leaders={due}",
        f"reassignments={len(moving)}",
    )
    print_table(
        ["node", "address", "roles", "quorum", "state", "leaders", "offline", "lag", "replicas", "asked"],
        [
            [
                row.node,
                row.address,
                ",".join(row.roles),
                "leader" if row.is_leader else "voter" if "controller" in row.roles else "observer",
                row.state,
                row.leaders,
                row.offline,
                row.lag,
                row.replicas,
                row.asked,
            ]
            for row in rows
        ],
        emphasis={number: "yellow" for number, row in enumerate(rows) if row.asked != "active"}
        | {number: "red" for number, row in enumerate(rows) if row.state != "ok" or row.offline},
    )
    for row in rows:
        if (text := leaving_text(row)) is not None:
            say(text)
    if moving:
        say(f"{len(moving)} partitions are being reassigned: `sparklog partitions reassignments` shows each.")
    if quorum is None:
        print_line(f"the metadata quorum has no leader: {reason}", is_error=True)
    elif len(rows) > 1 and len(quorum.voters) == 1:
        say(f"The quorum has one voter: without node {quorum.voters[0].node_id}, metadata cannot change.")
    if due:
        say(_due_text(due, is_balanced=is_balanced))
    return 0 if is_ok else 1


def leaving_text(row: NodeStatus) -> str | None:
    """What is left to do for the state that was asked of a node, and which command shows why; None for an
    active node.
    """
    if row.asked == "decommissioned":
        if row.replicas:
            return (
                f"Node {row.node} is decommissioned, {row.replicas} replicas are left: "
                f"`sparklog cluster decommission {row.node}` shows why."
            )
        return f"Node {row.node} is decommissioned and has no replicas: stop it."
    if row.asked == "drained":
        left = f" {row.leaders} leaderships are left: `sparklog cluster drain {row.node}` shows why."
        return f"Node {row.node} is drained.{left if row.leaders else ''}"
    return None if row.asked == "active" else f"Node {row.node} is {row.asked}: it gets no new replicas."


def _is_due(partition: Partition, states: Mapping[NodeId, str]) -> bool:
    """Whether the preferred replica is in sync and may lead, and another one leads."""
    preferred = partition.replicas[0]
    may_lead = states.get(preferred) not in ("drained", "decommissioned")
    return may_lead and partition.leader >= 0 and partition.leader != preferred and preferred in partition.isr


def _is_balanced(asked: Admin, controller: int) -> bool | None:
    """Whether the controller gives leaderships back by itself; None if its setting is not known."""
    resource = ConfigResource("broker", str(controller))
    entry = asked.describe_resources([resource], [BALANCE_KEY])[resource].get(BALANCE_KEY)
    return None if entry is None else entry.value == "true"


def _due_text(due: int, *, is_balanced: bool | None) -> str:
    what = (
        "1 partition is led by another replica than the preferred one, which is in sync"
        if due == 1
        else f"{due} partitions are led by other replicas than the preferred ones, which are in sync"
    )
    if is_balanced is None:
        return f"{what}. `sparklog partitions elect --all` gives leadership back."
    if is_balanced:
        return f"{what}. Leadership returns by itself, or at once by `sparklog partitions elect --all`."
    return f"{what}. {BALANCE_KEY}=false: `sparklog partitions elect --all` gives leadership back."
