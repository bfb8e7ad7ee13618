"""The leader of a classic group sends the assignment, and every member gets its part.

v3 has static members; from v5 on the request has the protocol, which must be the group's (KIP-559).
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Bytes, Int16, Int32, Message, NullableStr, Str, Versions, essential, since


class SyncGroupRequestAssignment(Message):
    member_id: Str = ""
    assignment: Bytes = b""


class SyncGroupRequest(Message):
    versions: ClassVar = Versions(0, 5, flexible=4)

    group_id: Str = ""
    generation_id: Int32 = 0
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(3), essential] = None
    protocol_type: Annotated[NullableStr, since(5)] = None
    protocol_name: Annotated[NullableStr, since(5)] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Message):
    versions: ClassVar = Versions(0, 5, flexible=4)

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[NullableStr, since(5)] = None
    protocol_name: Annotated[NullableStr, since(5)] = None
    assignment: Bytes = b""
