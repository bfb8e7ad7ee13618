"""Client quotas: the limits of a user or client id in bytes per second, request time and controller
mutations.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct

from sparklog.client.admin.calls import Caller, raise_for, refusal, settle
from sparklog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from sparklog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

EntityType = Literal["user", "client-id", "ip"]
Match = Literal["exact", "default", "any"]

_MATCHES: Final[Mapping[Match, int]] = {"exact": 0, "default": 1, "any": 2}


class QuotaEntity(Struct, frozen=True, order=True):
    """The entity of a quota: a name per type. The name None is the default of that type; a type that is
    left out matches any.

    `of(user="alice")`, `of(user="alice", client_id=None)`.
    """

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, **parts: str | None) -> "QuotaEntity":
        """An entity by keywords: `user`, `client_id`, `ip`."""
        return cls(tuple(sorted((name.replace("_", "-"), value) for name, value in parts.items())))

    def __str__(self) -> str:
        return ", ".join(f"{kind} {'<default>' if name is None else repr(name)}" for kind, name in self.parts)


class QuotaFilter(Struct, frozen=True):
    """Selects entities of this type: with that name (`exact`), with the default name, or with any name."""

    entity_type: EntityType
    match: Match = "any"
    name: str | None = None


def describe_quotas(
    caller: Caller, filters: Iterable[QuotaFilter], *, is_strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """See Admin.describe_client_quotas."""
    components = [
        ComponentData(one.entity_type, _MATCHES[one.match], one.name if one.match == "exact" else None)
        for one in filters
    ]
    request = DescribeClientQuotasRequest(components, is_strict)
    reply = caller.ask(request, DescribeClientQuotasResponse, caller.deadline(), lambda _: ())
    raise_for(reply.error_code, "client quotas", reply.error_message)
    found = {
        QuotaEntity(tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity))): {
            value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)
        }
        for entry in reply.entries or ()
    }
    # The default of a type (None) is sorted before names.
    return {
        entity: found[entity]
        for entity in sorted(found, key=lambda entity: [(t, n is not None, n or "") for t, n in entity.parts])
    }


def alter_quotas(
    caller: Caller, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool
) -> None:
    """See Admin.alter_client_quotas."""
    entries = [
        AlterClientQuotasRequestEntryData(
            [EntityData(kind, name) for kind, name in entity.parts],
            [
                OpData(key, 0.0 if value is None else float(value), value is None)
                for key, value in ops.items()
            ],
        )
        for entity, ops in changes.items()
    ]
    reply = caller.call(
        AlterClientQuotasRequest(entries, validate_only), AlterClientQuotasResponse, caller.deadline()
    )
    results = {}
    for entry in reply.entries:
        entity = QuotaEntity(tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)))
        results[entity] = refusal(entry.error_code, str(entity), entry.error_message)
    settle(
        {one: None for one, error in results.items() if error is None},
        {one: error for one, error in results.items() if error is not None},
    )
