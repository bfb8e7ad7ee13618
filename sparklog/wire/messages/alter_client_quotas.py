"""Sets and removes quotas of entities."""

from typing import ClassVar

from sparklog.wire.schema import Bool, Float64, Int16, Int32, Message, NullableStr, Str, Versions


class EntityData(Message):
    entity_type: Str = ""
    entity_name: NullableStr = ""


class OpData(Message):
    key: Str = ""
    value: Float64 = 0.0
    remove: Bool = False


class AlterClientQuotasRequestEntryData(Message):
    entity: list[EntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=1)

    entries: list[AlterClientQuotasRequestEntryData] = []
    validate_only: Bool = False


class AlterClientQuotasResponseEntryData(Message):
    error_code: Int16 = 0
    error_message: NullableStr = ""
    entity: list[EntityData] = []


class AlterClientQuotasResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=1)

    throttle_time_ms: Int32 = 0
    entries: list[AlterClientQuotasResponseEntryData] = []
