"""A controller registers with the active controller, with endpoints and features (KIP-919)."""

from typing import ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Uint16,
    Uuid,
    Versions,
)


class Listener(Message):
    name: Str = ""
    host: Str = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class Feature(Message):
    name: Str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class ControllerRegistrationRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: Bool = False
    listeners: list[Listener] = []
    features: list[Feature] = []


class ControllerRegistrationResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""
