"""Changes of settings: AlterConfigs replaces all settings of a resource, IncrementalAlterConfigs changes
single keys (KIP-133, KIP-339).

The change of one resource is atomic; a refused resource does not affect the others
(ConfigurationControlManager).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum

from sparklog.errors import ErrorCode
from sparklog.wire.messages.alter_configs import AlterableConfig as AlterableReplacement
from sparklog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from sparklog.wire.messages.alter_configs import AlterConfigsResourceResponse as Replaced
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.messages.incremental_alter_configs import AlterConfigsResourceResponse as Altered
from sparklog.wire.schema import Message
from sparklog_server.config.keys import Kind, text_of
from sparklog_server.config.layers import Layers, default_of, dynamic_key
from sparklog_server.config.topic_settings import TopicSettings, topic_keys
from sparklog_server.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from sparklog_server.metadata.records import ConfigRecord
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX, TOO_MANY_RECORDS, Outcome, Refused

from .configs import check_lengths
from .min_isr import check_change, clearing_records
from .resources import ResourceChecks

VALUE_CHARACTERS_PER_REQUEST_MAX = 4 << 20
RESOURCES_MAX = 100_000
"""The maximum number of resources with settings: groups and subscriptions need not exist, so nothing else
bounds them.
"""


class Operation(IntEnum):
    """The operation of IncrementalAlterConfigs on a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = "it is one of " + ", ".join(f"{operation.value} ({operation.name})" for operation in Operation)
_TOPIC_DEFAULTS = TopicSettings()

Resource = tuple[int, str]
Answer = tuple[ErrorCode, str | None]


def incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, layers: Layers
) -> Outcome[Message, IncrementalAlterConfigsResponse]:
    """Change the resources of a request key by key; no resource, and no key of a resource, is named twice."""
    changes = _Changes(image, layers)
    answers = []
    for one in request.resources:
        resource = one.resource_type, one.resource_name
        try:
            changes.check_count(len(one.configs))
            answers.append(
                changes.alter(resource, altered(resource, image.configs.get(resource, {}), one.configs))
            )
        except Refused as refusal:
            answers.append((refusal.code, refusal.message))
    records, answers = changes.settled(answers)
    responses = [
        Altered(
            error_code=code,
            error_message=message,
            resource_type=one.resource_type,
            resource_name=one.resource_name,
        )
        for one, (code, message) in zip(request.resources, answers, strict=True)
    ]
    return Outcome(
        () if request.validate_only else records, IncrementalAlterConfigsResponse(responses=responses)
    )


def alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, layers: Layers
) -> Outcome[Message, AlterConfigsResponse]:
    """Replace all settings of the resources of a request; no resource, and no key of a resource, is named
    twice.
    """
    changes = _Changes(image, layers)
    answers = []
    for one in request.resources:
        resource = one.resource_type, one.resource_name
        replaced = replacing(image.configs.get(resource, {}), one.configs)
        try:
            changes.check_count(len(one.configs))
            answers.append(changes.alter(resource, replaced))
        except Refused as refusal:
            answers.append((refusal.code, refusal.message))
    records, answers = changes.settled(answers)
    responses = [
        Replaced(
            error_code=code,
            error_message=message,
            resource_type=one.resource_type,
            resource_name=one.resource_name,
        )
        for one, (code, message) in zip(request.resources, answers, strict=True)
    ]
    return Outcome(() if request.validate_only else records, AlterConfigsResponse(responses=responses))


