"""Replicas on the move: what a cluster is doing, why a replica is still where it is, and the execution of a
plan in waves.

    facts (brokers, topics, reassignments, sizes) ──► plan ──► wave ──► wait until one has ended ──► next wave

A wave is AlterPartitionReassignments; the controller completes it whether or not the process that asked for
it still runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.admin.cluster import Node, Reassignment
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.client.admin.topics import Partition
from sparklog.errors import BrokerError
from sparklog.model import NodeId, TopicPartition
from sparklog_server.operations.balance import BalancedNode, PlacedPartition, PlannedMove

THROTTLE: Final = "sparklog.reassignment.throttled.rate"
CONCURRENT_MAX: Final = 20
"""The partitions that a plan moves at a time."""
_WAIT_S: Final = 0.5


class ClusterFacts(NamedTuple):
    """A cluster as its brokers describe it: `sizes` has the bytes of each replica, `states` what is asked of
    brokers, and both only what could be learned.
    """

    nodes: tuple[Node, ...]
    states: Mapping[NodeId, str]
    partitions: Mapping[TopicPartition, Partition]
    reassignments: Mapping[TopicPartition, Reassignment]
    sizes: Mapping[tuple[NodeId, TopicPartition], int]

    def size_of(self, at: TopicPartition) -> int:
        """The bytes of a partition: of its leader's replica, or of the largest that is known."""
        partition = self.partitions[at]
        known = [self.sizes.get((node, at), 0) for node in partition.replicas]
        return self.sizes.get((partition.leader, at), max(known, default=0))

    def open_nodes(self) -> list[NodeId]:
        """The brokers that may get replicas."""
        return [
            one.node_id
            for one in self.nodes
            if not one.is_fenced and self.states.get(one.node_id, "active") == "active"
        ]

    def placed(self) -> list[PlacedPartition]:
        """The partitions for a plan: all but those that are being reassigned already."""
        return [
            PlacedPartition(at, partition.replicas, self.size_of(at))
            for at, partition in self.partitions.items()
            if at not in self.reassignments
        ]

    def balanced_nodes(self) -> list[BalancedNode]:
        """The brokers for a plan."""
        able = set(self.open_nodes())
        return [BalancedNode(one.node_id, one.rack, one.node_id in able) for one in self.nodes]


def facts_of(cluster: Admin, topics: Sequence[str] | None = None) -> ClusterFacts:
    """Ask the brokers; of all topics if none is named. A broker that does not answer contributes no sizes."""
    nodes = cluster.describe_cluster(include_fenced=True).nodes
    if topics is None:
        described = cluster.list_topics(include_internal=True)
    else:
        described = cluster.describe_topics(topics)
    partitions = {
        TopicPartition(topic.name, one.partition): one
        for topic in described.values()
        for one in topic.partitions
    }
    alive = [one.node_id for one in nodes if not one.is_fenced]
    try:
        directories = cluster.describe_log_dirs(alive)
    except ItemsFailed as failed:
        directories = failed.results
    sizes = {
        (node, at): replica.size_bytes
        for node, found in directories.items()
        for directory in found
        for at, replica in directory.replicas.items()
        if not replica.is_future
    }
    states = cluster.broker_states([one.node_id for one in nodes])
    return ClusterFacts(nodes, states, partitions, cluster.list_reassignments(), sizes)


class Remaining(NamedTuple):
    """A replica that is still on a node which is to have none, and why, in one line."""

    at: TopicPartition
    reason: str


def remaining_on(facts: ClusterFacts, node: NodeId) -> list[Remaining]:
    """The replicas that are left on a node, each with the reason."""
    return [
        Remaining(at, _reason(facts, at, partition, node))
        for at, partition in sorted(facts.partitions.items())
        if node in partition.replicas
    ]


def leading_on(facts: ClusterFacts, node: NodeId) -> list[Remaining]:
    """The partitions that a node still leads, each with the reason."""
    found = []
    for at, partition in sorted(facts.partitions.items()):
        if partition.leader == node:
            others = [one for one in partition.replicas if one != node]
            in_sync = [one for one in partition.isr if one != node]
            if not others:
                reason = "it has no other replica"
            elif not in_sync:
                reason = f"no other replica is in sync: {_behind(facts, at, partition, others)}"
            else:
                reason = "its leadership is about to move"
            found.append(Remaining(at, reason))
    return found


