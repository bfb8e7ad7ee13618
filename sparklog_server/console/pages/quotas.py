"""Quotas of users, client ids and addresses."""

from typing import Final

from starlette.responses import Response

from sparklog.client.admin.quotas import QuotaEntity
from sparklog.errors import SettingsError
from sparklog_server.config.units import in_unit_of
from sparklog_server.console.ask import Ask, Refused, get, post

KEYS: Final = {
    "producer_byte_rate": "bytes per second that are written, on each broker",
    "consumer_byte_rate": "bytes per second that are read, on each broker",
    "request_percentage": "time of request threads, in percent of one thread",
    "controller_mutation_rate": "partitions created and deleted per second",
    "connection_creation_rate": "connections per second; of an address only",
}
_KINDS: Final = ("user", "client-id", "ip")


async def quotas(ask: Ask) -> Response:
    """All quotas."""
    described = await ask.admin(lambda admin: admin.describe_client_quotas())
    rows = [(entity, key, value) for entity, values in described.items() for key, value in values.items()]
    return ask.page("quotas.html", rows=rows, keys=KEYS, kinds=_KINDS)


async def set_quota(ask: Ask) -> Response:
    """Set or remove one quota."""
    key, text = ask.required("key", "the quota"), ask.field("value").strip()
    parts: dict[str, str | None] = {}
    for kind in _KINDS:
        if ask.either(f"{kind}.default"):
            parts[kind] = None
        elif name := ask.either(kind):
            parts[kind] = name
    if not parts:
        raise Refused("say whose quota it is: a user, a client id or an address", "user")
    if "ip" in parts and len(parts) > 1:
        raise Refused("a quota of an address stands alone: leave user and client id out", "ip")
    value = None if ask.field("act") == "delete" else _number(key, text)
    entity = QuotaEntity(tuple(sorted(parts.items())))
    await ask.cluster.change(lambda admin: admin.alter_client_quotas({entity: {key: value}}))
    return ask.moved("/quotas", f"{key} of {entity} is {'removed' if value is None else 'set'}.")


def _number(key: str, text: str) -> float:
    try:
        number = float(in_unit_of(key, text))
    except SettingsError as error:
        raise Refused(str(error), "value") from None
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise Refused(f"{text[:40]!r}: a quota is a number above 0", "value")
    return number


ROUTES = [get("/quotas", quotas), post("/quotas", set_quota, form=quotas)]
