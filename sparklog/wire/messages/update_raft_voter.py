"""A voter reports its new endpoints and supported kraft.version levels to the raft leader (KIP-853)."""

from typing import Annotated, ClassVar

from msgspec import field

from sparklog.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Uint16,
    Uuid,
    Versions,
    tagged,
)


class Listener(Message):
    name: Str = ""
    host: Str = ""
    port: Uint16 = 0


class KRaftVersionFeature(Message):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class UpdateRaftVoterRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    cluster_id: NullableStr = ""
    current_leader_epoch: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: list[Listener] = []
    kraft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)


class CurrentLeader(Message):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: Str = ""
    port: Int32 = 0


class UpdateRaftVoterResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: Annotated[CurrentLeader | None, tagged(0)] = None
