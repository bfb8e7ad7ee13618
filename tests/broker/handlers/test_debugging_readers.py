"""Replica id -2: a reader that compares replicas, such as kafka-replica-verification, is served by each."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.record.batch import decode_records
from sparklog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.cluster.test_replication import replicated
from tests.broker.clusters import Cluster

CONSUMER, DEBUGGING = -1, -2
BY_NAME, NEWEST = 12, 18
LATEST, EARLIEST, FROM_THE_FIRST = -1, -2, 0


@pytest.fixture
def cluster() -> Cluster:
    """Two records on three replicas, which all followers know to be committed."""
    cluster = replicated()
    assert cluster.write(b"a", b"b") == 0
    cluster.run(1000)
    return cluster


def followers(cluster: Cluster) -> list[int]:
    return sorted({1, 2, 3} - {cluster.leading() or 0})


def epoch(cluster: Cluster) -> int:
    replica = cluster.replica(cluster.leading() or 0)
    assert replica is not None
    assert replica.leader is not None
    return replica.leader.leader_epoch


def send_fetch(
    cluster: Cluster,
    node: int,
    *,
    reader: int = DEBUGGING,
    offset: int = 0,
    claimed_epoch: int = -1,
    max_wait_ms: int = 0,
    version: int = NEWEST,
) -> SimulatedConnection:
    part = FetchPartition(
        partition=0, fetch_offset=offset, current_leader_epoch=claimed_epoch, partition_max_bytes=1 << 20
    )
    replica = cluster.replica(node)
    assert replica is not None
    request = FetchRequest(
        replica_id=reader if version < 15 else -1,
        replica_state=ReplicaState(reader, -1) if version >= 15 else None,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", topic_id=replica.log.topic_id, partitions=[part])],
    )
    client = cluster.nodes[NodeId(node)].connect()
    client.send(request, version, FetchResponse)
    return client


def fetched(client: SimulatedConnection) -> PartitionData:
    (answer,) = client.replies
    assert isinstance(answer, FetchResponse)
    return answer.responses[0].partitions[0]


def values(part: PartitionData) -> list[bytes]:
    return [record.value or b"" for record in decode_records(part.records or b"")]


def list_offset(
    cluster: Cluster, node: int, timestamp: int, *, reader: int = DEBUGGING
) -> ListOffsetsPartitionResponse:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=reader, topics=[ListOffsetsTopic(name="t", partitions=[part])])
    client = cluster.nodes[NodeId(node)].connect()
    client.send(request, 7, ListOffsetsResponse)
    cluster.run_until(lambda: bool(client.replies))
    answer = client.replies[0]
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", [BY_NAME, NEWEST])
def test_every_replica_gives_a_debugging_reader_the_same_committed_records(
    cluster: Cluster, version: int
) -> None:
    for node in (1, 2, 3):
        part = fetched(send_fetch(cluster, node, version=version))
        assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 2, 2)
        assert values(part) == [b"a", b"b"]


def test_a_follower_gives_a_debugging_reader_nothing_above_its_own_high_watermark() -> None:
    cluster = replicated()
    assert cluster.write(b"a") == 0
    for node in followers(cluster):
        replica = cluster.replica(node)
        assert replica is not None
        assert (replica.log.log_end_offset, replica.high_watermark) == (1, 0)
        assert values(fetched(send_fetch(cluster, node))) == []


def test_a_debugging_reader_waits_at_a_follower_for_the_next_record(cluster: Cluster) -> None:
    client = send_fetch(cluster, followers(cluster)[0], offset=2, max_wait_ms=10_000)
    cluster.run(100)
    assert not client.replies
    assert cluster.write(b"c") == 0
    cluster.run(1000)
    assert values(fetched(client)) == [b"c"]


def test_a_follower_compares_the_leader_epoch_of_a_debugging_reader(cluster: Cluster) -> None:
    first, older = cluster.leading(), epoch(cluster)
    cluster.nodes[NodeId(first or 0)].kill(is_power_cut=False)
    cluster.run_until(lambda: cluster.leading() not in (None, first))
    cluster.run(1000)
    (node,) = {*followers(cluster)} - {first}
    codes = [
        fetched(send_fetch(cluster, node, claimed_epoch=claimed)).error_code
        for claimed in (older, epoch(cluster), epoch(cluster) + 1)
    ]
    assert codes == [ErrorCode.FENCED_LEADER_EPOCH, 0, ErrorCode.UNKNOWN_LEADER_EPOCH]


def test_a_debugging_reader_gets_offsets_from_every_replica(cluster: Cluster) -> None:
    for node in (1, 2, 3):
        for timestamp, offset in ((LATEST, 2), (EARLIEST, 0), (FROM_THE_FIRST, 0)):
            part = list_offset(cluster, node, timestamp)
            assert (part.error_code, part.offset) == (0, offset)
        assert list_offset(cluster, node, LATEST).leader_epoch == epoch(cluster)


def test_the_latest_offset_of_a_debugging_reader_is_the_end_of_the_log() -> None:
    cluster = replicated()
    cluster.run(1000)
    assert cluster.write(b"a") == 0
    node = followers(cluster)[0]
    assert list_offset(cluster, node, LATEST).offset == 1


def test_a_consumer_gets_offsets_from_the_leader_only(cluster: Cluster) -> None:
    part = list_offset(cluster, followers(cluster)[0], LATEST, reader=CONSUMER)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
