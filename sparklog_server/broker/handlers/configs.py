"""DescribeConfigs: every setting of a topic or broker, with where its value comes from (KIP-133, KIP-226, KIP-569)."""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from sparklog_server.broker.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.session import Call
from sparklog_server.config.describe import ConfigRow, describe_broker, describe_topic
from sparklog_server.controller.topics import check_name
from sparklog_server.outcome import Refused

_TOPIC = 2
_BROKER = 4


def describe_configs(context: Context, call: Call, request: DescribeConfigsRequest, now: Instant) -> DescribeConfigsResponse:
    """One result for each resource, in the order asked; one that is asked for again is not told again."""
    told: set[tuple[int, str]] = set()
    results = []
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        results.append(_repeated(resource) if key in told else _describe(context, call, resource, request))
        told.add(key)
    return DescribeConfigsResponse(results=results)


def _repeated(resource: DescribeConfigsResource) -> DescribeConfigsResult:
    # Four bytes could ask for fifty thousand otherwise, as often as a frame has room. Kafka's own client cannot ask twice.
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    return _refused(result, ErrorCode.INVALID_REQUEST, "the resource is named more than once")


def _describe(context: Context, call: Call, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    rows: list[ConfigRow]
    if resource.resource_type == _TOPIC:
        if not context.allow(call, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, resource.resource_name):
            return _refused(result, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        try:
            check_name(resource.resource_name)
        except Refused as refusal:
            return _refused(result, refusal.code, refusal.message)
        if resource.resource_name not in context.image.topics_by_name:
            return _refused(result, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        rows = describe_topic(context.settings, context.image.topic_config(resource.resource_name))
    elif resource.resource_type == _BROKER:
        if not context.allow(call, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
            return _refused(result, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        if resource.resource_name not in ("", str(context.settings.node_id)):
            reason = f"this is broker {context.settings.node_id}, not {resource.resource_name!r}: ask the broker itself"
            return _refused(result, ErrorCode.INVALID_REQUEST, reason)
        # The empty name asks for what was set while running for the whole cluster, which nothing can be yet.
        rows = describe_broker(context.settings) if resource.resource_name else []
    else:
        return _refused(result, ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no configuration here")
    wanted = resource.configuration_keys
    result.configs = [_row(row, request) for row in rows if not wanted or row.name in wanted]
    return result


def _refused(result: DescribeConfigsResult, code: ErrorCode, reason: str | None) -> DescribeConfigsResult:
    result.error_code = code
    result.error_message = reason
    return result


def _row(row: ConfigRow, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=row.name,
        value=None if row.is_sensitive else row.value,
        read_only=row.is_read_only,
        config_source=row.source,
        is_sensitive=row.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in row.synonyms]
        if request.include_synonyms
        else [],
        config_type=row.type,
        documentation=row.doc if request.include_documentation else None,
    )
