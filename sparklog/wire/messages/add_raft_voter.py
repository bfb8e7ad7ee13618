"""Adds a voter to the metadata quorum (KIP-853); v1 chooses between answering at commit and at append."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Uint16,
    Uuid,
    Versions,
    essential,
    since,
)


class Listener(Message):
    name: Str = ""
    host: Str = ""
    port: Uint16 = 0


class AddRaftVoterRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    cluster_id: NullableStr = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: list[Listener] = []
    ack_when_committed: Annotated[Bool, since(1), essential] = True


class AddRaftVoterResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""
