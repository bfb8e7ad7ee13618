"""Client quotas as the image has them: numbers by key, by the entity that they hold for (KIP-546).

An entity names up to two of user and client-id, or an ip; a name of None is the default of that type, for
all who have none of their own.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from .records import ClientQuotaEntity, ClientQuotaRecord

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs, sorted by type."""

Quotas = Mapping[QuotaEntity, Mapping[str, float]]


class _Part(Protocol):
    entity_type: str
    entity_name: str | None


def entity_of(parts: Iterable[_Part]) -> QuotaEntity:
    """The entity that these parts name; of a type that comes twice the last counts."""
    return tuple(sorted({part.entity_type: part.entity_name for part in parts}.items()))


def replay(quotas: dict[QuotaEntity, Mapping[str, float]], record: ClientQuotaRecord) -> QuotaEntity:
    """Take one record into the table, and tell whose numbers it changed."""
    entity = entity_of(record.entity)
    numbers = dict(quotas.get(entity, {}))
    if record.remove:
        numbers.pop(record.key, None)
    else:
        numbers[record.key] = record.value
    if numbers:
        quotas[entity] = numbers
    else:
        quotas.pop(entity, None)
    return entity


def record_of(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """The record that sets a number of an entity, or removes it for None."""
    parts = [ClientQuotaEntity(kind, name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)


def records_of_quotas(quotas: Quotas) -> Iterator[ClientQuotaRecord]:
    """The records that make the table from nothing."""
    for entity, numbers in quotas.items():
        for key, value in numbers.items():
            yield record_of(entity, key, value)
