"""Partitions with three replicas, on three whole brokers: what is acknowledged survives the leader."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, SessionId
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.clusters import Cluster
from tests.broker.world import latest, listed

ALTER_PARTITION = 56


def replicated(partitions: int = 1, **given: str) -> Cluster:
    """Three nodes and a topic `t` with three replicas, all in sync."""
    cluster = Cluster(**{"min_insync_replicas": "2", **given}).start()
    cluster.run_until(lambda: cluster.is_ready)
    assert cluster.create(cluster.nodes[NodeId(1)], "t", partitions, replicas=3) == 0
    cluster.run_until(lambda: cluster.leading() is not None)
    return cluster


def test_a_record_with_acks_all_is_on_every_replica() -> None:
    cluster = replicated()
    assert cluster.write(b"a", b"b") == 0
    assert [cluster.values(node, limit=2) for node in (1, 2, 3)] == [[b"a", b"b"]] * 3


def test_the_first_records_of_a_partition_do_not_wait_for_the_idle_fetches_of_others() -> None:
    cluster = replicated(6)
    for name in ("u", "v", "w"):
        cluster.run(700)  # each follower has told everything, and waits at each leader
        assert cluster.create(cluster.nodes[NodeId(1)], name, 6, replicas=3) == 0
        cluster.run_until(lambda name=name: all(cluster.leading(name, one) for one in range(6)))
        begun_us = cluster.clock.now.mono_us
        for partition in range(6):
            assert cluster.write(b"a", topic=name, partition=partition) == 0
        assert cluster.clock.now.mono_us - begun_us < 200_000


def test_followers_learn_the_high_watermark_with_the_next_fetch() -> None:
    cluster = replicated()
    assert cluster.write(b"a") == 0
    cluster.run(600)
    assert [cluster.values(node) for node in (1, 2, 3)] == [[b"a"]] * 3


def test_another_replica_leads_when_the_leader_dies_and_the_old_one_rejoins() -> None:
    cluster = replicated()
    assert cluster.write(b"a") == 0
    first = cluster.leading()
    assert first is not None
    cluster.nodes[NodeId(first)].kill(is_power_cut=False)
    passed = cluster.run_until(lambda: cluster.leading() not in (None, first))
    assert passed < 1000
    assert cluster.write(b"b") == 0
    cluster.nodes[NodeId(first)].start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})
    assert cluster.write(b"c") == 0
    assert [cluster.values(node, limit=3) for node in (1, 2, 3)] == [[b"a", b"b", b"c"]] * 3


def test_a_partition_for_which_a_response_has_no_room_is_in_a_later_one() -> None:
    cluster = replicated(6, replica_fetch_response_max_bytes="1")
    cluster.nodes[NodeId(3)].kill(is_power_cut=False)
    cluster.run_until(lambda: all(cluster.leading(partition=one) in (1, 2) for one in range(6)))
    for partition in range(6):
        assert cluster.write(b"a", partition=partition) in (0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    cluster.nodes[NodeId(3)].start()
    cluster.run_until(lambda: all(cluster.isr(partition=one) == {1, 2, 3} for one in range(6)))
    assert [cluster.values(3, partition=one, limit=1) for one in range(6)] == [[b"a"]] * 6


def test_records_that_only_the_old_leader_has_are_truncated() -> None:
    cluster = replicated()
    assert cluster.write(b"a") == 0
    first = cluster.leading()
    assert first is not None
    others = [node for node in (1, 2, 3) if node != first]
    cluster.forget_fetches(first)
    assert cluster.write(b"lost", acks=1) == 0
    cluster.nodes[NodeId(first)].kill(is_power_cut=False)
    cluster.run_until(lambda: cluster.leading() in others)
    assert cluster.write(b"b") == 0
    cluster.nodes[NodeId(first)].start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})
    cluster.run(1000)
    assert [cluster.values(node) for node in (1, 2, 3)] == [[b"a", b"b"]] * 3


def test_a_follower_is_told_the_log_end_as_the_latest_offset_and_a_consumer_the_high_watermark() -> None:
    cluster = replicated()
    leader = cluster.leading()
    assert leader is not None
    assert cluster.write(b"a") == 0
    cluster.forget_fetches(leader)
    assert cluster.write(b"b", acks=1) == 0
    client = cluster.nodes[NodeId(leader)].connect()
    for reader in (next(node for node in (1, 2, 3) if node != leader), -1):
        request = latest("t")
        request.replica_id = reader
        client.send(request, 7, ListOffsetsResponse)
    cluster.run(1)
    assert [listed(answer) for answer in client.replies] == [(0, 2), (0, 1)]


def bystander(cluster: Cluster) -> int:
    """A node that leads neither the partition nor the quorum."""
    leader = cluster.leading()
    return next(
        node
        for node in (1, 2, 3)
        if node != leader and not cluster.nodes[NodeId(node)].running._quorum.is_leader
    )


def test_a_silent_follower_leaves_the_isr_and_then_holds_nothing_back() -> None:
    cluster = replicated(replica_lag_time_max_ms="2000", broker_session_timeout_ms="60000")
    silent = bystander(cluster)
    cluster.nodes[NodeId(silent)].pause()
    assert cluster.write(b"a") == 0
    assert cluster.isr() == {1, 2, 3} - {silent}
    cluster.nodes[NodeId(silent)].resume()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})
    assert cluster.write(b"b") == 0


def test_a_leader_proposes_the_isrs_of_all_its_partitions_in_one_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 12
    cluster = Cluster(
        count=4, voters=1, is_split=True, replica_lag_time_max_ms="2000", broker_session_timeout_ms="60000"
    ).start()
    cluster.run_until(lambda: cluster.is_ready and len(cluster.quorums[0].image.brokers) == 3)
    assert cluster.create(cluster.nodes[NodeId(2)], "t", count, replicas=3) == 0
    cluster.run_until(lambda: all(cluster.leading(partition=one) is not None for one in range(count)))
    proposals: list[int] = []
    received = SimulatedNode.received

    def counted(node: SimulatedNode, session_id: SessionId, data: bytes) -> None:
        if data[4:6] == ALTER_PARTITION.to_bytes(2) and node is cluster.nodes[NodeId(1)]:
            proposals.append(session_id)
        received(node, session_id, data)

    monkeypatch.setattr(SimulatedNode, "received", counted)
    leaders = {one: cluster.leading(partition=one) for one in range(count)}
    silent = 2
    cluster.nodes[NodeId(silent)].pause()
    led = [one for one in range(count) if leaders[one] != silent]
    for one in led:
        cluster.send(leaders[one] or 0, b"a", partition=one, acks=1)
    cluster.run_until(lambda: all(cluster.isr(partition=one) == {3, 4} for one in led))
    assert (len(led), len(proposals), len(set(proposals))) == (8, 2, 2)


def test_a_follower_that_was_fenced_for_a_while_rejoins_idle_partitions_too() -> None:
    cluster = replicated(3, broker_session_timeout_ms="3000")
    cluster.run(3000)  # all of its fetches are incremental by now, and name no partition
    silent = bystander(cluster)
    cluster.nodes[NodeId(silent)].pause()
    cluster.run_until(lambda: all(silent not in cluster.isr(partition=one) for one in range(3)))
    cluster.nodes[NodeId(silent)].resume()
    cluster.run_until(lambda: all(cluster.isr(partition=one) == {1, 2, 3} for one in range(3)))


def test_an_isr_below_the_minimum_refuses_acks_all_and_hides_what_acks_1_wrote() -> None:
    cluster = replicated(
        min_insync_replicas="3", replica_lag_time_max_ms="2000", broker_session_timeout_ms="60000"
    )
    assert cluster.write(b"a") == 0
    silent = bystander(cluster)
    cluster.nodes[NodeId(silent)].pause()
    assert cluster.write(b"b", acks=1) == 0
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3} - {silent})
    assert cluster.write(b"c") == ErrorCode.NOT_ENOUGH_REPLICAS
    leader = cluster.leading()
    assert leader is not None
    assert cluster.values(leader) == [b"a"]
    cluster.nodes[NodeId(silent)].resume()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})
    cluster.run(600)
    assert cluster.values(leader) == [b"a", b"b"]


def test_a_write_that_the_shrunken_isr_holds_is_told_after_the_append() -> None:
    cluster = replicated(
        min_insync_replicas="3", replica_lag_time_max_ms="2000", broker_session_timeout_ms="60000"
    )
    assert cluster.write(b"a") == 0
    silent = bystander(cluster)
    cluster.nodes[NodeId(silent)].pause()
    assert cluster.write(b"b") in (-1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def test_every_replica_dies_and_what_was_acknowledged_is_there_again() -> None:
    cluster = replicated()
    assert cluster.write(b"a", b"b") == 0
    for node in cluster.nodes.values():
        node.kill(is_power_cut=False)
    for node in cluster.nodes.values():
        node.start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3} and cluster.leading() is not None)
    assert cluster.write(b"c") == 0
    assert [cluster.values(node, limit=3) for node in (1, 2, 3)] == [[b"a", b"b", b"c"]] * 3


def test_a_clean_stop_moves_the_leaderships_without_an_error() -> None:
    cluster = replicated(partitions=4)
    first = cluster.leading()
    assert first is not None
    node = cluster.nodes[NodeId(first)]
    node.begin_stop()
    cluster.run_until(lambda: cluster.leading() not in (None, first))
    assert cluster.write(b"a") == 0


def test_a_replica_that_is_dropped_leaves_its_broker() -> None:
    cluster = replicated()
    assert cluster.write(b"a") == 0
    leader = cluster.leading()
    assert leader is not None
    dropped = next(node for node in (1, 2, 3) if node != leader)
    kept = [node for node in (1, 2, 3) if node != dropped]
    client = cluster.nodes[NodeId(leader)].connect()
    asked = ReassignablePartition(partition_index=0, replicas=[leader, *(n for n in kept if n != leader)])
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[ReassignableTopic(name="t", partitions=[asked])]
    )
    client.send(request, 0, AlterPartitionReassignmentsResponse)
    cluster.run_until(lambda: cluster.isr() == set(kept))
    cluster.run_until(lambda: cluster.replica(dropped) is None)
    assert cluster.write(b"b") == 0
    assert [cluster.values(node, limit=2) for node in kept] == [[b"a", b"b"]] * 2
    cluster.run(70_000)
    assert not [path for path in cluster.nodes[NodeId(dropped)].disk.list("/data") if path.startswith("t-0")]


@pytest.mark.parametrize("seed", range(6))
def test_a_leader_that_lost_records_with_its_power_does_not_lead_on(seed: int) -> None:
    def is_whole() -> bool:
        return cluster.is_ready and all(len(cluster.isr(partition=one)) == 3 for one in range(3))

    given = {
        "min_insync_replicas": "2",
        "broker_session_timeout_ms": "60000",
        "replica_lag_time_max_ms": "60000",
    }
    cluster = Cluster(seed, **given).start()
    cluster.run_until(lambda: cluster.is_ready)
    assert cluster.create(cluster.nodes[NodeId(1)], "t", 3, replicas=3) == 0
    cluster.run_until(is_whole)
    for partition in range(3):
        assert cluster.write(b"a", partition=partition) == 0
    leader = cluster.nodes[NodeId(cluster.leading() or 0)]
    leader.kill(is_power_cut=True)
    leader.start()
    cluster.run_until(is_whole)
    cluster.run(600)
    assert [cluster.values(node, partition=one) for node in (1, 2, 3) for one in range(3)] == [[b"a"]] * 9
