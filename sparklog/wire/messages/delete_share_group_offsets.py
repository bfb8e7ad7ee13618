"""Forgets the offsets of topics in a share group (KIP-932)."""

from typing import ClassVar

from sparklog.wire.schema import ZERO_UUID, Int16, Int32, Message, NullableStr, Str, Uuid, Versions


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: Str = ""


class DeleteShareGroupOffsetsRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    group_id: Str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: Str = ""
    topic_id: Uuid = ZERO_UUID
    error_code: Int16 = 0
    error_message: NullableStr = None


class DeleteShareGroupOffsetsResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
