"""Members leave a classic group at once instead of timing out: one up to v2, many from v3 on, with a
reason from v5 on.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Int16, Int32, Message, NullableStr, Str, Versions, essential, since, until


class MemberIdentity(Message):
    member_id: Str = ""
    group_instance_id: NullableStr = None
    reason: Annotated[NullableStr, since(5)] = None


class LeaveGroupRequest(Message):
    versions: ClassVar = Versions(0, 5, flexible=4)

    group_id: Str = ""
    member_id: Annotated[Str, until(2), essential] = ""
    members: Annotated[list[MemberIdentity], since(3), essential] = []


class MemberResponse(Message):
    member_id: Str = ""
    group_instance_id: NullableStr = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Message):
    versions: ClassVar = Versions(0, 5, flexible=4)

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], since(3)] = []
