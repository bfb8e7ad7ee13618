"""The metadata quorum and the features of the cluster."""

from starlette.responses import Response

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.cluster import Feature, Quorum
from sparklog_server.console.ask import Ask, get


async def quorum(ask: Ask) -> Response:
    """Voters, observers and features."""

    def told(admin: Admin) -> tuple[Quorum, dict[str, Feature]]:
        return admin.describe_quorum(), admin.describe_features()

    described, features = await ask.admin(told)
    leader = next((one for one in described.voters if one.node_id == described.leader), None)
    return ask.page(
        "quorum.html",
        quorum=described,
        end=None if leader is None else leader.log_end_offset,
        endpoints={one.node_id: f"{one.host}:{one.port}" for one in described.endpoints},
        features=list(features.values()),
    )


ROUTES = [get("/quorum", quorum)]
