"""Changes single settings of resources: set, delete, append to or subtract from (operations 0 to 3)."""

from typing import ClassVar

from sparklog.wire.schema import Bool, Int8, Int16, Int32, Message, NullableStr, Str, Versions


class AlterableConfig(Message):
    name: Str = ""
    config_operation: Int8 = 0
    value: NullableStr = ""


class AlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: Str = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=1)

    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = 0
    error_message: NullableStr = ""
    resource_type: Int8 = 0
    resource_name: Str = ""


class IncrementalAlterConfigsResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=1)

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
