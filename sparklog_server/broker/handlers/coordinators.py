"""FindCoordinator: the broker that coordinates a group or a transactional id.

It is the leader of the partition that keeps the key. The first request creates the coordinator's topic, and a
request waits until that exists and, if this broker is the leader, until the shard is loaded: a refusal would
cost every client its retry back-off.
"""

from typing import TYPE_CHECKING, Protocol

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.create_topics import CreateTopicsResponse
from sparklog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards
from sparklog_server.broker.proposals import Proposing
from sparklog_server.broker.session import AnsweredInSteps, Call, Parked, Wakeable

if TYPE_CHECKING:
    from sparklog_server.broker.ports import MetadataPort


_BATCHED_SINCE = 4
_RESOURCES = (Resource.GROUP, Resource.TRANSACTIONAL_ID)
"""The coordinators by key type, in the order of `Context.coordinators`."""
_REFUSALS = {
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_WAIT_MS = 5_000


def find_coordinator(
    context: "MetadataPort", call: Call, request: FindCoordinatorRequest, now: Instant
) -> AnsweredInSteps:
    """One coordinator for each key; INVALID_REQUEST for unknown key types."""
    keys = request.coordinator_keys if call.version >= _BATCHED_SINCE else [request.key]
    shards = context.coordinators[request.key_type] if 0 <= request.key_type < len(_RESOURCES) else None
    if shards is None:
        return (yield from _found(context, call, request))
    is_coming = False
    for key in keys:
        # A caller that may not find a coordinator must not have its topic created.
        if context.may(call, Operation.DESCRIBE, _RESOURCES[request.key_type], key):
            shards.sought(key, now)
            is_coming = is_coming or shards.is_coming(key)
        now = yield
    if is_coming:
        waiting = _ParkedSearch(context, call, request, shards)
        shards.awaited[waiting] = None
        context.timers.park(waiting, _WAIT_MS, now)
        make_topic(context, shards, now)
        return Parked.FLOWING if len(keys) == 1 else Parked.MUTING
    return (yield from _found(context, call, request))


class TopicMakingPort(Proposing, Protocol):
    """What `make_topic` uses of the broker."""

    woken: dict[Wakeable, None]


def make_topic(context: TopicMakingPort, shards: CoordinatorShards, now: Instant) -> None:
    """Propose the creation of a coordinator's topic, unless it exists or is proposed already."""
    if not shards.partition_count and not shards.is_asked:
        shards.is_asked = True

        def created(reply: CreateTopicsResponse, now: Instant) -> None:
            shards.is_asked = False
            if reply.topics[0].error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                context.woken.update(dict.fromkeys(shards.take_awaited()))

        context.propose(shards.topic_wanted, CreateTopicsResponse, created, now)


class _ParkedSearch:
    """A request that waits until the topic for its keys exists and its shard is loaded."""

    __slots__ = ("_context", "_request", "_shards", "call")

    def __init__(
        self, context: "MetadataPort", call: Call, request: FindCoordinatorRequest, shards: CoordinatorShards
    ) -> None:
        self.call = call
        self._shards = shards
        self._context = context
        self._request = request

    def woken(self, now: Instant) -> Message | None:
        return self._context.slices.answered(self.call, _found(self._context, self.call, self._request), now)

    def expired(self, now: Instant) -> Message | None:
        self.abandoned()
        return self.woken(now)

    def abandoned(self) -> None:
        self._shards.awaited.pop(self, None)


def _found(context: "MetadataPort", call: Call, request: FindCoordinatorRequest) -> AnsweredInSteps:
    if call.version >= _BATCHED_SINCE:
        response = FindCoordinatorResponse(coordinators=[])
        for key in request.coordinator_keys:
            response.coordinators.append(_find(context, call, request.key_type, key))
            yield
        return response
    found = _find(context, call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message if found.error_code else ErrorCode.NONE.name,  # as Kafka
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(context: "MetadataPort", call: Call, key_type: int, key: str) -> Coordinator:
    if not 0 <= key_type < len(_RESOURCES):
        return _refused(key, ErrorCode.INVALID_REQUEST, f"no coordinator for keys of type {key_type}")
    resource, shards = _RESOURCES[key_type], context.coordinators[key_type]
    if not context.allow(call, Operation.DESCRIBE, resource, key):
        return _refused(key, _REFUSALS[resource], "")
    if not shards.partition_count:
        return _refused(
            key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic {shards.topic} does not exist yet"
        )
    if shards.has_failed(key):
        reason = (
            f"{shards.topic}-{shards.shard_of(key)} cannot be loaded: the event coordinator-load-failed in "
            f"the log of broker {context.settings.node_id} names the file and the remedy"
        )
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    leader = shards.leader_of(key)
    broker = None if leader is None else context.image.brokers.get(leader)
    endpoint = None if broker is None or broker.is_fenced else broker.endpoint(call.session.listener)
    if broker is None or endpoint is None:
        reason = f"the partition of {shards.topic} that keeps this key has no leader at this listener"
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    return Coordinator(key=key, node_id=broker.node_id, host=endpoint.host, port=endpoint.port)


def _refused(key: str, code: ErrorCode, reason: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=reason)
