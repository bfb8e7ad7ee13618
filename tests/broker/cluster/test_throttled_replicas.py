"""Throttles of replication (KIP-73): replicas outside the ISR get records at the rate, on both sides."""

import pytest

from sparklog.model import NodeId, SessionId
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.cluster.test_replication import replicated
from tests.broker.clusters import Cluster
from tests.broker.configuring import BROKER, TOPIC
from tests.broker.metrics.test_report import Reports

FETCH = 1
RATE = 50_000
BATCH = 5_000
LEADER_RATE, LEADER_REPLICAS = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
FOLLOWER_RATE = "follower.replication.throttled.rate"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
REASSIGNMENT_RATE = "sparklog.reassignment.throttled.rate"


def alter(cluster: Cluster, kind: int, name: str, changes: dict[str, int | str | None]) -> None:
    """Set keys of one resource, or delete those with None, and let every node know."""
    client = cluster.nodes[NodeId(cluster.leading() or 1)].connect()
    altered = [
        AlterableConfig(key, 1 if value is None else 0, None if value is None else str(value))
        for key, value in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(kind, name, altered)])
    client.send(request, 1, IncrementalAlterConfigsResponse)
    cluster.run_until(lambda: bool(client.replies))
    answer = client.replies[0]
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert [one.error_code for one in answer.responses] == [0]
    cluster.run(20)


class Behind:
    """A cluster with a node that is `away` from the ISRs and lacks all records but the first of each
    partition, which the other two have; a leader's rate of 0 holds it there.
    """

    def __init__(self, batches: int = 200, partitions: int = 1) -> None:
        self.cluster = cluster = replicated(partitions, replica_lag_time_max_ms="2000")
        self.partitions = range(partitions)
        leader = cluster.leading()
        assert leader is not None
        self.leader = leader
        self.away = next(node for node in (1, 2, 3) if node != leader)
        for partition in self.partitions:
            assert cluster.write(b"first", partition=partition) == 0
        cluster.nodes[NodeId(self.away)].kill(is_power_cut=False)
        cluster.run_until(lambda: not any(map(self.is_in_sync, self.partitions)))
        for number in range(batches):
            assert cluster.write(bytes(BATCH), partition=number % partitions) == 0
        alter(cluster, TOPIC, "t", {LEADER_REPLICAS: "*"})
        alter(cluster, BROKER, "", {LEADER_RATE: 0})
        cluster.nodes[NodeId(self.away)].start()
        cluster.run_until(lambda: cluster.replica(self.away) is not None)
        cluster.run(1_000)
        assert self.end == partitions

    def is_in_sync(self, partition: int) -> bool:
        return self.away in self.cluster.isr(partition=partition)

    @property
    def end(self) -> int:
        """The records that the node has."""
        replicas = [self.cluster.replica(self.away, partition=partition) for partition in self.partitions]
        return sum(replica.log.log_end_offset for replica in replicas if replica is not None)

    def rate(self, ms: int = 10_000) -> float:
        """The bytes a second that the node gets from now on."""
        before = self.end
        self.cluster.run(ms)
        return (self.end - before) * BATCH * 1_000 / ms

    def joins(self) -> None:
        """The node catches up at once."""
        assert self.cluster.run_until(lambda: all(map(self.is_in_sync, self.partitions))) < 1_500


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[SessionId]:
    """The fetches that nodes have received."""
    seen: list[SessionId] = []
    received = SimulatedNode.received

    def counted(node: SimulatedNode, session_id: SessionId, data: bytes) -> None:
        if data[4:6] == FETCH.to_bytes(2):
            seen.append(session_id)
        received(node, session_id, data)

    monkeypatch.setattr(SimulatedNode, "received", counted)
    return seen


