"""Deletes topics: by name up to v5, by name or id in v6 (the name is null then)."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Uuid,
    Versions,
    essential,
    nullable,
    since,
    until,
)


class DeleteTopicState(Message):
    name: NullableStr = None
    topic_id: Uuid = ZERO_UUID


class DeleteTopicsRequest(Message):
    versions: ClassVar = Versions(1, 6, flexible=4)

    topics: Annotated[list[DeleteTopicState], since(6), essential] = []
    topic_names: Annotated[list[Str], until(5)] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(Message):
    name: Annotated[NullableStr, nullable(6)] = ""
    topic_id: Annotated[Uuid, since(6)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[NullableStr, since(5)] = None


class DeleteTopicsResponse(Message):
    versions: ClassVar = Versions(1, 6, flexible=4)

    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []
