"""FindCoordinator: which broker keeps a group or a transactional id. No coordinator serves yet, and the answer says so."""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from sparklog_server.broker.context import Context
from sparklog_server.broker.session import Call

_BATCHED_SINCE = 4
_KINDS = {0: "group", 1: "transaction", 2: "share group"}


def find_coordinator(context: Context, call: Call, request: FindCoordinatorRequest, now: Instant) -> FindCoordinatorResponse:
    """COORDINATOR_NOT_AVAILABLE for every known kind of key, INVALID_REQUEST for others."""
    kind = _KINDS.get(request.key_type)
    if kind is None:
        code, message = ErrorCode.INVALID_REQUEST, f"key type {request.key_type} is unknown"
    else:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"this broker serves no {kind} coordinator yet"
    if call.version < _BATCHED_SINCE:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message) for key in request.coordinator_keys
        ]
    )