def test_a_leader_sends_throttled_replicas_its_rate_and_delays_nobody_in_sync(
    fetches: list[SessionId],
) -> None:
    behind = Behind()
    cluster = behind.cluster
    alter(cluster, BROKER, str(behind.leader), {LEADER_RATE: RATE})  # before the cluster-wide 0
    fetches.clear()
    assert behind.rate() == pytest.approx(RATE, rel=0.1)
    assert len(fetches) < 10 * (RATE // BATCH + 2 * 2 + 10)  # for each batch, waits of 500 ms, metadata
    begun_ms = cluster.clock.now.mono_us // 1000
    assert cluster.write(bytes(BATCH)) == 0
    assert cluster.clock.now.mono_us // 1000 - begun_ms < 20
    assert behind.away not in cluster.isr()
    alter(cluster, TOPIC, "t", {LEADER_REPLICAS: None})  # both keys are needed
    behind.joins()


@pytest.mark.parametrize("partitions", [1, 20])
def test_a_follower_asks_for_its_rate(partitions: int) -> None:
    behind = Behind(partitions=partitions)
    listed = ",".join(f"{partition}:{behind.away}" for partition in behind.partitions)
    alter(behind.cluster, TOPIC, "t", {FOLLOWER_REPLICAS: listed})
    alter(behind.cluster, BROKER, "", {FOLLOWER_RATE: RATE})
    alter(behind.cluster, BROKER, "", {LEADER_RATE: None})
    assert behind.rate() == pytest.approx(RATE, rel=0.1)
    alter(behind.cluster, BROKER, "", {FOLLOWER_RATE: None})
    behind.joins()


@pytest.mark.parametrize("listed", [f"0:{node}" for node in (7, 8)] + ["1:1,1:2,1:3"])
def test_replicas_that_no_list_has_are_not_throttled(listed: str) -> None:
    behind = Behind(batches=10)
    alter(behind.cluster, BROKER, "", {FOLLOWER_RATE: 1})
    alter(behind.cluster, TOPIC, "t", {FOLLOWER_REPLICAS: listed, LEADER_REPLICAS: listed})
    behind.joins()


@pytest.mark.parametrize("lower", [LEADER_RATE, REASSIGNMENT_RATE])
def test_the_rate_of_reassignments_bounds_every_replica_and_the_lower_rate_counts(lower: str) -> None:
    behind = Behind()
    rates = dict.fromkeys((LEADER_RATE, REASSIGNMENT_RATE), 3 * RATE) | {lower: RATE}
    alter(behind.cluster, BROKER, "", {**rates})
    assert behind.rate() == pytest.approx(RATE, rel=0.1)
    alter(behind.cluster, BROKER, "", {LEADER_RATE: None, REASSIGNMENT_RATE: RATE})
    assert behind.rate(3_000) == pytest.approx(RATE, rel=0.2)
    alter(behind.cluster, BROKER, "", {REASSIGNMENT_RATE: None})
    behind.joins()


def test_a_replica_catches_up_with_a_producer_slower_than_the_throttle() -> None:
    behind = Behind(batches=20)
    cluster = behind.cluster
    alter(cluster, BROKER, "", {LEADER_RATE: None, REASSIGNMENT_RATE: RATE})
    for _ in range(200):
        assert cluster.write(bytes(BATCH // 5)) == 0  # at half of the rate
        if behind.away in cluster.isr():
            break
        cluster.run(40)
    assert behind.away in cluster.isr()


def test_a_replica_that_a_reassignment_adds_is_throttled_and_counted() -> None:
    cluster = Cluster().start()
    cluster.run_until(lambda: cluster.is_ready)
    assert cluster.create(cluster.nodes[NodeId(1)], "t", replicas=2) == 0
    cluster.run_until(lambda: len(cluster.isr()) == 2)
    for _ in range(50):
        assert cluster.write(bytes(BATCH)) == 0
    held = sorted(cluster.replicas())
    leader = cluster.leading()
    assert leader is not None
    alter(cluster, TOPIC, "t", {LEADER_REPLICAS: f"0:{leader}"})
    alter(cluster, BROKER, str(leader), {LEADER_RATE: RATE})
    (added,) = {1, 2, 3} - set(held)
    partition = ReassignablePartition(partition_index=0, replicas=[*held, added])
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[ReassignableTopic(name="t", partitions=[partition])]
    )
    reports = Reports(*cluster.nodes.values())
    leading = cluster.nodes[NodeId(leader)]
    assert reports.scrape(leading).value("kafka_server_leaderreplication_byte_rate") == 0
    client = leading.connect()
    client.send(request, 0, AlterPartitionReassignmentsResponse)
    cluster.run(3_000)
    rate = reports.scrape(leading).value("kafka_server_leaderreplication_byte_rate")
    assert rate == pytest.approx(RATE, rel=0.2)
    assert reports.total("kafka_server_replicamanager_reassigningpartitions") == 1
    assert added not in cluster.isr()
    assert 3_000 < cluster.run_until(lambda: added in cluster.isr()) + 2_000 < 5_000
    sent = reports.total("kafka_server_brokertopicmetrics_reassignmentbytesout_total")
    assert sent == reports.total("kafka_server_brokertopicmetrics_reassignmentbytesin_total")
    assert sent > 50 * BATCH
    assert reports.total("kafka_server_replicamanager_reassigningpartitions") == 0
