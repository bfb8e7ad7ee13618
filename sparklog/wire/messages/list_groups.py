"""The groups that this broker coordinates, filtered by state (v4) and by type (v5)."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Int16, Int32, Message, Str, Versions, essential, since


class ListGroupsRequest(Message):
    versions: ClassVar = Versions(0, 5, flexible=3)

    states_filter: Annotated[list[Str], since(4), essential] = []
    types_filter: Annotated[list[Str], since(5), essential] = []


class ListedGroup(Message):
    group_id: Str = ""
    protocol_type: Str = ""
    group_state: Annotated[Str, since(4)] = ""
    group_type: Annotated[Str, since(5)] = ""


class ListGroupsResponse(Message):
    versions: ClassVar = Versions(0, 5, flexible=3)

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []
