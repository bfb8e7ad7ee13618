"""Settings of brokers: those that differ from their defaults, or all, with their documentation."""

from starlette.responses import Response

from sparklog.client.admin import Admin
from sparklog.client.admin_cluster import Cluster
from sparklog.client.admin_configs import ConfigEntry, ConfigResource
from sparklog_server.console.ask import Ask, get, post
from sparklog_server.console.pages.topic import setting_change

_DEFAULT_SOURCES = ("DEFAULT_CONFIG", "UNKNOWN")


async def settings(ask: Ask) -> Response:
    """The settings of one broker."""
    search, shows_all = ask.query("q"), ask.query("all") == "1"
    edited, wanted = ask.query("edit") or ask.field("key"), ask.query("broker") or ask.field("shown")

    def told(admin: Admin) -> tuple[Cluster, int, dict[str, ConfigEntry]]:
        cluster = admin.describe_cluster()
        ids = [node.node_id for node in cluster.nodes]
        broker = next((node for node in ids if str(node) == wanted), ids[0])
        return cluster, broker, admin.describe_configs(brokers=[broker])[str(broker)]

    cluster, broker, entries = await ask.admin(told)
    rows = [
        entry
        for name, entry in sorted(entries.items())
        if search.lower() in name.lower()
        and (shows_all or bool(search) or name == edited or entry.source not in _DEFAULT_SOURCES)
    ]
    return ask.page(
        "settings.html",
        cluster=cluster,
        broker=broker,
        rows=rows,
        search=search,
        shows_all=shows_all,
        edited=edited,
    )


async def set_setting(ask: Ask) -> Response:
    """Change a setting of one broker, or of all."""
    broker = ask.field("broker")
    change = setting_change(ask)
    resource = ConfigResource("broker", broker)
    await ask.cluster.change(lambda admin: admin.alter_configs({resource: [change]}))
    of = f"broker {broker}" if broker else "all brokers"
    return ask.moved("/settings", f"{change.name} of {of} is changed.", broker=ask.field("shown"))


ROUTES = [get("/settings", settings), post("/settings", set_setting, form=settings)]
