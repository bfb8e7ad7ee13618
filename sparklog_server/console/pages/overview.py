"""The first page: brokers, controller, space, and the rate of records."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import NamedTuple

from starlette.responses import JSONResponse, Response

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.cluster import Cluster as ClusterDescription
from sparklog.client.admin.cluster import Feature, Quorum
from sparklog.client.admin.storage import LogDir
from sparklog.client.admin.topics import Topic
from sparklog.errors import BrokerError
from sparklog.model import NodeId
from sparklog_server.console.ask import Ask, get
from sparklog_server.console.clusters import Cluster, Soon, all_topics
from sparklog_server.operations.brokers import broker_rows, partition_counts
from sparklog_server.operations.surveys import described_by_all, listed_by_all, missing_of


class Space(NamedTuple):
    """The log directories by broker, and why they are not known if they are not; the brokers that are silent,
    and what is missing for that.
    """

    dirs: Mapping[NodeId, tuple[LogDir, ...]]
    reason: str | None = None
    silent: frozenset[NodeId] = frozenset()
    missing: tuple[str, ...] = ()


class Groups(NamedTuple):
    """The number of groups; None if a broker is missing, because a count without its groups would look like
    all of them.
    """

    number: int | None
    silent: frozenset[NodeId] = frozenset()
    missing: tuple[str, ...] = ()


def asked(
    cluster: Cluster,
) -> tuple[
    Awaitable[Soon[dict[str, Topic]]],
    Awaitable[Soon[ClusterDescription]],
    Awaitable[Soon[Space]],
    Awaitable[Soon[Groups]],
]:
    """What the page asks for, at once."""
    return (
        cluster.soon("topics", all_topics),
        cluster.soon("cluster", lambda admin: admin.describe_cluster(include_fenced=True)),
        cluster.soon("space", _space, without=Space({}, "a broker does not answer")),
        cluster.soon("groups", _groups, without=Groups(None)),
    )


async def overview(ask: Ask) -> Response:
    """The cluster in tables. A part that a broker holds up is that of before, with its age."""
    topics, cluster, space, groups = await asyncio.gather(*asked(ask.cluster))
    nodes = cluster.result.nodes
    ask.cluster.know(f"{node.host}:{node.port}" for node in nodes)
    return ask.page(
        "overview.html",
        cluster=cluster.result,
        brokers=broker_rows(cluster.result, topics.result, space.result.dirs),
        health=partition_counts(topics.result),
        groups=groups.result.number,
        no_sizes=space.result.reason,
        silent=space.result.silent | groups.result.silent,
        missing=list(dict.fromkeys([*space.result.missing, *groups.result.missing])),
        age_s=max(part.age_s for part in (topics, cluster, space, groups)),
        busiest=ask.session.samples.busiest(),
    )


def _space(admin: Admin) -> Space:
    try:
        answered = described_by_all(admin.describe_log_dirs)
    except BrokerError as error:
        return Space({}, str(error))
    return Space(answered.found, None, answered.silent, tuple(missing_of(answered.errors)))


def _groups(admin: Admin) -> Groups:
    try:
        listing = listed_by_all(admin.list_groups)
    except BrokerError:
        return Groups(None)
    number = None if listing.errors else len(listing.found)
    return Groups(number, listing.silent, tuple(missing_of(listing.errors)))


async def rates(ask: Ask) -> Response:
    """Records and bytes per second over time, of the cluster or of one topic, for a chart."""
    topic, samples = ask.query("topic"), ask.session.samples
    points = samples.of_topic(ask.cluster, topic) if topic else samples.total(ask.cluster)
    series = {"records/s": [point.records for point in points]}
    if any(point.bytes is not None for point in points):
        series["bytes/s"] = [point.bytes for point in points]
    return JSONResponse(
        {
            "times": [round(point.at_s, 1) for point in points],
            "series": {
                name: [None if rate is None else round(rate, 2) for rate in rates]
                for name, rates in series.items()
            },
            "is_partial": samples.is_partial,
        },
        headers={"Cache-Control": "no-store"},
    )


async def quorum(ask: Ask) -> Response:
    """Voters, observers and features."""

    def asked(admin: Admin) -> tuple[Quorum, dict[str, Feature]]:
        return admin.describe_quorum(), admin.describe_features()

    described, features = await ask.admin(asked)
    leader = next((one for one in described.voters if one.node_id == described.leader), None)
    return ask.page(
        "quorum.html",
        quorum=described,
        end=None if leader is None else leader.log_end_offset,
        endpoints={one.node_id: f"{one.host}:{one.port}" for one in described.endpoints},
        features=list(features.values()),
    )


ROUTES = [get("/", overview), get("/rates", rates), get("/quorum", quorum)]
