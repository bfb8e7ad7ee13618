"""Settings of topics, brokers, loggers, groups and client metrics: their values, sources and changes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, cast

from msgspec import Struct

from sparklog.client.admin.calls import Caller, ItemsFailed, raise_for, refusal, settle
from sparklog.errors import BrokerError
from sparklog.model import NodeId
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from sparklog.wire.messages.describe_configs import DescribeConfigsResourceResult

ResourceType = Literal["topic", "broker", "broker-logger", "group", "client-metrics"]
Operation = Literal["set", "delete", "append", "subtract"]

CONFIG_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
CONFIG_TYPES: Final = {
    1: "BOOLEAN",
    2: "STRING",
    3: "INT",
    4: "SHORT",
    5: "LONG",
    6: "DOUBLE",
    7: "LIST",
    8: "CLASS",
    9: "PASSWORD",
}

_TYPE_NUMBERS: Final[Mapping[ResourceType, int]] = {
    "topic": 2,
    "broker": 4,
    "broker-logger": 8,
    "client-metrics": 16,
    "group": 32,
}
_OF_NODES: Final[tuple[ResourceType, ...]] = ("broker", "broker-logger")
_TYPE_NAMES: Final = {number: name for name, number in _TYPE_NUMBERS.items()}
_OPERATIONS: Final[Mapping[Operation, int]] = {"set": 0, "delete": 1, "append": 2, "subtract": 3}


BROKER_STATE: Final = "sparklog.broker.state"
BrokerState = Literal["active", "cordoned", "drained", "decommissioned"]


class ConfigResource(Struct, frozen=True, order=True):
    """A resource that has settings. A broker is named by its node id as text; the empty name means all
    brokers. A `broker-logger` is named likewise: its settings are the levels of that broker's loggers.
    """

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name!r}" if self.name else "all brokers"


class ConfigSynonym(Struct, frozen=True):
    """A source of the value, in the order of precedence; sensitive values are None."""

    name: str
    value: str | None
    source: str


class ConfigEntry(Struct, frozen=True):
    """`source` is Kafka's name: DYNAMIC_TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG …; a sensitive
    value is None.
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    type: str
    documentation: str | None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def default(self) -> str | None:
        """The default value; None if the broker did not report it."""
        if self.source == "DEFAULT_CONFIG":
            return self.value
        return next((synonym.value for synonym in self.synonyms if synonym.source == "DEFAULT_CONFIG"), None)


class ConfigChange(Struct, frozen=True):
    """One change of one setting; `append` and `subtract` are for lists, `delete` takes no value."""

    name: str
    value: str | None = None
    operation: Operation = "set"


def describe_by_name(
    caller: Caller, topics: Iterable[str], brokers: Iterable[int]
) -> dict[str, dict[str, ConfigEntry]]:
    """See Admin.describe_configs."""
    resources = [ConfigResource("topic", name) for name in topics] + [
        ConfigResource("broker", str(node)) for node in brokers
    ]
    return {resource.name: entries for resource, entries in describe_configs(caller, resources).items()}


def describe_configs(
    caller: Caller, resources: Iterable[ConfigResource], keys: Iterable[str] | None = None
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    """See Admin.describe_resources."""
    deadline = caller.deadline()
    wanted = None if keys is None else list(keys)
    described: dict[ConfigResource, dict[str, ConfigEntry]] = {}
    errors: dict[ConfigResource, BrokerError] = {}
    is_any = wanted == [BROKER_STATE]
    for node, own in _by_broker(resources, is_any=is_any).items():
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(_TYPE_NUMBERS[resource.type], resource.name, wanted)
                for resource in own
            ],
            include_synonyms=True,
            include_documentation=wanted is None,
        )
        target = None if node is None else caller.require(node, deadline)
        reply = caller.ask(request, DescribeConfigsResponse, deadline, lambda _: (), node=target)
        for result in reply.results:
            resource = ConfigResource(_TYPE_NAMES.get(result.resource_type, "topic"), result.resource_name)
            error = refusal(result.error_code, str(resource), result.error_message)
            if error is None:
                described[resource] = {entry.name: _entry(entry) for entry in result.configs}
            else:
                errors[resource] = error
    return settle(described, errors)


