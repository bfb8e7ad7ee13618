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
from sparklog.client.admin.storage import LogDir
from sparklog.client.admin.topics import Partition
from sparklog.errors import BrokerError, SparklogError
from sparklog.model import NodeId, TopicPartition
from sparklog_server.config.layers import REASSIGNMENT_RATE
from sparklog_server.operations.balance import BalancedNode, PlacedPartition, PlannedMove

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

    @property
    def alive(self) -> frozenset[NodeId]:
        """The brokers in service."""
        return frozenset(one.node_id for one in self.nodes if not one.is_fenced)

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
    sizes = _sizes(
        cluster,
        [one.node_id for one in nodes if not one.is_fenced],
        None if topics is None else [*partitions],
    )
    listed = {node for one in partitions.values() for node in one.replicas}
    states = cluster.broker_states(sorted(listed.union(one.node_id for one in nodes)))
    reassignments = cluster.list_reassignments(None if topics is None else [*partitions])
    return ClusterFacts(nodes, states, partitions, reassignments, sizes)


def _sizes(
    cluster: Admin, nodes: Sequence[NodeId], partitions: Sequence[TopicPartition] | None
) -> dict[tuple[NodeId, TopicPartition], int]:
    """The bytes of replicas on these nodes, as far as the nodes tell them."""
    if not nodes:
        return {}
    try:
        found = cluster.describe_log_dirs(nodes, partitions=partitions)
    except ItemsFailed as failed:
        found = failed.results
    except SparklogError:  # a node has gone since it was listed
        return {}
    return replica_sizes(found)


def replica_sizes(
    found: Mapping[NodeId, Sequence[LogDir]],
) -> dict[tuple[NodeId, TopicPartition], int]:
    """The bytes of each replica in these directories; without those that move there from another one."""
    return {
        (node, at): replica.size_bytes
        for node, directories in found.items()
        for directory in directories
        for at, replica in directory.replicas.items()
        if not replica.is_future
    }


class Remaining(NamedTuple):
    """A replica or leadership that is still on a node which is to have none, and why, in one line. It is
    stuck if it waits for what only an operator does: for a node that is down, or for room.
    """

    at: TopicPartition
    reason: str
    is_stuck: bool = False


def remaining_on(facts: ClusterFacts, node: NodeId) -> list[Remaining]:
    """The replicas that are left on a node, each with the reason."""
    return [
        Remaining(at, *_reason(facts, at, partition, node))
        for at, partition in sorted(facts.partitions.items())
        if node in partition.replicas
    ]


def leading_on(facts: ClusterFacts, node: NodeId) -> list[Remaining]:
    """The partitions that a node still leads, each with the reason."""
    found = []
    for at, partition in sorted(facts.partitions.items()):
        if partition.leader != node:
            continue
        others = [one for one in partition.replicas if one != node]
        if not others:
            found.append(Remaining(at, "it has no other replica", is_stuck=True))
        elif not any(one != node for one in partition.isr):
            behind = _behind(facts, at, partition, others)
            is_stuck = facts.alive.isdisjoint(others)
            found.append(Remaining(at, f"no other replica is in sync: {behind}", is_stuck))
        else:
            found.append(Remaining(at, "its leadership is about to move"))
    return found


def reassigning(facts: ClusterFacts) -> list[Remaining]:
    """The partitions that are being reassigned, each with what it waits for."""
    return [
        Remaining(at, *_moving(facts, at, facts.partitions[at], moving))
        for at, moving in sorted(facts.reassignments.items())
        if at in facts.partitions
    ]


def behind_of(facts: ClusterFacts, at: TopicPartition) -> int:
    """The bytes that the new replicas of a partition which is being reassigned still lack, all together."""
    return sum(
        max(facts.size_of(at) - facts.sizes.get((node, at), 0), 0)
        for node in facts.reassignments[at].adding
        if node not in facts.partitions[at].isr
    )


