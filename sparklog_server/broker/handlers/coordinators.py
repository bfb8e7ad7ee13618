"""FindCoordinator: which broker keeps a group or a transactional id.

In a cluster of one it is this broker. Groups and transactions are not served yet, and the requests that would use them are not
advertised: a client that is told its coordinator fails at once with what is missing, where "not available" would have it try again until
its time is up (librdkafka: 45 s at every close).
"""

from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId
from sparklog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from sparklog_server.broker.authorization import Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.session import Call

_BATCHED_SINCE = 4
_RESOURCES = {0: Resource.GROUP, 1: Resource.TRANSACTIONAL_ID}


def find_coordinator(context: Context, call: Call, request: FindCoordinatorRequest, now: Instant) -> FindCoordinatorResponse:
    """One coordinator for each key; INVALID_REQUEST for kinds of keys that are unknown."""
    if call.version >= _BATCHED_SINCE:
        return FindCoordinatorResponse(coordinators=[_find(context, call, request.key_type, key) for key in request.coordinator_keys])
    found = _find(context, call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code, error_message=found.error_message, node_id=found.node_id, host=found.host, port=found.port
    )


def _find(context: Context, call: Call, key_type: int, key: str) -> Coordinator:
    resource = _RESOURCES.get(key_type)
    if resource is None:
        return _refused(key, ErrorCode.INVALID_REQUEST, f"no coordinator keeps keys of type {key_type}")
    if not context.allow(call, Operation.DESCRIBE, resource, key):
        is_group = resource is Resource.GROUP
        return _refused(key, ErrorCode.GROUP_AUTHORIZATION_FAILED if is_group else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "")
    broker = context.image.brokers.get(NodeId(context.settings.node_id))
    endpoint = None if broker is None else broker.endpoint(call.session.listener)
    if broker is None or endpoint is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker has not registered yet")
    return Coordinator(key=key, node_id=broker.node_id, host=endpoint.host, port=endpoint.port)


def _refused(key: str, code: ErrorCode, reason: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=reason)
