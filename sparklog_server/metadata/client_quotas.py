"""Client quotas in the image: values by key, by entity (KIP-546).

An entity names a user, a client-id, both, or an ip. A name of None is the default entity of that type, for
all clients without quotas of their own.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from .records import ClientQuotaEntity, ClientQuotaRecord

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs, sorted by type."""

Quotas = Mapping[QuotaEntity, Mapping[str, float]]


class _Part(Protocol):
    entity_type: str
    entity_name: str | None


def entity_of(parts: Iterable[_Part]) -> QuotaEntity:
    """The entity of these parts; if a type occurs twice, the last one counts."""
    return tuple(sorted({part.entity_type: part.entity_name for part in parts}.items()))


def replay(quotas: dict[QuotaEntity, Mapping[str, float]], record: ClientQuotaRecord) -> QuotaEntity:
    """Apply one record to the table and return the entity that it changed."""
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
    """The record that sets a quota of an entity; None removes it."""
    parts = [ClientQuotaEntity(kind, name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)


def records_of_quotas(quotas: Quotas) -> Iterator[ClientQuotaRecord]:
    """The records that recreate the table."""
    for entity, numbers in quotas.items():
        for key, value in numbers.items():
            yield record_of(entity, key, value)