class _Changes:
    """Collects the records for the resources of one request."""

    def __init__(self, image: MetadataImage, layers: Layers) -> None:
        self._image = image
        self._checks = ResourceChecks(image, layers)
        self._records: list[Message] = []
        self._characters = 0
        self._asked = 0
        self._begun = 0

    def check_count(self, count: int) -> None:
        """Count the requested changes; raises Refused above the maximum of one request."""
        self._asked += count
        if self._asked > RECORDS_PER_REQUEST_MAX:
            raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)

    def alter(self, resource: Resource, changes: Mapping[str, str | None]) -> Answer:
        """Add these changes of a resource; None removes a key. Raises Refused."""
        current = self._image.configs.get(resource, {})
        check_lengths(value for value in changes.values() if value is not None)
        check_change(self._image, resource, changes)
        after = {name: value for name, value in {**current, **changes}.items() if value is not None}
        self._checks.check(resource, after, changes)
        if after and not current:
            self._begun += 1
            if len(self._image.configs) + self._begun > RESOURCES_MAX:
                message = f"At most {RESOURCES_MAX} resources may have settings: remove those of another resource first."  # noqa: E501
                raise Refused(ErrorCode.POLICY_VIOLATION, message)
        resource_type, resource_name = resource
        for name, value in changes.items():
            if current.get(name) != value:
                self._records.append(
                    ConfigRecord(
                        resource_type=resource_type, resource_name=resource_name, name=name, value=value
                    )
                )
                self._characters += len(name) + len(value or "") + len(resource_name)
        return ErrorCode.NONE, None

    def settled(self, answers: list[Answer]) -> tuple[tuple[Message, ...], list[Answer]]:
        """The records and the replies; the records of all changes may exceed one batch."""
        is_small = self._asked <= RECORDS_PER_REQUEST_MAX and len(self._records) <= RECORDS_PER_REQUEST_MAX
        if is_small and self._characters <= VALUE_CHARACTERS_PER_REQUEST_MAX:
            return (*self._records, *clearing_records(self._image, self._records)), answers
        return (), [(ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)] * len(answers)


def replacing(current: Mapping[str, str], configs: Iterable[AlterableReplacement]) -> dict[str, str | None]:
    """The values by key that replace these, None for a key to remove."""
    replaced: dict[str, str | None] = {one.name: one.value for one in configs}
    for name in current:
        replaced.setdefault(name, None)
    return replaced


def altered(
    resource: Resource, current: Mapping[str, str], operations: Iterable[AlterableConfig]
) -> dict[str, str | None]:
    """The new values by key, None for a key to remove; raises Refused."""
    changes: dict[str, str | None] = {}
    for one in operations:
        if one.config_operation == Operation.DELETE:
            changes[one.name] = None
        elif one.config_operation == Operation.SET:
            changes[one.name] = one.value
        elif one.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            operation = Operation(one.config_operation)
            entries = _entries_before(resource[0], one.name, current.get(one.name), operation)
            check_lengths([one.value or ""])
            changes[one.name] = ",".join(_joined(entries, _split(one.value or ""), operation))
        else:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"Unknown operations type {one.config_operation}: {_OPERATIONS}"
            )
    return changes


def _entries_before(resource_type: int, name: str, current: str | None, operation: Operation) -> list[str]:
    """The entries of a list that the request changes, from its default if it is not set; raises Refused for a
    key that is no list.
    """
    default: str | None = None
    kind: Kind | None = None
    if resource_type == TOPIC_RESOURCE and name in topic_keys():
        field, key = topic_keys()[name]
        kind, default = key.kind, text_of(getattr(_TOPIC_DEFAULTS, field))
    elif resource_type == BROKER_RESOURCE and (found := dynamic_key(name)) is not None:
        kind, default = found.kind, default_of(name)
    if kind is not Kind.LIST:  # Kafka does not know the lists of groups and client metrics either
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {name} because its type is not LIST."
        )
    text = default if current is None else current
    return [entry for entry in (text or "").split(",") if entry]


def _joined(entries: list[str], values: list[str], operation: Operation) -> list[str]:
    if operation is Operation.APPEND:
        known = frozenset(entries)
        return [*entries, *(value for value in dict.fromkeys(values) if value not in known)]
    spared = []
    doomed = Counter(values)
    for entry in entries:
        if doomed[entry] > 0:
            doomed[entry] -= 1
        else:
            spared.append(entry)
    return spared


def _split(text: str) -> list[str]:
    """The parts between commas, split as in Java: trailing empty parts are dropped."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts
