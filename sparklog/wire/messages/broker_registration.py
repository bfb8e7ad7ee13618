"""A broker registers with the controller and gets a broker epoch for this incarnation (KIP-631).

v2 has its log directories, v3 its previous epoch after a clean shutdown; a broker stays fenced until it has
caught up with the metadata.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Str,
    Uint16,
    Uuid,
    Versions,
    essential,
    since,
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


class BrokerRegistrationRequest(Message):
    versions: ClassVar = Versions(0, 4, flexible=0)

    broker_id: Int32 = 0
    cluster_id: Str = ""
    incarnation_id: Uuid = ZERO_UUID
    listeners: list[Listener] = []
    features: list[Feature] = []
    rack: NullableStr = ""
    is_migrating_zk_broker: Annotated[Bool, since(1), essential] = False
    log_dirs: Annotated[list[Uuid], since(2)] = []
    previous_broker_epoch: Annotated[Int64, since(3)] = -1


class BrokerRegistrationResponse(Message):
    versions: ClassVar = Versions(0, 4, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
