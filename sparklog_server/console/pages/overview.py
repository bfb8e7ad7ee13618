"""The first page: brokers, controller, space, and the rate of records."""

from collections.abc import Mapping
from contextlib import suppress

from starlette.responses import JSONResponse, Response

from sparklog.client.admin import Admin
from sparklog.client.admin_cluster import Cluster
from sparklog.client.admin_storage import LogDir
from sparklog.errors import BrokerError
from sparklog.model import NodeId
from sparklog_server.console.ask import Ask, get
from sparklog_server.console.brokers import broker_rows, partition_counts


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
        brokers=broker_rows(cluster, topics, dirs),
        health=partition_counts(topics),
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


ROUTES = [get("/", overview), get("/rates", rates)]