def _reason(facts: ClusterFacts, at: TopicPartition, partition: Partition, node: NodeId) -> tuple[str, bool]:
    moving = facts.reassignments.get(at)
    if moving is not None and node in moving.removing:
        return _moving(facts, at, partition, moving)
    if moving is not None:
        return "another reassignment of it is in progress: it comes next", False
    others = [one for one in partition.replicas if one != node]
    able = [one for one in facts.open_nodes() if one != node]
    if all(one in others for one in able):
        factor = len(partition.replicas)
        needed = f"a replication factor of {factor} needs {factor} open node{'s' * (factor > 1)} besides it"
        return f"no room elsewhere: {needed}, and there are {len(able)}", True
    return "it waits for its turn", False


def _moving(
    facts: ClusterFacts, at: TopicPartition, partition: Partition, moving: Reassignment
) -> tuple[str, bool]:
    if partition.leader < 0:
        sources = [one for one in partition.replicas if one not in moving.adding]
        return f"it has no leader to copy from: {_behind(facts, at, partition, sources)}", True
    waiting = [one for one in moving.adding if one not in partition.isr]
    if waiting:
        reason = f"a new replica has not caught up: {_behind(facts, at, partition, waiting)}"
        return reason, not facts.alive.issuperset(waiting)
    staying = [one for one in partition.replicas if one not in moving.removing and one not in partition.isr]
    if staying:
        reason = f"a replica that stays is not in sync: {_behind(facts, at, partition, staying)}"
        return reason, facts.alive.isdisjoint(staying)
    return "it is about to end", False


def _behind(facts: ClusterFacts, at: TopicPartition, partition: Partition, nodes: Sequence[NodeId]) -> str:
    known = {one.node_id for one in facts.nodes}
    whole = facts.size_of(at)
    parts = []
    for node in nodes:
        if node not in known:
            parts.append(f"node {node} is not registered")
        elif node not in facts.alive:
            parts.append(f"node {node} is down")
        elif node in partition.isr:
            parts.append(f"node {node} is in sync")
        else:
            missing = max(whole - facts.sizes.get((node, at), 0), 0)
            size = "less than 1" if missing < 1e6 else f"{missing / 1e6:.0f}"
            parts.append(f"node {node} is {size} MB behind")
    return ", ".join(parts)


class Progress(NamedTuple):
    """How far a plan is: partitions that have ended, that move, and that wait; the bytes that are not copied
    yet; refusals so far.
    """

    done: int
    moving: tuple[TopicPartition, ...]
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
    the first moves have begun, and again with each wave: the controller removes one that has nothing to
    throttle.
    """
    waiting, moving = [*moves], dict[TopicPartition, PlannedMove]()
    refused: dict[TopicPartition, BrokerError] = {}
    done = 0
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
            begun = {one.at: one for one in wave if one.at not in failed}
            moving |= begun
            if throttle is not None and any(one.added for one in begun.values()):
                set_throttle(cluster, throttle)
        left = sum(one.bytes for one in waiting) + _left(cluster, moving)
        yield Progress(done, tuple(moving), len(waiting), left, dict(refused))
        if not moving and not waiting:
            return
        if moving:
            sleep(_WAIT_S)


def _left(cluster: Admin, moving: Mapping[TopicPartition, PlannedMove]) -> int:
    """The bytes that these moves have still to copy, by the sizes of the new replicas."""
    nodes = sorted({node for one in moving.values() for node in one.added})
    sizes = _sizes(cluster, nodes, [*moving])
    return sum(
        max(one.bytes // len(one.added) - sizes.get((node, at), 0), 0)
        for at, one in moving.items()
        for node in one.added
    )


def set_throttle(cluster: Admin, rate: int) -> None:
    """Bound the bytes a second at which replicas catch up, on each broker, until all have."""
    cluster.alter_configs({ConfigResource("broker", ""): [ConfigChange(REASSIGNMENT_RATE, str(rate))]})


def cancel(
    cluster: Admin, partitions: Sequence[TopicPartition] | None = None
) -> dict[TopicPartition, BrokerError | None]:
    """Give these partitions, or all that are being reassigned, their original replicas; those refused with
    the error.
    """
    found = cluster.list_reassignments() if partitions is None else partitions
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
