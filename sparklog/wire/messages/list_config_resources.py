"""The names of resources that have settings; v0 lists only client metrics, v1 all types (KIP-1142)."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Int8, Int16, Int32, Message, Str, Versions, essential, since


class ListConfigResourcesRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    resource_types: Annotated[list[Int8], since(1), essential] = []


class ConfigResource(Message):
    resource_name: Str = ""
    resource_type: Annotated[Int8, since(1)] = 16


class ListConfigResourcesResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []
