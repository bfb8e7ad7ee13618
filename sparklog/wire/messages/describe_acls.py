"""The access rules that match a filter; each part of the filter may match any value."""

from typing import ClassVar

from sparklog.wire.schema import Int8, Int16, Int32, Message, NullableStr, Str, Versions


class DescribeAclsRequest(Message):
    versions: ClassVar = Versions(1, 3, flexible=2)

    resource_type_filter: Int8 = 0
    resource_name_filter: NullableStr = ""
    pattern_type_filter: Int8 = 3
    principal_filter: NullableStr = ""
    host_filter: NullableStr = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Message):
    principal: Str = ""
    host: Str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Message):
    resource_type: Int8 = 0
    resource_name: Str = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class DescribeAclsResponse(Message):
    versions: ClassVar = Versions(1, 3, flexible=2)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""
    resources: list[DescribeAclsResource] = []
