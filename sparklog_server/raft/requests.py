"""The wire messages of raft, built and taken apart: each has one topic with one partition.

A node answers with an error of the partition, its epoch and the leader it knows; `Told` is what any of these
responses says.
"""

from collections.abc import Sequence

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import NO_OFFSET, LeaderEpoch, NodeId, Offset, OffsetAndEpoch, Uuid
from sparklog.record.control import VoterEndpoint
from sparklog.wire.messages import begin_quorum_epoch as begin
from sparklog.wire.messages import end_quorum_epoch as end
from sparklog.wire.messages import fetch, fetch_snapshot, vote

from .durable_log import METADATA_PARTITION, METADATA_TOPIC_ID
from .election_state import NO_NODE
from .peers import Endpoint
from .snapshots import BOOTSTRAP

_TOPIC, _PARTITION = METADATA_PARTITION
FETCH_WAIT_MS = 500


class Myself(msgspec.Struct, frozen=True):
    """What a node says of itself in every request."""

    cluster_id: str
    node_id: NodeId
    directory_id: Uuid
    endpoints: tuple[VoterEndpoint, ...] = ()


class Known(msgspec.Struct, frozen=True):
    """The epoch and the leader that a node tells in every response; -1 for no leader."""

    epoch: LeaderEpoch
    leader_id: NodeId
    endpoint: Endpoint | None = None


class Told(msgspec.Struct, frozen=True):
    """What a response says, whichever it is."""

    error: int
    epoch: LeaderEpoch
    leader_id: NodeId
    endpoint: Endpoint | None = None


def _told(
    error: int,
    epoch: int,
    leader_id: int,
    endpoints: Sequence[
        vote.NodeEndpoint
        | begin.NodeEndpoint
        | end.NodeEndpoint
        | fetch.NodeEndpoint
        | fetch_snapshot.NodeEndpoint
    ],
) -> Told:
    endpoint = next((Endpoint(e.host, e.port) for e in endpoints if e.node_id == leader_id), None)
    return Told(error, LeaderEpoch(epoch), NodeId(leader_id), endpoint)


# -- Vote


def vote_request(
    me: Myself,
    voter: NodeId,
    directory_id: Uuid,
    epoch: LeaderEpoch,
    end: OffsetAndEpoch,
    *,
    is_pre_vote: bool,
) -> vote.VoteRequest:
    """Ask a voter for its vote in `epoch`, for a log that ends at `end`."""
    data = vote.VoteRequestPartitionData(
        partition_index=_PARTITION,
        replica_epoch=epoch,
        replica_id=me.node_id,
        replica_directory_id=me.directory_id,
        voter_directory_id=directory_id,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=is_pre_vote,
    )
    topic = vote.VoteRequestTopicData(topic_name=_TOPIC, partitions=[data])
    return vote.VoteRequest(cluster_id=me.cluster_id, voter_id=voter, topics=[topic])


def vote_asked(request: vote.VoteRequest) -> vote.VoteRequestPartitionData | None:
    """The partition of a request; None if it is not of the metadata log."""
    found = [data for topic in request.topics if topic.topic_name == _TOPIC for data in topic.partitions]
    return found[0] if len(found) == 1 and found[0].partition_index == _PARTITION else None


def vote_response(error: ErrorCode, known: Known, *, is_granted: bool = False) -> vote.VoteResponse:
    """Answer a Vote."""
    data = vote.VoteResponsePartitionData(_PARTITION, error, known.leader_id, known.epoch, is_granted)
    topic = vote.VoteResponseTopicData(topic_name=_TOPIC, partitions=[data])
    endpoints = [vote.NodeEndpoint(known.leader_id, *known.endpoint)] if known.endpoint else []
    return vote.VoteResponse(topics=[topic], node_endpoints=endpoints)


def vote_told(response: vote.VoteResponse) -> tuple[Told, bool] | None:
    """What a response says, and whether the vote is granted; None for an error of the whole request."""
    data = response.topics[0].partitions[0] if response.topics and response.topics[0].partitions else None
    if response.error_code or data is None:
        return None
    return _told(
        data.error_code, data.leader_epoch, data.leader_id, response.node_endpoints
    ), data.vote_granted


# -- BeginQuorumEpoch and EndQuorumEpoch