def _reason(facts: ClusterFacts, at: TopicPartition, partition: Partition, node: NodeId) -> str:
    moving = facts.reassignments.get(at)
    if moving is not None and node in moving.removing:
        waiting = [one for one in moving.adding if one not in partition.isr]
        if waiting:
            return f"its successor is not caught up: {_behind(facts, at, partition, waiting)}"
        return "too few of the replicas that stay are in sync"
    if moving is not None:
        return "another reassignment of it is in progress: it comes next"
    others = [one for one in partition.replicas if one != node]
    free = [one for one in facts.open_nodes() if one not in others and one != node]
    if not free:
        factor, count = len(partition.replicas), len([one for one in facts.open_nodes() if one != node])
        return (
            f"no room elsewhere: {factor} replicas need {factor} open nodes besides it, and there are {count}"
        )
    return "it waits for its turn"


def _behind(facts: ClusterFacts, at: TopicPartition, partition: Partition, nodes: Sequence[NodeId]) -> str:
    fenced = {one.node_id for one in facts.nodes if one.is_fenced}
    known = {one.node_id for one in facts.nodes}
    whole = facts.size_of(at)
    parts = []
    for node in nodes:
        if node not in known or node in fenced:
            parts.append(f"node {node} is down")
        elif node in partition.isr:
            parts.append(f"node {node} is in sync")
        else:
            missing = max(whole - facts.sizes.get((node, at), 0), 0)
            parts.append(f"node {node} is {missing / 1e6:.0f} MB behind")
    return ", ".join(parts)


class Progress(NamedTuple):
    """How far a plan is: partitions that have ended, that move, and that wait; and refusals so far."""

    done: int
    moving: int
    waiting: int
    bytes_left: int
    refused: Mapping[TopicPartition, BrokerError]


def execute(
    cluster: Admin,
    moves: Sequence[PlannedMove],
    *,
    sleep: Callable[[float], None],
    throttle: int | None = None,
    concurrent_max: int = CONCURRENT_MAX,
) -> Iterator[Progress]:
    """Execute a plan, and yield how far it is, after each look at the cluster. A partition that is refused is
    left out, and reported at the end.

    `throttle` bounds the bytes a second of each broker until the last replica has caught up. It is set once
    the first moves have begun: the controller removes one that has nothing to throttle.
    """
    waiting, moving = [*moves], dict[TopicPartition, PlannedMove]()
    refused: dict[TopicPartition, BrokerError] = {}
    done, is_throttled = 0, throttle is None
    while True:
        in_progress = cluster.list_reassignments([*moving]) if moving else {}
        ended = [at for at in moving if at not in in_progress]
        for at in ended:
            del moving[at]
        done += len(ended)
        wave = waiting[: max(concurrent_max - len(moving), 0)]
        del waiting[: len(wave)]
        if wave:
            failed = _begin(cluster, {one.at: one.after for one in wave})
            refused |= failed
            moving |= {one.at: one for one in wave if one.at not in failed}
            if not is_throttled and moving:
                assert throttle is not None
                set_throttle(cluster, throttle)
                is_throttled = True
        left = sum(one.bytes for one in (*moving.values(), *waiting))
        yield Progress(done, len(moving), len(waiting), left, dict(refused))
        if not moving and not waiting:
            return
        sleep(_WAIT_S)


def set_throttle(cluster: Admin, rate: int) -> None:
    """Bound the bytes a second at which replicas catch up, on each broker, until all have."""
    cluster.alter_configs({ConfigResource("broker", ""): [ConfigChange(THROTTLE, str(rate))]})


def cancel_all(cluster: Admin) -> dict[TopicPartition, BrokerError | None]:
    """Give every partition that is being reassigned its original replicas; those refused with the error."""
    found = cluster.list_reassignments()
    failed = _begin(cluster, dict.fromkeys(found))
    return {at: failed.get(at) for at in found}


def _begin(
    cluster: Admin, moves: Mapping[TopicPartition, Sequence[NodeId] | None]
) -> dict[TopicPartition, BrokerError]:
    if not moves:
        return {}
    try:
        cluster.alter_reassignments(moves)
    except ItemsFailed as failed:
        return {at: error for at, error in failed.errors.items() if isinstance(error, BrokerError)}
    return {}
