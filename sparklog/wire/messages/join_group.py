"""A member joins a classic group and waits for the other members; the leader receives the member list.

From v4 on a new member gets MEMBER_ID_REQUIRED with a member id and joins again with that; v5 has static
members, v8 reasons.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Versions,
    essential,
    nullable,
    since,
)


class JoinGroupRequestProtocol(Message):
    name: Str = ""
    metadata: Bytes = b""


class JoinGroupRequest(Message):
    versions: ClassVar = Versions(0, 9, flexible=6)

    group_id: Str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, since(1)] = -1
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(5), essential] = None
    protocol_type: Str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[NullableStr, since(8)] = None


class JoinGroupResponseMember(Message):
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(5)] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message):
    versions: ClassVar = Versions(0, 9, flexible=6)

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[NullableStr, since(7)] = None
    protocol_name: Annotated[NullableStr, nullable(7)] = ""
    leader: Str = ""
    skip_assignment: Annotated[Bool, since(9)] = False
    member_id: Str = ""
    members: list[JoinGroupResponseMember] = []
