"""A client pushes its metrics, compressed, in the format of OpenTelemetry (KIP-714)."""

from typing import ClassVar

from sparklog.wire.schema import ZERO_UUID, Bool, Bytes, Int8, Int16, Int32, Message, Uuid, Versions


class PushTelemetryRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
