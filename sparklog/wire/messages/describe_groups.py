"""State and members of classic groups. v3 adds permitted operations, v4 static members, v6 an error for an
unknown group (KIP-1043).
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
    since,
)


class DescribeGroupsRequest(Message):
    versions: ClassVar = Versions(0, 6, flexible=5)

    groups: list[Str] = []
    include_authorized_operations: Annotated[Bool, since(3), essential] = False


class DescribedGroupMember(Message):
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(4)] = None
    client_id: Str = ""
    client_host: Str = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Message):
    error_code: Int16 = 0
    error_message: Annotated[NullableStr, since(6)] = None
    group_id: Str = ""
    group_state: Str = ""
    protocol_type: Str = ""
    protocol_data: Str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, since(3)] = -2147483648


class DescribeGroupsResponse(Message):
    versions: ClassVar = Versions(0, 6, flexible=5)

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: list[DescribedGroup] = []
