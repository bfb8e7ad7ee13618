"""A leader sends no records to a throttled replica outside the ISR (KIP-73)."""

import pytest

from sparklog.model import NodeId, SessionId, TopicPartition
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.cluster.test_replication import replicated

FETCH = 1


def test_a_throttled_replica_outside_the_isr_gets_no_records_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = replicated(6, replica_lag_time_max_ms="2000")
    leader = cluster.leading()
    assert leader is not None
    other = next(one for one in range(1, 6) if cluster.leading(partition=one) == leader)
    away = next(node for node in (1, 2, 3) if node != leader)
    cluster.nodes[NodeId(away)].kill(is_power_cut=False)
    cluster.run_until(lambda: away not in cluster.isr() | cluster.isr(partition=other))
    assert [cluster.write(b"a"), cluster.write(b"a", partition=other)] == [0, 0]
    throttled = {TopicPartition("t", 0)}
    cluster.nodes[NodeId(leader)].running._context.replica_sessions.throttled = lambda one: one in throttled
    cluster.forget_fetches(leader)  # the new sessions have the predicate
    cluster.nodes[NodeId(away)].start()
    cluster.run_until(lambda: away in cluster.isr(partition=other))
    fetches: list[SessionId] = []
    received = SimulatedNode.received

    def counted(node: SimulatedNode, session_id: SessionId, data: bytes) -> None:
        if data[4:6] == FETCH.to_bytes(2) and node is cluster.nodes[NodeId(leader)]:
            fetches.append(session_id)
        received(node, session_id, data)

    monkeypatch.setattr(SimulatedNode, "received", counted)
    cluster.run(5_000)
    assert cluster.values(away, limit=1) == []
    assert len(fetches) < 30  # of two followers that each wait for 500 ms
    # A replica in the ISR is not throttled. The high watermark no longer waits for the other one.
    assert [cluster.write(b"b"), cluster.write(b"b", partition=other)] == [0, 0]
    assert cluster.values(away, limit=2) == []
    assert cluster.isr() == {1, 2, 3} - {away}
    throttled.clear()
    assert cluster.run_until(lambda: away in cluster.isr()) < 1_000
    assert cluster.values(away, limit=2) == [b"a", b"b"]
