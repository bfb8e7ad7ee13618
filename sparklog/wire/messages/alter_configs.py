"""Replaces all settings of resources by those given; IncrementalAlterConfigs changes single settings."""

from typing import ClassVar

from sparklog.wire.schema import Bool, Int8, Int16, Int32, Message, NullableStr, Str, Versions


class AlterableConfig(Message):
    name: Str = ""
    value: NullableStr = ""


class AlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: Str = ""
    configs: list[AlterableConfig] = []


class AlterConfigsRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=2)

    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = 0
    error_message: NullableStr = ""
    resource_type: Int8 = 0
    resource_name: Str = ""


class AlterConfigsResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=2)

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
