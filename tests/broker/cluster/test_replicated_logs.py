"""Compaction, retention and DeleteRecords over three replicas: each replica does its own, and clients read
the same from all.
"""

from itertools import pairwise

import pytest

from sparklog.model import NodeId, Offset
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from sparklog_server.simulation.disk import NO_SPACE
from tests.broker.cluster.test_replication import replicated
from tests.broker.clusters import Cluster
from tests.log.logs import records_of

COMPACTED = {
    "log_cleanup_policy": "compact",
    "log_roll_ms": "1000",
    "log_cleaner_min_cleanable_ratio": "0.01",
    "log_cleaner_backoff_ms": "200",
    "log_cleaner_delete_retention_ms": "5000",
}
RETAINED = {
    "log_roll_ms": "1000",
    "log_retention_ms": "4000",
    "log_retention_check_interval_ms": "500",
    "log_initial_task_delay_ms": "500",
}


def kept(cluster: Cluster, node: int) -> dict[bytes | None, bytes | None]:
    """The last value of each key in the log of a node; None is a tombstone."""
    replica = cluster.replica(node)
    assert replica is not None
    return {record.key: record.value for record in records_of(replica.log)}


def offsets(cluster: Cluster, node: int) -> list[Offset]:
    replica = cluster.replica(node)
    assert replica is not None
    return [record.offset for record in records_of(replica.log)]


def starts(cluster: Cluster) -> dict[int, Offset]:
    return {node: replica.log.log_start_offset for node, replica in cluster.replicas().items()}


def put(cluster: Cluster, rounds: int) -> None:
    """Write each of three keys once per round; every round is in segments of its own."""
    for number in range(rounds):
        for key in (b"a", b"b", b"c"):
            assert cluster.write(b"%d" % number, key=key) == 0
        cluster.run(1100)


def test_every_replica_compacts_its_own_log_and_keeps_the_same_records() -> None:
    cluster = replicated(**COMPACTED)
    put(cluster, 6)
    cluster.run(5000)
    assert [kept(cluster, node) for node in (1, 2, 3)] == [{b"a": b"5", b"b": b"5", b"c": b"5"}] * 3
    assert all(len(offsets(cluster, node)) < 18 for node in (1, 2, 3))


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_follower_catches_up_over_the_gaps_of_a_compacted_log(*, is_power_cut: bool) -> None:
    cluster = replicated(**COMPACTED)
    put(cluster, 1)
    away = next(node for node in (1, 2, 3) if node != cluster.leading())
    cluster.nodes[NodeId(away)].kill(is_power_cut=is_power_cut)
    cluster.run_until(lambda: away not in cluster.isr())
    put(cluster, 5)
    assert cluster.write(None, key=b"b") == 0
    cluster.run(5000)
    leader = cluster.leading()
    assert leader is not None
    assert len(offsets(cluster, leader)) < 16
    cluster.nodes[NodeId(away)].start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})
    cluster.run(5000)
    assert [kept(cluster, node) for node in (1, 2, 3)] == [{b"a": b"4", b"b": None, b"c": b"4"}] * 3
    cluster.nodes[NodeId(leader)].kill(is_power_cut=is_power_cut)
    cluster.run_until(lambda: cluster.leading() not in (None, leader))
    assert cluster.write(b"after", key=b"a") == 0
    assert [kept(cluster, node)[b"a"] for node in (1, 2, 3) if node != leader] == [b"after"] * 2


def test_the_log_start_of_followers_follows_the_retention_of_the_leader() -> None:
    cluster = replicated(**RETAINED)
    put(cluster, 8)
    cluster.run(2000)
    assert min(starts(cluster).values()) > 0
    cluster.run(8000)
    assert len(set(starts(cluster).values())) == 1


def test_a_follower_that_was_away_for_longer_than_the_retention_begins_anew() -> None:
    cluster = replicated(**RETAINED)
    put(cluster, 1)
    away = next(node for node in (1, 2, 3) if node != cluster.leading())
    cluster.nodes[NodeId(away)].kill(is_power_cut=False)
    cluster.run_until(lambda: away not in cluster.isr())
    put(cluster, 8)
    assert starts(cluster)[cluster.leading() or 0] > 3
    cluster.nodes[NodeId(away)].start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})
    assert cluster.write(b"x", key=b"a") == 0
    ends = {replica.log.log_end_offset for replica in cluster.replicas().values()}
    assert len(ends) == 1
    assert offsets(cluster, away)[-1] == offsets(cluster, cluster.leading() or 0)[-1]


