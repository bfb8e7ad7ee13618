"""DescribeConfigs and ListConfigResources: settings and the source of each value (KIP-133, KIP-226, KIP-569,
KIP-1142).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from sparklog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.session import AnsweredInSteps, Call
from sparklog_server.config.describe import (
    ConfigRow,
    broker_row,
    describe_broker,
    describe_client_metrics,
    describe_cluster,
    describe_group,
    describe_topic,
)
from sparklog_server.config.layers import BROKER_STATE, Layers
from sparklog_server.controller.resources import CLIENT_METRICS_RESOURCE, GROUP_RESOURCE
from sparklog_server.controller.topic_names import check_name
from sparklog_server.metadata.entries import BrokerState
from sparklog_server.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from sparklog_server.outcome import Refused

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort


LOGGER_RESOURCE, LOGGER_SOURCE = 8, 6
LISTED_TYPES = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE, LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE)
"""The resource types that ListConfigResources lists since version 1, in the order of its response; version 0
lists only client metrics.
"""

REFUSED_BY_TYPE = {
    TOPIC_RESOURCE: (Resource.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    GROUP_RESOURCE: (Resource.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}
"""The resource to authorize, and the error code of a refusal, by type; the other types belong to the
cluster.
"""


def describe_configs(
    context: "AdministrationPort", call: Call, request: DescribeConfigsRequest, now: Instant
) -> AnsweredInSteps:
    """One result for each resource, in the order of the request; a repeated resource gets no second
    result.
    """
    told: set[tuple[int, str]] = set()
    description = _Description(context, request)
    results = []
    for resource in request.resources:
        yield
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        result.error_message = ""  # as in Kafka where there is no error
        key = (resource.resource_type, resource.resource_name)
        try:
            if key in told:
                # A repeated resource costs four bytes of the request and fifty thousand of the response.
                # Kafka's own client cannot repeat one.
                raise Refused(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
            check_allowed(
                context, call, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
            )
            result.configs = description.of(resource)
        except Refused as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
        told.add(key)
        results.append(result)
    return DescribeConfigsResponse(results=results)


def list_config_resources(
    context: "AdministrationPort", call: Call, request: ListConfigResourcesRequest, now: Instant
) -> ListConfigResourcesResponse:
    """The names of the resources with settings; groups and subscriptions only with overrides."""
    if not context.allow(call, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    listed = LISTED_TYPES if call.version > 0 else (CLIENT_METRICS_RESOURCE,)
    wanted = frozenset(request.resource_types or listed)
    if not wanted.issubset(listed):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = context.image
    brokers = [str(node_id) for node_id in image.brokers]
    names: dict[int, list[str]] = {
        BROKER_RESOURCE: brokers,
        LOGGER_RESOURCE: brokers,
        TOPIC_RESOURCE: list(image.topics_by_name),
    }
    for own in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        names[own] = (
            [name for resource_type, name in image.configs if resource_type == own] if own in wanted else []
        )
    resources = [
        ConfigResource(resource_name=name, resource_type=one)
        for one in listed
        if one in wanted
        for name in names[one]
    ]
    return ListConfigResourcesResponse(config_resources=resources)


def check_allowed(
    context: "AdministrationPort", call: Call, operation: Operation, resource_type: int, name: str
) -> None:
    """Raise Refused unless the caller is authorized for a resource that has settings."""
    resource, code = REFUSED_BY_TYPE.get(
        resource_type, (Resource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    )
    if not context.allow(call, operation, resource, CLUSTER_NAME if resource is Resource.CLUSTER else name):
        raise Refused(code)


class _Description:
    """The results of one request. Resources without overrides share their rows, which are made once."""

    def __init__(self, context: "AdministrationPort", request: DescribeConfigsRequest) -> None:
        self._context = context
        self._request = request
        self._alike: dict[int, list[DescribeConfigsResourceResult]] = {}

    def of(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        """The requested rows; raises Refused."""
        resource_type, name = resource.resource_type, resource.resource_name
        layers = self._context.live.layers
        own = self._context.image.configs.get((resource_type, name), {})
        if resource_type == TOPIC_RESOURCE:
            check_name(name)
            if name not in self._context.image.topics_by_name:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return self._rows(resource, lambda: describe_topic(layers, own), is_alike=not own)
        if resource_type == BROKER_RESOURCE:
            if name == "":
                return self._rows(resource, lambda: describe_cluster(layers))
            if resource.configuration_keys == [BROKER_STATE] and name.isdecimal():
                return self._state(NodeId(int(name)))
            self._check_node(name, "expected {} or empty string")
            return self._rows(resource, lambda: describe_broker(layers))
        if resource_type == GROUP_RESOURCE:
            _check_named(name, "Group name must not be empty")
            return self._rows(resource, lambda: describe_group(layers, own), is_alike=not own)
        if resource_type == CLIENT_METRICS_RESOURCE:
            _check_named(name, "Client metrics subscription name must not be empty")
            return self._rows(resource, lambda: describe_client_metrics(own), is_alike=not own)
        if resource_type == LOGGER_RESOURCE:
            _check_named(name, "Broker id must not be empty")
            self._check_node(name, "expected {}")
            return self._loggers(resource)
        raise Refused(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no configuration here")

    def _state(self, node: NodeId) -> list[DescribeConfigsResourceResult]:
        """The state that is asked of a broker, which any broker knows."""
        image = self._context.image
        if node not in image.brokers and node not in image.broker_states:
            raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node} found.")
        state = image.broker_states.get(node, BrokerState.ACTIVE).value
        layers = Layers.kept(self._context.settings, cluster={}, broker={BROKER_STATE: state})
        return [self._row(broker_row(BROKER_STATE, layers))]

    def _loggers(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        """The level in force of each logger of this broker."""
        wanted = resource.configuration_keys
        return [
            DescribeConfigsResourceResult(
                name=name,
                value=level.name,
                config_source=LOGGER_SOURCE,
                documentation="" if self._request.include_documentation else None,
            )
            for name, level in self._context.live.loggers.levels().items()
            if not wanted or name in wanted
        ]

    def _check_node(self, name: str, expected: str) -> None:
        node_id = str(self._context.settings.node_id)
        if not name.removeprefix("-").isdecimal() or not name.isascii():
            raise Refused(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if name != node_id:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, {expected.format(node_id)}, but received {name}",
            )

    def _rows(
        self,
        resource: DescribeConfigsResource,
        describe: Callable[[], list[ConfigRow]],
        *,
        is_alike: bool = False,
    ) -> list[DescribeConfigsResourceResult]:
        wanted = resource.configuration_keys
        if not is_alike:
            made = [self._row(row) for row in describe() if not wanted or row.name in wanted]
        elif resource.resource_type in self._alike:
            made = self._alike[resource.resource_type]
        else:
            made = self._alike[resource.resource_type] = [self._row(row) for row in describe()]
        return [row for row in made if row.name in wanted] if is_alike and wanted else made

    def _row(self, row: ConfigRow) -> DescribeConfigsResourceResult:
        request = self._request
        return DescribeConfigsResourceResult(
            name=row.name,
            value=None if row.is_sensitive else row.value,
            read_only=row.is_read_only,
            config_source=row.source,
            is_sensitive=row.is_sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=name, value=value, source=source)
                for name, value, source in row.synonyms
            ]
            if request.include_synonyms
            else [],
            config_type=row.type,
            documentation=row.doc if request.include_documentation else None,
        )


def _check_named(name: str, reason: str) -> None:
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, reason)
