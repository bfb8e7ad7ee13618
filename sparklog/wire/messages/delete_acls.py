"""Removes the access rules that match filters, and returns the removed rules."""

from typing import ClassVar

from sparklog.wire.schema import Int8, Int16, Int32, Message, NullableStr, Str, Versions


class DeleteAclsFilter(Message):
    resource_type_filter: Int8 = 0
    resource_name_filter: NullableStr = ""
    pattern_type_filter: Int8 = 3
    principal_filter: NullableStr = ""
    host_filter: NullableStr = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(Message):
    versions: ClassVar = Versions(1, 3, flexible=2)

    filters: list[DeleteAclsFilter] = []


class DeleteAclsMatchingAcl(Message):
    error_code: Int16 = 0
    error_message: NullableStr = ""
    resource_type: Int8 = 0
    resource_name: Str = ""
    pattern_type: Int8 = 3
    principal: Str = ""
    host: Str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Message):
    error_code: Int16 = 0
    error_message: NullableStr = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsResponse(Message):
    versions: ClassVar = Versions(1, 3, flexible=2)

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []
