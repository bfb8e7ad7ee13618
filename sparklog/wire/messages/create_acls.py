"""Adds access rules."""

from typing import ClassVar

from sparklog.wire.schema import Int8, Int16, Int32, Message, NullableStr, Str, Versions


class AclCreation(Message):
    resource_type: Int8 = 0
    resource_name: Str = ""
    resource_pattern_type: Int8 = 3
    principal: Str = ""
    host: Str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Message):
    versions: ClassVar = Versions(1, 3, flexible=2)

    creations: list[AclCreation] = []


class AclCreationResult(Message):
    error_code: Int16 = 0
    error_message: NullableStr = ""


class CreateAclsResponse(Message):
    versions: ClassVar = Versions(1, 3, flexible=2)

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []
