"""Client quotas: validation and changes (KIP-546), entity by entity; a refused entity does not affect the
others.
"""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from sparklog.errors import ErrorCode
from sparklog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
    OpData,
)
from sparklog.wire.schema import INT32_MAX, INT64_MAX, Message
from sparklog_server.metadata.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    entity_of,
    record_of,
)
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX, TOO_MANY_RECORDS, Outcome, Refused

ENTITIES_MAX = 100_000
"""The maximum number of entities with quotas; Kafka has no bound."""

_FRACTION_MAX = 1e-6
_WHOLE: Mapping[str, tuple[int, str]] = {
    PRODUCER_BYTE_RATE: (INT64_MAX, "a LONG"),
    CONSUMER_BYTE_RATE: (INT64_MAX, "a LONG"),
    CONNECTION_CREATION_RATE: (INT32_MAX, "an INT"),
}
"""The keys with integer values, with their maximum and Kafka's name of their type."""

_OF_IPS = frozenset((CONNECTION_CREATION_RATE,))
_OF_CLIENTS = frozenset(
    (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
)


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest
) -> Outcome[Message, AlterClientQuotasResponse]:
    """Set and remove the quotas of entities; a value that is already set makes no record."""
    records: list[Message] = []
    results: dict[QuotaEntity, AlterClientQuotasResponseEntryData] = {}
    room = ENTITIES_MAX - len(image.quotas)
    for entry in request.entries:
        entity = entity_of(entry.entity)
        result = AlterClientQuotasResponseEntryData(
            error_message=None, entity=[EntityData(kind, name) for kind, name in entity]
        )
        try:
            if entity in results:
                raise Refused(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_text(entity)}")
            made = _altered(entity, entry.ops, image.quotas.get(entity, {}))
            room -= bool(made) and entity not in image.quotas
            if room < 0:
                raise Refused(ErrorCode.POLICY_VIOLATION, f"At most {ENTITIES_MAX} entities can have quotas.")
            records += made
        except Refused as refusal:
            result.error_code = refusal.code
            result.error_message = refusal.message
        results[entity] = result
    if len(records) > RECORDS_PER_REQUEST_MAX:
        for result in results.values():
            result.error_code = ErrorCode.POLICY_VIOLATION
            result.error_message = TOO_MANY_RECORDS
        records = []
    return Outcome(
        () if request.validate_only else tuple(records),
        AlterClientQuotasResponse(entries=list(results.values())),
    )


def _altered(entity: QuotaEntity, ops: Sequence[OpData], present: Mapping[str, float]) -> list[Message]:
    """The records of one entity; raises Refused."""
    keys = _keys_of(entity)
    wanted: dict[str, float | None] = {}
    for op in ops:
        if op.key in wanted:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Duplicate quota key {op.key} not updating quota for this entity {_text(entity)}",
            )
        wanted[op.key] = None if op.remove else op.value
    records: list[Message] = []
    for key, value in wanted.items():
        if value is not None:
            _check_value(key, value, keys)
        if value != present.get(key):
            records.append(record_of(entity, key, value))
    return records


def _keys_of(entity: QuotaEntity) -> frozenset[str]:
    """The quota keys that are valid for the entity; raises Refused with INVALID_REQUEST."""
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise Refused(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    names = dict(entity)
    if not names:
        raise Refused(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    if IP not in names:
        return _OF_CLIENTS
    if len(names) > 1:
        message = "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    ip = names[IP]
    try:
        if ip is not None:
            ip_address(ip)
    except ValueError:
        # Kafka resolves any other text as a host name; the controller cannot, since its decisions must be
        # deterministic.
        raise Refused(ErrorCode.INVALID_REQUEST, f"{ip} is not a valid IP or resolvable host.") from None
    return _OF_IPS


def _check_value(key: str, value: float, keys: frozenset[str]) -> None:
    reason = None
    if key not in keys:
        reason = f"Invalid configuration key {key}"
    elif not value > 0.0:  # also refuses NaN
        reason = f"Quota {key} must be greater than 0"
    elif key in _WHOLE:
        largest, kind = _WHOLE[key]
        if value > largest:
            reason = f"Proposed value for {key} is too large for {kind}."
        elif value % 1.0 > _FRACTION_MAX:
            reason = f"{key} cannot be a fractional value."
    if reason is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, reason)


def _text(entity: QuotaEntity) -> str:
    """The number in Kafka's notation."""
    return (
        "ClientQuotaEntity(entries={"
        + ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
        + "})"
    )
