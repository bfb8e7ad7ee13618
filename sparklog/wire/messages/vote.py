"""A raft candidate requests a vote (KIP-595).

v1 adds the directory ids of dynamic voters (KIP-853), v2 the pre-vote, which does not disturb an active
leader (KIP-996).
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Str,
    Uint16,
    Uuid,
    Versions,
    essential,
    since,
    tagged,
)


class VoteRequestPartitionData(Message):
    partition_index: Int32 = 0
    replica_epoch: Int32 = 0
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID
    voter_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID
    last_offset_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: Annotated[Bool, since(2), essential] = False


class VoteRequestTopicData(Message):
    topic_name: Str = ""
    partitions: list[VoteRequestPartitionData] = []


class VoteRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    cluster_id: NullableStr = None
    voter_id: Annotated[Int32, since(1)] = -1
    topics: list[VoteRequestTopicData] = []


class VoteResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: Bool = False


class VoteResponseTopicData(Message):
    topic_name: Str = ""
    partitions: list[VoteResponsePartitionData] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: Str = ""
    port: Uint16 = 0


class VoteResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    error_code: Int16 = 0
    topics: list[VoteResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tagged(0)] = []
