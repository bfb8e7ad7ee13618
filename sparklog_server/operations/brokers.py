"""The state of each broker, and of all partitions, from what the cluster describes."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from sparklog.client.admin.cluster import Cluster
from sparklog.client.admin.storage import LogDir
from sparklog.client.admin.topics import Topic
from sparklog.model import NodeId


class BrokerRow(NamedTuple):
    """A broker; sizes in bytes, None if they are not known."""

    node: int
    address: str
    rack: str | None
    is_controller: bool
    is_fenced: bool
    leaders: int
    replicas: int
    out_of_sync: int
    used: int | None
    total: int | None
    usable: int | None
    offline_dirs: tuple[str, ...]


class PartitionCounts(NamedTuple):
    """Counts of the whole cluster: topics and partitions without internal ones, as lists of topics have them;
    offline and under-replicated partitions with them, since they stop groups and transactions.
    """

    topics: int
    partitions: int
    offline: int
    under_replicated: int


def broker_state(row: BrokerRow, silent: Collection[NodeId] = ()) -> str:
    """The state of a broker in a word or two, for `silent` ones as well."""
    if row.is_fenced:
        return "fenced"
    return "silent" if row.node in silent else "offline disk" if row.offline_dirs else "ok"


def broker_rows(
    cluster: Cluster, topics: Mapping[str, Topic], dirs: Mapping[NodeId, tuple[LogDir, ...]]
) -> list[BrokerRow]:
    """The brokers by id."""
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for topic in topics.values():
        for partition in topic.partitions:
            leaders[partition.leader] += 1
            replicas.update(partition.replicas)
            behind.update(one for one in partition.replicas if one not in partition.isr)
    found = []
    for node in cluster.nodes:
        own = dirs.get(node.node_id)
        sound = [one for one in own or () if one.error is None]
        found.append(
            BrokerRow(
                node.node_id,
                f"{node.host}:{node.port}",
                node.rack,
                node.node_id == cluster.controller_id,
                node.is_fenced,
                leaders[node.node_id],
                replicas[node.node_id],
                behind[node.node_id],
                None if own is None else sum(r.size_bytes for one in sound for r in one.replicas.values()),
                _sum([one.total_bytes for one in sound]),
                _sum([one.usable_bytes for one in sound]),
                tuple(one.path for one in own or () if one.error is not None),
            )
        )
    return found


def partition_counts(topics: Mapping[str, Topic]) -> PartitionCounts:
    """The state of all partitions."""
    partitions = [partition for topic in topics.values() for partition in topic.partitions]
    return PartitionCounts(
        sum(not topic.is_internal for topic in topics.values()),
        sum(len(topic.partitions) for topic in topics.values() if not topic.is_internal),
        sum(partition.leader < 0 for partition in partitions),
        sum(partition.is_under_replicated for partition in partitions),
    )


def _sum(sizes: list[int]) -> int | None:
    """The sum; None unless all are known."""
    return sum(sizes) if sizes and min(sizes) >= 0 else None
