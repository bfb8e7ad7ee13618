"""Removes a voter from the metadata quorum (KIP-853)."""

from typing import ClassVar

from sparklog.wire.schema import ZERO_UUID, Int16, Int32, Message, NullableStr, Uuid, Versions


class RemoveRaftVoterRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    cluster_id: NullableStr = ""
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID


class RemoveRaftVoterResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""
