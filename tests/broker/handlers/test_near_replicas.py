"""A consumer reads from the replica in its own rack (KIP-392)."""

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.record.batch import decode_records
from sparklog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.clusters import Cluster

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def in_racks(**given: str) -> Cluster:
    """Three nodes in the racks r1, r2 and r3, and a topic `t` with three replicas, all in sync."""
    cluster = Cluster(broker_rack="r{node}", **given).start()
    cluster.run_until(lambda: cluster.is_ready)
    assert cluster.create(cluster.nodes[NodeId(1)], "t", replicas=3) == 0
    cluster.run_until(lambda: cluster.leading() is not None)
    return cluster


def fetch(
    cluster: Cluster, node: int, rack: str, offset: int, *, wait_ms: int = 0, version: int = 12
) -> SimulatedConnection:
    client = cluster.nodes[NodeId(node)].connect()
    parts = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        rack_id=rack if version >= 11 else "",
        topics=[FetchTopic(topic="t", partitions=parts)],
    )
    client.send(request, version, FetchResponse)
    return client


def answer(cluster: Cluster, client: SimulatedConnection) -> PartitionData:
    cluster.run_until(lambda: bool(client.replies))
    reply = client.replies[0]
    assert isinstance(reply, FetchResponse)
    return reply.responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for record in decode_records(bytes(data.records or b""))]


def led(cluster: Cluster) -> tuple[int, int]:
    """The leader and one of the followers."""
    leader = cluster.leading()
    assert leader is not None
    return leader, next(node for node in (1, 2, 3) if node != leader)


def test_the_leader_names_the_replica_in_the_rack_of_the_consumer_at_once() -> None:
    cluster = in_racks(replica_selector_class=RACK_AWARE)
    assert cluster.write(b"a") == 0
    leader, follower = led(cluster)
    named = answer(cluster, fetch(cluster, leader, f"r{follower}", 0, wait_ms=5_000))
    assert (named.preferred_read_replica, named.records, named.error_code) == (follower, b"", 0)
    for rack in (f"r{leader}", "elsewhere", ""):
        given = answer(cluster, fetch(cluster, leader, rack, 0))
        assert (given.preferred_read_replica, values(given)) == (-1, [b"a"])


def test_without_the_setting_the_leader_serves_every_rack() -> None:
    cluster = in_racks()
    assert cluster.write(b"a") == 0
    leader, follower = led(cluster)
    given = answer(cluster, fetch(cluster, leader, f"r{follower}", 0))
    assert (given.preferred_read_replica, values(given)) == (-1, [b"a"])


def test_a_replica_that_is_not_in_sync_or_lacks_the_offset_is_not_named() -> None:
    cluster = in_racks(
        replica_selector_class=RACK_AWARE, replica_lag_time_max_ms="1500", broker_session_timeout_ms="60000"
    )
    assert cluster.write(b"a") == 0
    leader, follower = led(cluster)
    assert (
        answer(cluster, fetch(cluster, leader, f"r{follower}", 7)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    )
    cluster.nodes[NodeId(follower)].pause()
    assert cluster.write(b"b", acks=1) == 0
    cluster.run_until(lambda: follower not in cluster.isr())
    given = answer(cluster, fetch(cluster, leader, f"r{follower}", 0))
    assert (given.preferred_read_replica, values(given)) == (-1, [b"a", b"b"])


def test_a_reader_of_a_follower_has_a_record_within_two_ms_of_its_acknowledgement() -> None:
    cluster = in_racks()
    assert cluster.write(b"first") == 0
    _, follower = led(cluster)
    cluster.run_until(lambda: cluster.values(follower) == [b"first"])
    for offset in range(1, 6):
        cluster.run(100 * offset)
        reader = fetch(cluster, follower, f"r{follower}", offset, wait_ms=5_000)
        cluster.run(20)
        assert not reader.replies
        assert cluster.write(b"next") == 0
        told_us = cluster.clock.now.mono_us
        assert values(answer(cluster, reader)) == [b"next"]
        assert cluster.clock.now.mono_us - told_us <= 2_000


def test_a_follower_serves_only_clients_that_know_of_it_and_only_offsets_that_it_has() -> None:
    cluster = in_racks()
    assert cluster.write(b"a") == 0
    _, follower = led(cluster)
    cluster.run(1_000)
    assert values(answer(cluster, fetch(cluster, follower, "", 0))) == [b"a"]
    assert answer(cluster, fetch(cluster, follower, "", 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    old = answer(cluster, fetch(cluster, follower, "", 0, version=10))
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
