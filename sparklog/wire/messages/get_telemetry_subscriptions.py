"""The metrics that a client should push, and the interval (KIP-714)."""

from typing import ClassVar

from sparklog.wire.schema import ZERO_UUID, Bool, Int8, Int16, Int32, Message, Str, Uuid, Versions


class GetTelemetrySubscriptionsRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    client_instance_id: Uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: list[Str] = []
