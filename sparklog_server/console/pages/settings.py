"""Settings of brokers: those that differ from their defaults, or all, with their documentation."""

from starlette.responses import Response

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.cluster import Cluster, Node
from sparklog.client.admin.configs import ConfigEntry, ConfigResource
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, RequestTimeout
from sparklog_server.console.ask import Ask, get, post
from sparklog_server.console.pages.topic import setting_change

_DEFAULT_SOURCES = ("DEFAULT_CONFIG", "UNKNOWN")


async def settings(ask: Ask) -> Response:
    """The settings of one broker: the one that is named, or the first in service."""
    search, shows_all = ask.query("q"), ask.query("all") == "1"
    edited, wanted = ask.query("edit") or ask.field("key"), ask.query("broker") or ask.field("shown")

    def asked(admin: Admin) -> tuple[Cluster, Node, dict[str, ConfigEntry], str]:
        cluster = admin.describe_cluster(include_fenced=True)
        broker = _chosen(cluster, wanted)
        if broker.is_fenced:
            return (
                cluster,
                broker,
                {},
                f"Broker {broker.node_id} is fenced: only the broker has its settings.",
            )
        try:
            return cluster, broker, admin.describe_configs(brokers=[broker.node_id])[str(broker.node_id)], ""
        except (ConnectionFailed, RequestTimeout) as error:
            return cluster, broker, {}, f"Broker {broker.node_id} does not answer: {error}"

    cluster, broker, entries, problem = await ask.admin(asked)
    rows = [
        entry
        for name, entry in sorted(entries.items())
        if search.lower() in name.lower()
        and (shows_all or bool(search) or name == edited or entry.source not in _DEFAULT_SOURCES)
    ]
    return ask.page(
        "settings.html",
        503 if problem else None,
        cluster=cluster,
        broker=broker.node_id,
        problem_text=problem,
        rows=rows,
        search=search,
        shows_all=shows_all,
        edited=edited,
    )


def _chosen(cluster: Cluster, wanted: str) -> Node:
    """The broker of that id; the first in service if none is named. Raises BrokerError for an unknown one."""
    if not wanted:
        return next((node for node in cluster.nodes if not node.is_fenced), cluster.nodes[0])
    for node in cluster.nodes:
        if str(node.node_id) == wanted:
            return node
    known = ", ".join(str(node.node_id) for node in cluster.nodes)
    raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no broker {wanted!r}; there are {known}")


async def set_setting(ask: Ask) -> Response:
    """Change a setting of one broker, or of all."""
    broker = ask.field("broker")
    change = setting_change(ask)
    resource = ConfigResource("broker", broker)
    await ask.cluster.change(lambda admin: admin.alter_configs({resource: [change]}))
    of = f"broker {broker}" if broker else "all brokers"
    return ask.moved("/settings", f"{change.name} of {of} is changed.", broker=ask.field("shown"))


ROUTES = [get("/settings", settings), post("/settings", set_setting, form=settings)]
