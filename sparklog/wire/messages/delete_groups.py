"""Deletes groups that have no members."""

from typing import ClassVar

from sparklog.wire.schema import Int16, Int32, Message, Str, Versions


class DeleteGroupsRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=2)

    groups_names: list[Str] = []


class DeletableGroupResult(Message):
    group_id: Str = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=2)

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []
