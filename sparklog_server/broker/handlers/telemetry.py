"""GetTelemetrySubscriptions and PushTelemetry: the metrics of clients (KIP-714). As in Kafka, every client
that has authenticated may push.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import Instant, Uuid
from sparklog.record.compression import Codec
from sparklog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from sparklog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from sparklog_server.broker.dynamic_config import decompress_memory
from sparklog_server.broker.metrics.client_telemetry import ClientInstance
from sparklog_server.broker.metrics.pushed_metrics import Invalid, Pushed, needed_bytes, pushed
from sparklog_server.broker.session import Call, Parked
from sparklog_server.disk.door import StorageError

if TYPE_CHECKING:
    from sparklog_server.broker.ports import ConnectionPort


_NO_MEMORY: Final[Pushed | Invalid] = Invalid("there is too little memory")

_SHARES: Final = 4
"""What is decompressed takes up to a quarter of the memory that a job may have: it is held in pieces and as a
whole.
"""


def get_telemetry_subscriptions(
    context: "ConnectionPort", call: Call, request: GetTelemetrySubscriptionsRequest, now: Instant
) -> GetTelemetrySubscriptionsResponse:
    """The metrics that the client is asked for, and its instance id if it has none."""
    telemetry = context.client_telemetry
    return telemetry.subscription(Uuid(request.client_instance_id), call, context.image, now)


def push_telemetry(
    context: "ConnectionPort", call: Call, request: PushTelemetryRequest, now: Instant
) -> PushTelemetryResponse | Parked:
    """Decode the metrics in a job, and show them."""
    telemetry = context.client_telemetry
    begun = telemetry.begin_push(request, call, context.image, now)
    if isinstance(begun, ErrorCode):
        return _answer(context, begun)
    if not request.metrics:
        return _answer(context, ErrorCode.NONE)
    codec, data = Codec(request.compression_type), memoryview(request.metrics)
    memory_max = decompress_memory(context.settings).job_bytes_max
    bytes_max = min(context.settings.telemetry.max_bytes, memory_max // _SHARES)
    try:
        needed = needed_bytes(codec, data, bytes_max)
    except DecodeError:
        needed = memory_max + 1
    if needed > memory_max:
        return _answer(context, telemetry.end_push(begun, None, now))
    (copy,) = context.jobs.kept([data])
    context.jobs.run_in_steps(
        call,
        partial(pushed, codec, copy, bytes_max),
        partial(_finish, context, begun),
        copies=[copy],
        memory_bytes=needed,
        without_memory=_NO_MEMORY,
    )
    return Parked.MUTING


def _finish(
    context: "ConnectionPort", instance: ClientInstance, result: Pushed | Invalid | StorageError, now: Instant
) -> PushTelemetryResponse:
    content = result if isinstance(result, Pushed) else None
    return _answer(context, context.client_telemetry.end_push(instance, content, now))


def _answer(context: "ConnectionPort", error: ErrorCode) -> PushTelemetryResponse:
    context.client_telemetry.pushes[error.name] += 1
    return PushTelemetryResponse(error_code=error)