def alter_configs(
    caller: Caller, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool
) -> None:
    """See Admin.alter_configs."""
    deadline = caller.deadline()
    errors: dict[ConfigResource, BrokerError] = {}
    done: dict[ConfigResource, None] = {}
    is_any = all(change.name == BROKER_STATE for own in changes.values() for change in own)
    for node, own in _by_broker(changes, is_any=is_any).items():
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    _TYPE_NUMBERS[resource.type],
                    resource.name,
                    [
                        AlterableConfig(change.name, _OPERATIONS[change.operation], change.value)
                        for change in changes[resource]
                    ],
                )
                for resource in own
            ],
            validate_only=validate_only,
        )
        # A broker's own settings can be validated only by that broker, which has its configuration file.
        target = None if node is None else caller.require(node, deadline)
        for result in caller.call(request, IncrementalAlterConfigsResponse, deadline, node=target).responses:
            resource = ConfigResource(_TYPE_NAMES.get(result.resource_type, "topic"), result.resource_name)
            error = refusal(result.error_code, str(resource), result.error_message)
            if error is None:
                done[resource] = None
            else:
                errors[resource] = error
    settle(done, errors)


def broker_states(caller: Caller, nodes: Iterable[int]) -> dict[NodeId, BrokerState]:
    """See Admin.broker_states."""
    resources = {ConfigResource("broker", str(node)): NodeId(node) for node in nodes}
    try:
        described = describe_configs(caller, resources, [BROKER_STATE])
    except ItemsFailed as failed:
        described = failed.results
    return {
        resources[resource]: cast(BrokerState, entries[BROKER_STATE].value or "active")
        for resource, entries in described.items()
        if BROKER_STATE in entries
    }


def set_broker_state(caller: Caller, node: int, state: BrokerState) -> None:
    """See Admin.set_broker_state."""
    change = ConfigChange(BROKER_STATE, state)
    if state == "active":
        change = ConfigChange(BROKER_STATE, operation="delete")
    alter_configs(caller, {ConfigResource("broker", str(node)): [change]}, validate_only=False)


def list_config_resources(caller: Caller, types: Iterable[ResourceType]) -> list[ConfigResource]:
    """See Admin.list_config_resources."""
    numbers = [_TYPE_NUMBERS[one] for one in types]
    # v0 has no types and lists only client metrics.
    request = ListConfigResourcesRequest(
        resource_types=[] if numbers == [_TYPE_NUMBERS["client-metrics"]] else numbers
    )
    reply = caller.ask(
        request, ListConfigResourcesResponse, caller.deadline(), lambda reply: [reply.error_code]
    )
    raise_for(reply.error_code, "resources with settings")
    found = (
        ConfigResource(_TYPE_NAMES[r.resource_type], r.resource_name)
        for r in reply.config_resources
        if r.resource_type in _TYPE_NAMES
    )
    return sorted(one for one in found if not numbers or _TYPE_NUMBERS[one.type] in numbers)


def _by_broker(
    resources: Iterable[ConfigResource], *, is_any: bool
) -> dict[int | None, list[ConfigResource]]:
    """Resources by the broker that must be asked; None is any, as for the state of a broker (`is_any`)."""
    homes: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        is_own = resource.type in _OF_NODES and resource.name and not is_any
        node = NodeId(int(resource.name)) if is_own else None
        homes.setdefault(node, []).append(resource)
    return homes


def _entry(config: "DescribeConfigsResourceResult") -> ConfigEntry:
    return ConfigEntry(
        config.name,
        None if config.is_sensitive else config.value,
        CONFIG_SOURCES.get(config.config_source, "UNKNOWN"),
        config.read_only,
        config.is_sensitive,
        CONFIG_TYPES.get(config.config_type, "UNKNOWN"),
        config.documentation or None,
        tuple(
            ConfigSynonym(
                one.name,
                None if config.is_sensitive else one.value,
                CONFIG_SOURCES.get(one.source, "UNKNOWN"),
            )
            for one in config.synonyms
        ),
    )
