"""The broker that coordinates a group, a transactional id or a share partition (key types 0, 1, 2).

One key up to v3; many from v4 on, each with an error of its own.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    Int8,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Versions,
    essential,
    since,
    until,
)


class FindCoordinatorRequest(Message):
    versions: ClassVar = Versions(0, 6, flexible=3)

    key: Annotated[Str, until(3), essential] = ""
    key_type: Annotated[Int8, since(1), essential] = 0
    coordinator_keys: Annotated[list[Str], since(4), essential] = []


class Coordinator(Message):
    key: Str = ""
    node_id: Int32 = 0
    host: Str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""


class FindCoordinatorResponse(Message):
    versions: ClassVar = Versions(0, 6, flexible=3)

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[NullableStr, since(1), until(3)] = ""
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[Str, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[list[Coordinator], since(4)] = []