def delete(cluster: Cluster, offset: int) -> None:
    """Delete the records below `offset` at the leader."""
    client = cluster.nodes[NodeId(cluster.leading() or 0)].connect()
    asked = DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    client.send(DeleteRecordsRequest(topics=[asked], timeout_ms=30_000), 2, DeleteRecordsResponse)
    cluster.run_until(lambda: bool(client.replies))
    answer = client.replies[0]
    assert isinstance(answer, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_follower_begins_anew_within_a_batch_whose_first_records_are_deleted() -> None:
    cluster = replicated()
    assert cluster.write(b"x") == 0
    away = next(node for node in (1, 2, 3) if node != cluster.leading())
    cluster.nodes[NodeId(away)].kill(is_power_cut=False)
    cluster.run_until(lambda: away not in cluster.isr())
    assert [cluster.write(*values) for values in ((b"y",), (b"a", b"b", b"c"), (b"d",))] == [0, 0, 0]
    delete(cluster, 4)
    cluster.nodes[NodeId(away)].start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})
    cluster.run_until(lambda: starts(cluster) == {1: 4, 2: 4, 3: 4})
    assert offsets(cluster, away)[-2:] == [4, 5]
    cluster.nodes[NodeId(away)].kill(is_power_cut=False)
    cluster.nodes[NodeId(away)].start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3} and starts(cluster).get(away) == 4)


def test_a_log_that_ends_at_the_leaders_log_start_amid_a_batch_begins_anew() -> None:
    cluster = replicated()
    assert cluster.write(b"a") == 0
    old = cluster.leading() or 0
    cluster.forget_fetches(old)
    assert cluster.write(b"lost", acks=1) == 0
    cluster.nodes[NodeId(old)].kill(is_power_cut=False)
    cluster.run_until(lambda: cluster.leading() not in (None, old))
    assert cluster.write(b"b", b"c", b"d") == 0
    delete(cluster, 2)
    cluster.nodes[NodeId(old)].start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})
    assert offsets(cluster, old) == offsets(cluster, cluster.leading() or 0)


def test_a_log_that_begins_anew_waits_for_room_on_a_full_disk() -> None:
    cluster = replicated(**RETAINED)
    put(cluster, 1)
    away = next(node for node in (1, 2, 3) if node != cluster.leading())
    node = cluster.nodes[NodeId(away)]
    node.kill(is_power_cut=False)
    cluster.run_until(lambda: away not in cluster.isr())
    put(cluster, 8)
    node.job_delay_us = 10_000, 10_000
    node.start()
    cluster.run_until(lambda: any(line.startswith("replica-begins-anew") for line in node.trace))
    node.disk.capacity_bytes = node.disk.used_bytes
    cluster.run(3_000)
    assert not [line for line in node.trace if "offline" in line]
    node.disk.capacity_bytes = None
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})


def test_a_partition_for_which_a_follower_has_no_room_is_retried_and_the_others_go_on() -> None:
    cluster = replicated(6, replica_fetch_backoff_ms="1500")
    full = next(one for one in range(1, 6) if cluster.leading(partition=one) == cluster.leading())
    node = cluster.nodes[NodeId(next(one for one in (1, 2, 3) if one != cluster.leading()))]
    tried_us: list[int] = []

    def fault(call: str, path: str) -> str | None:
        if call != "append" or f"/t-{full}/" not in path:
            return None
        tried_us.append(cluster.clock.now.mono_us)
        return NO_SPACE

    node.disk.fault = fault
    assert cluster.write(b"a", partition=full, acks=1) == 0
    cluster.run(10)
    for _ in range(10):
        begun_us = cluster.clock.now.mono_us
        assert cluster.write(b"b") == 0  # of the same leader, and with acks=all
        assert cluster.clock.now.mono_us - begun_us < 100_000
        cluster.run(600)
    pauses = [after - before for before, after in pairwise(tried_us)]
    assert len(pauses) >= 3
    assert all(1_500_000 <= pause < 1_600_000 for pause in pauses)
    assert not [line for line in node.trace if "offline" in line]
    node.disk.fault = None
    begun_us = cluster.clock.now.mono_us
    assert cluster.write(b"c", partition=full) == 0
    assert cluster.clock.now.mono_us - begun_us < 1_700_000
    assert cluster.isr(partition=full) == {1, 2, 3}


def test_deleted_records_are_gone_from_every_replica_before_the_answer() -> None:
    cluster = replicated()
    assert cluster.write(b"a", b"b", b"c") == 0
    delete(cluster, 2)
    assert starts(cluster) == {1: 2, 2: 2, 3: 2}
