"""What is refused, and what is told, before a state is asked of nodes: cordoned, drained, decommissioned."""

from collections.abc import Collection, Sequence

from sparklog.client.admin.cluster import Quorum
from sparklog.model import NodeId
from sparklog_server.operations.moves import ClusterFacts
from sparklog_server.operations.refused import OperationRefused


def asked_nodes(facts: ClusterFacts, nodes: Sequence[int]) -> frozenset[NodeId]:
    """The nodes by their ids. Raises OperationRefused for one that is not registered, and that no partition
    lists, and where brokers have no states: Kafka's take the setting, and do nothing.
    """
    if not facts.states:
        raise OperationRefused(
            "these brokers cannot be cordoned, drained or decommissioned, as those of Kafka cannot; "
            "`sparklog partitions reassign` moves replicas"
        )
    registered = {one.node_id for one in facts.nodes}
    known = registered.union(*(one.replicas for one in facts.partitions.values()))
    for node in nodes:
        if node not in known:
            there = ",".join(map(str, sorted(registered)))
            raise OperationRefused(f"no node {node}; the cluster has {there}", "node")
    return frozenset(map(NodeId, nodes))


def require_room(facts: ClusterFacts, asked: Collection[NodeId]) -> None:
    """Raises OperationRefused if no other node would take replicas."""
    if not set(asked).issuperset(facts.open_nodes()):
        return
    others = [
        f"node {one.node_id} is {'down' if one.is_fenced else facts.states.get(one.node_id)}"
        for one in facts.nodes
        if one.node_id not in asked
    ]
    why = f": {', '.join(others)}" if others else ""
    raise OperationRefused(
        f"no other node would take replicas and leaderships{why}; nothing was changed", "node"
    )


def require_voter(quorum: Quorum | None, asked: Collection[NodeId]) -> None:
    """Raises OperationRefused if these nodes are all voters of the metadata quorum."""
    voters = {one.node_id for one in quorum.voters} if quorum is not None else set()
    if voters and voters.issubset(asked):
        raise OperationRefused(
            f"{nodes_text(asked)} all the voters of the metadata quorum: make another node a voter first, "
            "with `sparklog quorum add-voter`",
            "node",
        )


def too_high_factors(facts: ClusterFacts, asked: Collection[NodeId]) -> list[str]:
    """The topics with replicas on these nodes whose replication factor is above the other nodes that could
    have them: those replicas stay.
    """
    able = {node for node in facts.open_nodes() if node not in asked}
    return sorted(
        {
            at.topic
            for at, one in facts.partitions.items()
            if not set(one.replicas).isdisjoint(asked)
            and len(one.replicas) > len(able.union(node for node in one.replicas if node not in asked))
        }
    )


def nodes_text(nodes: Collection[NodeId]) -> str:
    """`node 3 is`, `nodes 3,4 are`."""
    listed = ",".join(map(str, sorted(nodes)))
    return f"node{'s' * (len(nodes) > 1)} {listed} {'are' if len(nodes) > 1 else 'is'}"
