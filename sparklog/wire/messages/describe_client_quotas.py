"""Client quotas that match a filter over entities such as user and client id."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Versions,
    nullable,
)


class ComponentData(Message):
    entity_type: Str = ""
    match_type: Int8 = 0
    match: NullableStr = ""


class DescribeClientQuotasRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=1)

    components: list[ComponentData] = []
    strict: Bool = False


class EntityData(Message):
    entity_type: Str = ""
    entity_name: NullableStr = ""


class ValueData(Message):
    key: Str = ""
    value: Float64 = 0.0


class EntryData(Message):
    entity: list[EntityData] = []
    values: list[ValueData] = []


class DescribeClientQuotasResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=1)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""
    entries: Annotated[list[EntryData] | None, nullable()] = []
