"""Groups and transactions over three brokers: the coordinator of a key leads its partition, whichever node
the client asks, and a transaction spans partitions of every broker.
"""

from random import Random

import pytest

from sparklog.errors import ErrorCode, code_of
from sparklog.model import NodeId, TopicPartition
from sparklog.record.batch import build_batch, decode_records
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.coordinators import transaction_peers
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.clusters import Cluster

NONE = ErrorCode.NONE
_READ_COMMITTED = 1
_PARTITIONS = 6
_NODE_BY_HOST = {f"127.0.0.{number}": NodeId(number) for number in range(1, 4)}


class Client:
    """A client of a cluster, with a new connection for each request."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def ask(self, node: SimulatedNode, request: Message, version: int, reply: type[Message]) -> Message:
        connection = node.connect()
        connection.send(request, version, reply)
        self.cluster.run_until(lambda: bool(connection.replies), 60_000)
        return connection.replies[0]

    def coordinator(self, key: str, key_type: int, by: SimulatedNode) -> SimulatedNode:
        """As any client, retries until the coordinator is known."""
        for _ in range(20):
            answer = self.ask(
                by,
                FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]),
                4,
                FindCoordinatorResponse,
            )
            assert isinstance(answer, FindCoordinatorResponse)
            found = answer.coordinators[0]
            if not found.error_code:
                assert _NODE_BY_HOST[found.host] == found.node_id
                return self.cluster.nodes[NodeId(found.node_id)]
            self.cluster.run(100)
        raise AssertionError(f"{found}")

    def leader(self, topic: str, partition: int) -> SimulatedNode:
        return self.cluster.nodes[self.leader_number(topic, partition)]

    def leader_number(self, topic: str, partition: int) -> NodeId:
        """The leader by the image of the first running node, or -1."""
        image = self.cluster.quorums[0].image.partition(TopicPartition(topic, partition))
        assert image is not None
        return image.leader

    def end_offset(self, topic: str, partition: int, isolation: int) -> int:
        told = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=-1)])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[told])
        answer = self.ask(self.leader(topic, partition), request, 8, ListOffsetsResponse)
        assert isinstance(answer, ListOffsetsResponse)
        part = answer.topics[0].partitions[0]
        assert part.error_code == NONE
        return part.offset


class Producer:
    """A transactional producer of transaction version 2."""

    def __init__(
        self, client: Client, transactional_id: str, by: SimulatedNode, *, timeout_ms: int = 60_000
    ) -> None:
        self.client = client
        self.id = transactional_id
        self.by = by
        self.sequences = [0] * _PARTITIONS
        for _ in range(20):
            answer = self.ask(InitProducerIdRequest(transactional_id, timeout_ms), 5, InitProducerIdResponse)
            assert isinstance(answer, InitProducerIdResponse)
            if not answer.error_code:
                break
            client.cluster.run(100)
        assert answer.error_code == NONE
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def ask(self, request: Message, version: int, reply: type[Message]) -> Message:
        node = self.client.coordinator(self.id, 1, self.by)
        return self.client.ask(node, request, version, reply)

    def produce(self, topic: str, partition: int, value: bytes) -> ErrorCode:
        batch = bytes(
            build_batch(
                [(None, value, (), self.client.cluster.clock.now.wall_ms)],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequences[partition],
                is_transactional=True,
            )
        )
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            transactional_id=self.id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = self.client.ask(self.client.leader(topic, partition), request, 12, ProduceResponse)
        assert isinstance(answer, ProduceResponse)
        code = code_of(answer.responses[0].partition_responses[0].error_code)
        if code is NONE:
            self.sequences[partition] += 1
        return code

    def end(self, *, commit: bool) -> ErrorCode:
        answer = self.ask(EndTxnRequest(self.id, self.producer_id, self.epoch, commit), 5, EndTxnResponse)
        assert isinstance(answer, EndTxnResponse)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = [0] * _PARTITIONS
        return code_of(answer.error_code)


def formed(*, replicas: int = 1, **given: str) -> tuple[Cluster, Client]:
    """Three nodes, and the topic `t` with that many replicas; the internal topics have one unless `given`."""
    cluster = Cluster(
        **{
            "offsets_topic_num_partitions": "6",
            "transaction_state_log_num_partitions": "6",
            "offsets_topic_replication_factor": "1",
            "transaction_state_log_replication_factor": "1",
            "transaction_state_log_min_isr": "1",
            **given,
        }
    ).start()
    cluster.run_until(lambda: cluster.leader is not None and cluster.is_ready)
    cluster.run_until(
        lambda: all(
            len(quorum.image.brokers) == 3 and not any(one.is_fenced for one in quorum.image.brokers.values())
            for quorum in cluster.quorums
        )
    )
    assert cluster.create(cluster.nodes[NodeId(1)], "t", _PARTITIONS, replicas) == NONE
    cluster.run_until(lambda: all("t" in quorum.image.topics_by_name for quorum in cluster.quorums))
    return cluster, Client(cluster)


def test_every_node_names_the_same_coordinators_and_they_are_spread() -> None:
    cluster, client = formed()
    for key_type in (0, 1):
        found = {
            key: {id(client.coordinator(key, key_type, node)) for node in cluster.nodes.values()}
            for key in ("a", "b", "c", "d", "e", "f")
        }
        assert all(len(nodes) == 1 for nodes in found.values())
        assert len(set.union(*found.values())) > 1


def test_a_partition_of_another_node_is_not_led_here() -> None:
    cluster, client = formed()
    elsewhere = cluster.others(client.leader("t", 0))[0]
    told = ListOffsetsTopic(
        "t", [ListOffsetsPartition(0, timestamp=-1), ListOffsetsPartition(99, timestamp=-1)]
    )
    answer = client.ask(elsewhere, ListOffsetsRequest(replica_id=-1, topics=[told]), 8, ListOffsetsResponse)
    assert isinstance(answer, ListOffsetsResponse)
    assert [part.error_code for part in answer.topics[0].partitions] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_client_is_told_where_the_leader_is() -> None:
    cluster, client = formed()
    leader = client.leader("t", 0)
    elsewhere = cluster.others(leader)[0]
    data = [PartitionProduceData(index=0, records=bytes(build_batch([(None, b"v", (), 1)])))]
    topic_id = cluster.quorums[0].image.topics_by_name["t"].topic_id
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)]
    )
    produced = client.ask(elsewhere, request, 13, ProduceResponse)
    assert isinstance(produced, ProduceResponse)
    part = produced.responses[0].partition_responses[0]
    asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1)])
    fetched = client.ask(
        elsewhere,
        FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=1, session_epoch=-1, topics=[asked]),
        17,
        FetchResponse,
    )
    assert isinstance(fetched, FetchResponse)
    read = fetched.responses[0].partitions[0]
    number = next(number for number, node in cluster.nodes.items() if node is leader)
    for answer, told in ((produced, part), (fetched, read)):
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert told.current_leader is not None
        assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (number, 0)
        assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == [
            (number, f"127.0.0.{number}", 9092)
        ]


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_spans_the_partitions_of_all_nodes(*, commit: bool) -> None:
    cluster, client = formed()
    assert len({id(client.leader("t", index)) for index in range(_PARTITIONS)}) == 3
    for number, node in cluster.nodes.items():
        producer = Producer(client, f"id-{number}", node)
        before = [client.end_offset("t", index, 0) for index in range(_PARTITIONS)]
        for index in range(_PARTITIONS):
            assert producer.produce("t", index, b"v") is NONE
            assert client.end_offset("t", index, 0) == before[index] + 1
            assert client.end_offset("t", index, _READ_COMMITTED) == before[index]
        assert producer.end(commit=commit) is NONE
        cluster.run(500)
        # The record and the marker.
        after = [client.end_offset("t", index, _READ_COMMITTED) for index in range(_PARTITIONS)]
        assert after == [offset + 2 for offset in before]


@pytest.mark.parametrize("commit", [True, False])
def test_a_follower_shows_read_committed_consumers_no_open_transaction(*, commit: bool) -> None:
    cluster, client = formed(replicas=3)
    leader = client.leader_number("t", 0)
    follower = next(node for number, node in cluster.nodes.items() if number != leader)
    producer = Producer(client, "id", follower)
    assert cluster.write(b"a") == NONE
    assert producer.produce("t", 0, b"b") is NONE
    assert cluster.write(b"c") == NONE
    cluster.run(1_000)

    def read(isolation: int) -> tuple[int, list[bytes | None], list[tuple[int, int]]]:
        """(last stable offset, values, aborted transactions) at the follower."""
        parts = [FetchPartition(partition=0, partition_max_bytes=1 << 20)]
        request = FetchRequest(
            isolation_level=isolation, session_epoch=-1, topics=[FetchTopic(topic="t", partitions=parts)]
        )
        answer = client.ask(follower, request, 12, FetchResponse)
        assert isinstance(answer, FetchResponse)
        (part,) = answer.responses[0].partitions
        return (
            part.last_stable_offset,
            [record.value for record in decode_records(bytes(part.records or b""))],
            [(one.producer_id, one.first_offset) for one in part.aborted_transactions or []],
        )

    assert read(_READ_COMMITTED) == (1, [b"a"], [])
    assert read(0) == (1, [b"a", b"b", b"c"], [])
    producer_id = producer.producer_id  # the end of a transaction may renew it
    assert producer.end(commit=commit) is NONE
    cluster.run(1_000)
    aborted = [] if commit else [(producer_id, 1)]
    assert read(_READ_COMMITTED) == (4, [b"a", b"b", b"c"], aborted)


def test_a_producer_of_no_transaction_is_refused_by_a_partition_of_another_node() -> None:
    _, client = formed()
    producer = Producer(client, "id", client.cluster.nodes[NodeId(1)])
    producer.producer_id += 1000
    codes = {producer.produce("t", index, b"v") for index in range(_PARTITIONS)}
    assert NONE not in codes


def test_markers_for_a_node_that_is_down_are_written_when_it_is_back() -> None:
    cluster, client = formed()
    producer = Producer(client, "id", cluster.nodes[NodeId(1)])
    coordinator = client.coordinator("id", 1, cluster.nodes[NodeId(1)])
    for index in range(_PARTITIONS):
        assert producer.produce("t", index, b"v") is NONE
    victim = next(node for node in cluster.others(coordinator))
    producer.by = coordinator
    victims = [index for index in range(_PARTITIONS) if client.leader("t", index) is victim]
    victim.kill(is_power_cut=False)
    assert producer.end(commit=True) is NONE
    cluster.run(2_000)
    others = [index for index in range(_PARTITIONS) if index not in victims]
    assert [client.end_offset("t", index, _READ_COMMITTED) for index in others] == [2] * len(others)
    victim.start()
    cluster.run_until(lambda: cluster.is_ready)
    cluster.run(15_000)
    assert [client.end_offset("t", index, _READ_COMMITTED) for index in victims] == [2] * len(victims)


def test_offsets_of_a_transaction_commit_on_the_node_of_their_group() -> None:
    cluster, client = formed()
    for number, node in cluster.nodes.items():
        group = f"group-{number}"
        producer = Producer(client, f"copy-{number}", node)
        keeper = client.coordinator(group, 0, node)
        told = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 40 + number)])]
        request = TxnOffsetCommitRequest(
            transactional_id=producer.id,
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=told,
        )
        added = producer.ask(
            AddOffsetsToTxnRequest(producer.id, producer.producer_id, producer.epoch, group),
            4,
            AddOffsetsToTxnResponse,
        )
        assert isinstance(added, AddOffsetsToTxnResponse)
        assert added.error_code == NONE
        answer = client.ask(keeper, request, 4, TxnOffsetCommitResponse)
        assert isinstance(answer, TxnOffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == NONE
        assert producer.end(commit=True) is NONE
        cluster.run(500)
        asked = [
            OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])
        ]
        kept = client.ask(
            keeper, OffsetFetchRequest(groups=asked, require_stable=True), 8, OffsetFetchResponse
        )
        assert isinstance(kept, OffsetFetchResponse)
        part = kept.groups[0].topics[0].partitions[0]
        assert (part.error_code, part.committed_offset) == (NONE, 40 + number)


@pytest.mark.parametrize("version", [4, 5])
def test_a_marker_that_overtakes_the_verification_of_offsets_voids_it(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, client = formed()
    node = cluster.nodes[NodeId(1)]
    producer = Producer(client, "id", node)
    coordinator = client.coordinator("id", 1, node)
    group = next(name for name in map(str, range(60)) if client.coordinator(name, 0, node) is not coordinator)
    keeper = client.coordinator(group, 0, node)
    added = producer.ask(
        AddOffsetsToTxnRequest(producer.id, producer.producer_id, producer.epoch, group),
        4,
        AddOffsetsToTxnResponse,
    )
    assert isinstance(added, AddOffsetsToTxnResponse)
    assert added.error_code == NONE
    held: list[tuple[object, ...]] = []
    verified = transaction_peers._verified
    monkeypatch.setattr(transaction_peers, "_verified", lambda *answer: held.append(answer))
    told = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 41)])]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=told,
    )
    connection = keeper.connect()
    connection.send(request, version, TxnOffsetCommitResponse)
    cluster.run_until(lambda: bool(held))
    Producer(client, "id", node)  # fences the first, whose transaction is aborted
    cluster.run(3_000)
    monkeypatch.undo()
    for answer in held:
        verified(*answer)
    keeper.connect().send(
        FindCoordinatorRequest(coordinator_keys=["another"]), 4, FindCoordinatorResponse
    )  # a turn
    cluster.run(3_000)
    late = connection.replies[0]
    assert isinstance(late, TxnOffsetCommitResponse)
    assert late.topics[0].partitions[0].error_code != NONE
    asked = [OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])]
    kept = client.ask(keeper, OffsetFetchRequest(groups=asked, require_stable=True), 8, OffsetFetchResponse)
    assert isinstance(kept, OffsetFetchResponse)
    part = kept.groups[0].topics[0].partitions[0]
    assert (part.error_code, part.committed_offset) == (NONE, -1)


def test_metadata_names_the_replicas_of_a_broker_that_is_down() -> None:
    cluster, client = formed()
    victim = client.leader("t", 0)
    number = next(number for number, node in cluster.nodes.items() if node is victim)
    victim.kill()
    cluster.run_until(
        lambda: all(number in q.image.brokers and q.image.brokers[number].is_fenced for q in cluster.quorums)
    )
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    answer = client.ask(cluster.others(victim)[0], request, 12, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    assert number not in [broker.node_id for broker in answer.brokers]
    for part in answer.topics[0].partitions:
        is_down = part.replica_nodes == [number]
        assert part.offline_replicas == ([number] if is_down else [])
        assert (part.error_code, part.leader_id) == (
            (ErrorCode.LEADER_NOT_AVAILABLE, -1) if is_down else (NONE, part.replica_nodes[0])
        )


@pytest.mark.parametrize("seed", range(4))
def test_transactions_end_whole_through_kills_and_pauses(seed: int) -> None:
    cluster, client = formed()
    random = Random(f"{seed} transactions")
    nodes = list(cluster.nodes.values())
    producer = Producer(client, "id", nodes[0])
    coordinator = client.coordinator("id", 1, nodes[0])
    producer.by = coordinator
    whole = 0
    for _ in range(5):
        victim = random.choice(cluster.others(coordinator))
        for index in range(_PARTITIONS):
            assert producer.produce("t", index, b"v") is NONE
        if is_paused := random.random() < 0.5:
            victim.pause()
        else:
            victim.kill(is_power_cut=False)
        assert producer.end(commit=random.random() < 0.7) is NONE
        cluster.run(random.randrange(4000))
        if is_paused:
            victim.resume()
        else:
            victim.start()
        cluster.run_until(lambda: cluster.is_ready)
        cluster.run(12_000)
        whole += 2
        ends = [client.end_offset("t", index, _READ_COMMITTED) for index in range(_PARTITIONS)]
        assert ends == [client.end_offset("t", index, 0) for index in range(_PARTITIONS)]
        assert min(ends) >= whole
