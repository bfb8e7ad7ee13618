"""The first page: brokers, controller, space, and the rate of records."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from starlette.responses import JSONResponse, Response

from sparklog.client.admin import Admin
from sparklog.client.admin_cluster import Cluster
from sparklog.client.admin_storage import LogDir
from sparklog.client.admin_topics import Topic
from sparklog.errors import BrokerError
from sparklog.model import NodeId
from sparklog_server.console.ask import Ask, get


class BrokerRow(NamedTuple):
    """A broker on the page; sizes in bytes, None if they are not known."""

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


class Health(NamedTuple):
    """Counts of the whole cluster."""

    topics: int
    partitions: int
    offline: int
    under_replicated: int


async def overview(ask: Ask) -> Response:
    """The cluster in tables."""
    topics = await ask.cluster.topics()

    def told(admin: Admin) -> tuple[Cluster, Mapping[NodeId, tuple[LogDir, ...]], str | None, int | None]:
        dirs: Mapping[NodeId, tuple[LogDir, ...]] = {}
        reason = groups = None
        try:
            dirs = admin.describe_log_dirs()
        except BrokerError as error:
            reason = str(error)
        with suppress(BrokerError):
            groups = len(admin.list_groups())
        return admin.describe_cluster(include_fenced=True), dirs, reason, groups

    cluster, dirs, reason, groups = await ask.admin(told)
    ask.cluster.know(f"{node.host}:{node.port}" for node in cluster.nodes)
    return ask.page(
        "overview.html",
        cluster=cluster,
        brokers=rows(cluster, topics, dirs),
        health=health(topics),
        groups=groups,
        no_sizes=reason,
        busiest=ask.session.samples.busiest(),
    )


async def rates(ask: Ask) -> Response:
    """Records per second over time, of the cluster or of one topic, for a chart."""
    topic = ask.query("topic")
    samples = ask.session.samples
    if topic:
        points = await samples.of_topic(ask.cluster, topic)
    else:
        points = await samples.total(ask.cluster)
    return JSONResponse(
        {
            "times": [round(at, 1) for at, _ in points],
            "series": {"records/s": [round(rate, 2) for _, rate in points]},
            "is_partial": samples.is_partial,
        },
        headers={"Cache-Control": "no-store"},
    )


def rows(
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


def health(topics: Mapping[str, Topic]) -> Health:
    """The state of all partitions."""
    partitions = [partition for topic in topics.values() for partition in topic.partitions]
    return Health(
        sum(not topic.is_internal for topic in topics.values()),
        len(partitions),
        sum(partition.leader < 0 for partition in partitions),
        sum(partition.is_under_replicated for partition in partitions),
    )


def _sum(sizes: list[int]) -> int | None:
    """The sum; None unless all are known."""
    return sum(sizes) if sizes and min(sizes) >= 0 else None


ROUTES = [get("/", overview), get("/rates", rates)]
