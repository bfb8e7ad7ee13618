"""Who asks a former leader, or a follower, is told who leads (KIP-951)."""

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, Uuid
from sparklog.record.batch import build_batch
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from sparklog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.clusters import Cluster

PREFERRED = 0
NOT_LEADER, FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH


class Moving:
    """Three brokers and a controller. One broker leads `t-0`, which another, the preferred one, led before;
    the third one stands still, so that nothing is committed.
    """

    def __init__(self) -> None:
        self.cluster = cluster = Cluster(
            count=4,
            voters=1,
            is_split=True,
            broker_session_timeout_ms="600000",
            min_insync_replicas="2",
            auto_leader_rebalance_enable="false",
        ).start()
        cluster.run_until(lambda: cluster.is_ready and len(cluster.quorums[0].image.brokers) == 3)
        assert cluster.create(cluster.nodes[NodeId(2)], "t", replicas=3) == 0
        cluster.run_until(lambda: cluster.isr() == {2, 3, 4} and cluster.leading() is not None)
        self.preferred = cluster.leading() or 0
        cluster.nodes[NodeId(self.preferred)].stop()
        cluster.run_until(lambda: cluster.leading() not in (None, self.preferred))
        self.leader = cluster.leading() or 0
        cluster.nodes[NodeId(self.preferred)].start()
        cluster.run_until(lambda: cluster.isr() == {2, 3, 4})
        self.epoch = self._epoch()
        self.still = next(node for node in (2, 3, 4) if node not in (self.preferred, self.leader))
        cluster.nodes[NodeId(self.still)].pause()
        self.topic_id = Uuid(cluster.quorums[0].image.topics_by_name["t"].topic_id)

    def _epoch(self) -> int:
        replica = self.cluster.replica(self.cluster.leading() or 0)
        assert replica is not None
        assert replica.leader is not None
        return replica.leader.leader_epoch

    @property
    def told(self) -> tuple[tuple[int, int], list[tuple[int, str, int]]]:
        """The leader and its epoch, and its address, as a response has to name them."""
        leader = self.cluster.leading() or 0
        return (leader, self._epoch()), [(leader, f"127.0.0.{leader}", 9092)]

    def produce(self) -> SimulatedConnection:
        """Produce with acks=all to the broker that leads at first."""
        client = self.cluster.nodes[NodeId(self.leader)].connect()
        data = [PartitionProduceData(index=0, records=bytes(build_batch([(None, b"v", (), 1)])))]
        topics = [TopicProduceData(topic_id=self.topic_id, partition_data=data)]
        client.send(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), 13, ProduceResponse)
        return client

    def fetch(self, node: int, *, version: int = 17, epoch: int = -1) -> SimulatedConnection:
        """Fetch as a consumer that waits for a record."""
        client = self.cluster.nodes[NodeId(node)].connect()
        part = FetchPartition(partition=0, current_leader_epoch=epoch, partition_max_bytes=1 << 20)
        named = FetchTopic(topic_id=self.topic_id) if version >= 13 else FetchTopic(topic="t")
        named.partitions = [part]
        request = FetchRequest(
            max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[named]
        )
        client.send(request, version, FetchResponse)
        return client

    def move(self) -> None:
        """Elect the preferred leader, and let the turn end in which the former one learns of that."""
        client = self.cluster.nodes[NodeId(self.preferred)].connect()
        partitions = [TopicPartitions(topic="t", partitions=[0])]
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=partitions, timeout_ms=10_000)
        client.send(request, 2, ElectLeadersResponse)
        former = self.cluster.replica(self.leader)
        assert former is not None
        self.cluster.run_until(lambda: former.leader is None)


def answered(
    client: SimulatedConnection,
) -> tuple[int, tuple[tuple[int, int] | None, list[tuple[int, str, int]]]]:
    """(error code, (leader and epoch, addresses)) of the one response, which is there already."""
    (answer,) = client.replies
    part: PartitionProduceResponse | PartitionData
    if isinstance(answer, ProduceResponse):
        part = answer.responses[0].partition_responses[0]
    else:
        assert isinstance(answer, FetchResponse)
        part = answer.responses[0].partitions[0]
    named = part.current_leader
    leader = None if named is None else (named.leader_id, named.leader_epoch)
    return part.error_code, (leader, [(one.node_id, one.host, one.port) for one in answer.node_endpoints])


def test_requests_that_wait_are_answered_when_the_leadership_moves() -> None:
    moving = Moving()
    clients = [
        moving.fetch(moving.leader, epoch=moving.epoch),
        moving.fetch(moving.leader, version=10),
        moving.produce(),
    ]
    moving.cluster.run(5_000)
    assert [client.replies for client in clients] == [[], [], []]
    moving.move()
    of_epoch, of_version_10, produced = map(answered, clients)
    assert moving.cluster.leading() == moving.preferred
    assert produced == (NOT_LEADER, moving.told)
    assert of_epoch == (FENCED, moving.told)
    assert of_version_10 == (NOT_LEADER, (None, []))  # since version 11 a follower is read from (KIP-392)


def test_a_former_leader_and_a_follower_name_the_leader() -> None:
    moving = Moving()
    moving.move()
    moving.cluster.run(1_000)
    for node in (moving.leader, moving.still):
        moving.cluster.nodes[NodeId(node)].resume()
        moving.cluster.run(1_000)
        fetched = moving.fetch(node, epoch=moving.epoch)
        moving.cluster.run_until(lambda fetched=fetched: bool(fetched.replies))
        assert answered(fetched) == (FENCED, moving.told)
    produced = moving.produce()
    moving.cluster.run_until(lambda: bool(produced.replies))
    assert answered(produced) == (NOT_LEADER, moving.told)