def begin_request(
    me: Myself, voter: NodeId, directory_id: Uuid, epoch: LeaderEpoch
) -> begin.BeginQuorumEpochRequest:
    """Tell a voter that this node leads `epoch`."""
    data = begin.BeginQuorumEpochRequestPartitionData(_PARTITION, directory_id, me.node_id, epoch)
    return begin.BeginQuorumEpochRequest(
        cluster_id=me.cluster_id,
        voter_id=voter,
        topics=[begin.BeginQuorumEpochRequestTopicData(topic_name=_TOPIC, partitions=[data])],
        leader_endpoints=[begin.LeaderEndpoint(e.name, e.host, e.port) for e in me.endpoints],
    )


def begin_told(
    request: begin.BeginQuorumEpochRequest,
) -> tuple[begin.BeginQuorumEpochRequestPartitionData, Endpoint | None] | None:
    """The partition of a request and where its leader is; None if it is not of the metadata log."""
    found = [data for topic in request.topics if topic.topic_name == _TOPIC for data in topic.partitions]
    if len(found) != 1 or found[0].partition_index != _PARTITION:
        return None
    return found[0], next((Endpoint(e.host, e.port) for e in request.leader_endpoints), None)


def begin_response(error: ErrorCode, known: Known) -> begin.BeginQuorumEpochResponse:
    """Answer a BeginQuorumEpoch."""
    data = begin.BeginQuorumEpochResponsePartitionData(_PARTITION, error, known.leader_id, known.epoch)
    topic = begin.BeginQuorumEpochResponseTopicData(topic_name=_TOPIC, partitions=[data])
    endpoints = [begin.NodeEndpoint(known.leader_id, *known.endpoint)] if known.endpoint else []
    return begin.BeginQuorumEpochResponse(topics=[topic], node_endpoints=endpoints)


def end_request(
    me: Myself, epoch: LeaderEpoch, successors: Sequence[tuple[NodeId, Uuid]]
) -> end.EndQuorumEpochRequest:
    """Tell a voter that this node no longer leads `epoch`; the best successor comes first."""
    data = end.EndQuorumEpochRequestPartitionData(
        partition_index=_PARTITION,
        leader_id=me.node_id,
        leader_epoch=epoch,
        preferred_candidates=[end.ReplicaInfo(node, directory) for node, directory in successors],
    )
    return end.EndQuorumEpochRequest(
        cluster_id=me.cluster_id,
        topics=[end.EndQuorumEpochRequestTopicData(topic_name=_TOPIC, partitions=[data])],
        leader_endpoints=[end.LeaderEndpoint(e.name, e.host, e.port) for e in me.endpoints],
    )


def end_told(
    request: end.EndQuorumEpochRequest,
) -> tuple[end.EndQuorumEpochRequestPartitionData, Endpoint | None] | None:
    """As `begin_told`."""
    found = [data for topic in request.topics if topic.topic_name == _TOPIC for data in topic.partitions]
    if len(found) != 1 or found[0].partition_index != _PARTITION:
        return None
    return found[0], next((Endpoint(e.host, e.port) for e in request.leader_endpoints), None)


def end_response(error: ErrorCode, known: Known) -> end.EndQuorumEpochResponse:
    """Answer an EndQuorumEpoch."""
    data = end.EndQuorumEpochResponsePartitionData(_PARTITION, error, known.leader_id, known.epoch)
    topic = end.EndQuorumEpochResponseTopicData(topic_name=_TOPIC, partitions=[data])
    endpoints = [end.NodeEndpoint(known.leader_id, *known.endpoint)] if known.endpoint else []
    return end.EndQuorumEpochResponse(topics=[topic], node_endpoints=endpoints)


def epoch_told(response: begin.BeginQuorumEpochResponse | end.EndQuorumEpochResponse) -> Told | None:
    """What a response to either says; None for an error of the whole request."""
    data = response.topics[0].partitions[0] if response.topics and response.topics[0].partitions else None
    if response.error_code or data is None:
        return None
    return _told(data.error_code, data.leader_epoch, data.leader_id, response.node_endpoints)


# -- Fetch


def fetch_request(
    me: Myself, epoch: LeaderEpoch, end: OffsetAndEpoch, high_watermark: Offset, bytes_max: int
) -> fetch.FetchRequest:
    """Ask for the records behind `end`, below which every record is durable here."""
    partition = fetch.FetchPartition(
        partition=_PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        replica_directory_id=me.directory_id,
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=me.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=me.node_id),
        max_wait_ms=FETCH_WAIT_MS,
        max_bytes=bytes_max,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_asked(request: fetch.FetchRequest) -> fetch.FetchPartition | None:
    """The partition of a request; None if it is not of the metadata log."""
    found = [
        data
        for topic in request.topics
        if topic.topic_id == METADATA_TOPIC_ID or topic.topic == _TOPIC
        for data in topic.partitions
    ]
    return found[0] if len(found) == 1 and found[0].partition == _PARTITION else None


