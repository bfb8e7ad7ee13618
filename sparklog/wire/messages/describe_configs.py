"""Settings of topics and brokers, with the source of each value.

Null keys means all of a resource. v1 adds synonyms, v3 types and documentation.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Versions,
    essential,
    nullable,
    since,
)


class DescribeConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: Str = ""
    configuration_keys: Annotated[list[Str] | None, nullable()] = []


class DescribeConfigsRequest(Message):
    versions: ClassVar = Versions(1, 4, flexible=4)

    resources: list[DescribeConfigsResource] = []
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, since(3), essential] = False


class DescribeConfigsSynonym(Message):
    name: Str = ""
    value: NullableStr = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Message):
    name: Str = ""
    value: NullableStr = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[NullableStr, since(3)] = ""


class DescribeConfigsResult(Message):
    error_code: Int16 = 0
    error_message: NullableStr = ""
    resource_type: Int8 = 0
    resource_name: Str = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(Message):
    versions: ClassVar = Versions(1, 4, flexible=4)

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []
