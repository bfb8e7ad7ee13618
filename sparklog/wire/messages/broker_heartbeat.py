"""A broker reports to the controller that it is alive and up to which offset it has applied the metadata, and
requests to be unfenced or to shut down.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Uuid,
    Versions,
    essential,
    nullable,
    since,
    tagged,
)


class BrokerHeartbeatRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: Annotated[list[Uuid], since(1), tagged(0), essential] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, since(2), nullable(), tagged(1), essential] = None


class BrokerHeartbeatResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