def replica_of(request: fetch.FetchRequest) -> NodeId:
    """The node that fetches; -1 for a consumer."""
    return NodeId(request.replica_id if request.replica_state is None else request.replica_state.replica_id)


def fetch_response(
    error: ErrorCode,
    known: Known,
    *,
    high_watermark: Offset = NO_OFFSET,
    log_start_offset: Offset = NO_OFFSET,
    records: bytes = b"",
    diverging: OffsetAndEpoch | None = None,
    snapshot: OffsetAndEpoch | None = None,
) -> fetch.FetchResponse:
    """Answer a Fetch."""
    data = fetch.PartitionData(
        partition_index=_PARTITION,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        diverging_epoch=None
        if diverging is None
        else fetch.EpochEndOffset(diverging.epoch, diverging.offset),
        current_leader=fetch.LeaderIdAndEpoch(known.leader_id, known.epoch),
        snapshot_id=None if snapshot is None else fetch.SnapshotId(snapshot.offset, snapshot.epoch),
        records=records,
    )
    topic = fetch.FetchableTopicResponse(topic=_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[data])
    endpoints = [fetch.NodeEndpoint(known.leader_id, *known.endpoint)] if known.endpoint else []
    return fetch.FetchResponse(responses=[topic], node_endpoints=endpoints)


def fetch_told(response: fetch.FetchResponse) -> tuple[Told, fetch.PartitionData] | None:
    """What a response says, and its partition; None for an error of the whole request."""
    if response.error_code or not response.responses or not response.responses[0].partitions:
        return None
    data = response.responses[0].partitions[0]
    leader = data.current_leader or fetch.LeaderIdAndEpoch()
    return _told(data.error_code, leader.leader_epoch, leader.leader_id, response.node_endpoints), data


# -- FetchSnapshot


def snapshot_request(
    me: Myself, epoch: LeaderEpoch, snapshot: OffsetAndEpoch, position: int, bytes_max: int
) -> fetch_snapshot.FetchSnapshotRequest:
    """Ask for the bytes of a snapshot from `position` on."""
    data = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        partition=_PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(snapshot.offset, snapshot.epoch),
        position=position,
        replica_directory_id=me.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=me.cluster_id,
        replica_id=me.node_id,
        max_bytes=bytes_max,
        topics=[fetch_snapshot.FetchSnapshotRequestTopicSnapshot(name=_TOPIC, partitions=[data])],
    )


def snapshot_asked(
    request: fetch_snapshot.FetchSnapshotRequest,
) -> fetch_snapshot.FetchSnapshotRequestPartitionSnapshot | None:
    """The partition of a request; None if it is not of the metadata log."""
    found = [data for topic in request.topics if topic.name == _TOPIC for data in topic.partitions]
    return found[0] if len(found) == 1 and found[0].partition == _PARTITION else None


def snapshot_response(
    error: ErrorCode,
    known: Known,
    *,
    snapshot: OffsetAndEpoch = BOOTSTRAP,
    size: int = 0,
    position: int = 0,
    content: bytes = b"",
) -> fetch_snapshot.FetchSnapshotResponse:
    """Answer a FetchSnapshot."""
    data = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        index=_PARTITION,
        error_code=error,
        snapshot_id=fetch_snapshot.SnapshotId(snapshot.offset, snapshot.epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(known.leader_id, known.epoch),
        size=size,
        position=position,
        unaligned_records=content,
    )
    topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(name=_TOPIC, partitions=[data])
    endpoints = [fetch_snapshot.NodeEndpoint(known.leader_id, *known.endpoint)] if known.endpoint else []
    return fetch_snapshot.FetchSnapshotResponse(topics=[topic], node_endpoints=endpoints)


def snapshot_told(
    response: fetch_snapshot.FetchSnapshotResponse,
) -> tuple[Told, fetch_snapshot.FetchSnapshotResponsePartitionSnapshot] | None:
    """What a response says, and its partition; None for an error of the whole request."""
    if response.error_code or not response.topics or not response.topics[0].partitions:
        return None
    data = response.topics[0].partitions[0]
    leader = data.current_leader or fetch_snapshot.LeaderIdAndEpoch(NO_NODE, -1)
    return _told(data.error_code, leader.leader_epoch, leader.leader_id, response.node_endpoints), data
