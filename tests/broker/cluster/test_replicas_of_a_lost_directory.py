"""A log directory of a broker is lost for good: its replicas come back in another directory or on another
broker, and no empty log takes the place of the last one with records.
"""

from collections.abc import Sequence
from typing import TypeVar

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, TopicPartition, Uuid
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from sparklog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.opening.formatting import format_node
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.log.directory.identity import DirectoryRefused
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.clusters import CLUSTER_ID, Cluster
from tests.entropy import CountingEntropy

PARTITIONS = 4
VICTIM = 2
UNCLEAN = 1
Reply = TypeVar("Reply", bound=Message)


class Jbod:
    """Node 1 is the controller, the others are brokers with the directories /data and /more. Topic `t` has
    some partitions, each with a record.
    """

    def __init__(self, replicas: int = 3, brokers: int = 3, min_isr: int = 1) -> None:
        self.cluster = Cluster(
            count=brokers + 1,
            voters=1,
            is_split=True,
            log_dirs="/data,/more",
            metadata_log_dir="/data",
            min_insync_replicas=str(min_isr),
            broker_session_timeout_ms="3000",
        ).start()
        self.cluster.run_until(
            lambda: self.cluster.is_ready and len(self.image.brokers) == brokers and not self.fenced
        )
        assert self.cluster.create(self.other, "t", PARTITIONS, replicas) == 0
        self.written: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        for index in range(PARTITIONS):
            self.cluster.run_until(lambda index=index: self.cluster.leading("t", index) is not None)
            self.write(index)
        self.lying = [index for index in range(PARTITIONS) if self.victim.disk.list(f"/more/t-{index}")]
        assert self.lying
        assert self.victim.disk.list(f"/data/t-{self.at_data}") or replicas < brokers

    @property
    def image(self) -> MetadataImage:
        return max((one.image for one in self.cluster.quorums), key=lambda one: one.offset)

    @property
    def fenced(self) -> list[int]:
        return [int(node) for node, one in self.image.brokers.items() if one.is_fenced]

    @property
    def victim(self) -> SimulatedNode:
        return self.cluster.nodes[NodeId(VICTIM)]

    @property
    def other(self) -> SimulatedNode:
        return self.cluster.nodes[NodeId(3)]

    @property
    def at_data(self) -> int:
        return next(index for index in range(PARTITIONS) if index not in self.lying)

    def partition(self, index: int) -> PartitionImage:
        found = self.image.partition(TopicPartition("t", index))
        assert found is not None
        return found

    def directory_id(self, path: str) -> Uuid:
        """The id of an open directory of the victim."""
        opened = self.victim.running._partitions.directories
        return next(one.log_dir.directory_id for one in opened if one.log_dir.path == path)

    def write(self, index: int) -> None:
        value = b"%d" % len(self.written[index])
        assert self.cluster.write(value, partition=index) == 0
        self.written[index].append(value)

    def ask(self, node: SimulatedNode, request: Message, version: int, reply: type[Reply]) -> Reply:
        client = node.connect()
        client.send(request, version, reply)
        self.cluster.run_until(lambda: bool(client.replies))
        answer = client.replies[0]
        assert isinstance(answer, reply)
        return answer

    def move(self, *partitions: int, to: str = "/data") -> set[ErrorCode]:
        """AlterReplicaLogDirs at the victim."""
        asked = AlterReplicaLogDir(to, [AlterReplicaLogDirTopic("t", list(partitions))])
        reply = self.ask(self.victim, AlterReplicaLogDirsRequest([asked]), 2, AlterReplicaLogDirsResponse)
        return {ErrorCode(one.error_code) for topic in reply.results for one in topic.partitions}

    def reassign(self, index: int, replicas: Sequence[int]) -> ErrorCode:
        asked = ReassignablePartition(index, list(replicas))
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", [asked])])
        reply = self.ask(self.other, request, 0, AlterPartitionReassignmentsResponse)
        return ErrorCode(reply.responses[0].partitions[0].error_code)

    def elect_uncleanly(self, index: int) -> None:
        request = ElectLeadersRequest(
            election_type=UNCLEAN, topic_partitions=[TopicPartitions("t", [index])], timeout_ms=10_000
        )
        reply = self.ask(self.other, request, 2, ElectLeadersResponse)
        assert reply.replica_election_results[0].partition_result[0].error_code == 0

    def break_more(self) -> None:
        self.victim.disk.fault = lambda _, path: "I/O error" if path.startswith("/more") else None

    def restart(self, *, without_more: bool = False) -> None:
        """Start the victim, which does not run, again."""
        if without_more:
            given = {
                "node.id": str(VICTIM),
                "log.dirs": "/data",
                "metadata.log.dir": "/data",
                "listeners": f"PLAINTEXT://127.0.0.{VICTIM}:9092",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "1@127.0.0.1:9093",
                "process.roles": "broker",
            }
            self.victim._settings = BrokerSettings.of(given)
        self.victim.start()

    def settles(self, indexes: Sequence[int], *nodes: int) -> None:
        """The partitions have all their replicas in sync, on these nodes, with all records."""
        self.cluster.run_until(
            lambda: not self.fenced and all({*self.partition(one).isr} == {*nodes} for one in indexes), 60_000
        )
        for index in indexes:
            self.write(index)
            self.cluster.run(1_000)
            for node in nodes:
                assert self.cluster.values(node, "t", index) == self.written[index]

    def begun_empty(self) -> set[str]:
        return {
            word.removeprefix("partition=t-")
            for line in self.victim.trace
            if line.startswith("replica-begins-empty ")
            for word in line.split()
            if word.startswith("partition=")
        }


ALL = (2, 3, 4)


def test_replicas_of_a_failed_directory_begin_in_another_one_where_the_operator_says_so() -> None:
    jbod = Jbod()
    jbod.break_more()
    for index in jbod.lying:
        jbod.cluster.write(b"seen", partition=index)
    jbod.cluster.run_until(lambda: all(VICTIM not in jbod.partition(index).isr for index in jbod.lying))
    jbod.cluster.run(10_000)
    described = jbod.ask(jbod.victim, DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
    assert {one.log_dir: ErrorCode(one.error_code) for one in described.results} == {
        "/data": ErrorCode.NONE,
        "/more": ErrorCode.KAFKA_STORAGE_ERROR,
    }
    assert not any(jbod.victim.disk.list(f"/data/t-{index}") for index in jbod.lying)
    jbod.written = {
        index: jbod.cluster.values(jbod.cluster.leading("t", index) or 0, "t", index)
        for index in range(PARTITIONS)
    }
    assert jbod.move(*jbod.lying, to="/more") == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert jbod.move(*jbod.lying) == {ErrorCode.NONE}
    jbod.settles(range(PARTITIONS), *ALL)
    at = jbod.directory_id("/data")
    assert {jbod.partition(index).directory_of(NodeId(VICTIM)) for index in range(PARTITIONS)} == {at}
    jbod.victim.kill(is_power_cut=False)
    jbod.victim.disk.fault = None
    jbod.restart()
    jbod.settles(range(PARTITIONS), *ALL)
    jbod.cluster.run(90_000)
    assert not [name for name in jbod.victim.disk.list("/more") if name.startswith("t-")]


def test_a_directory_that_cannot_be_opened_keeps_its_replicas_offline_until_the_operator_moves_them() -> None:
    jbod = Jbod()
    jbod.victim.kill()
    jbod.cluster.run_until(lambda: jbod.fenced == [VICTIM])
    jbod.break_more()
    jbod.restart()
    jbod.cluster.run_until(lambda: VICTIM in jbod.partition(jbod.at_data).isr)
    jbod.cluster.run(10_000)
    assert all(VICTIM not in jbod.partition(index).isr for index in jbod.lying)
    assert not any(jbod.victim.disk.list(f"/data/t-{index}") for index in jbod.lying)
    assert jbod.move(*jbod.lying) == {ErrorCode.NONE}
    jbod.settles(range(PARTITIONS), *ALL)
    assert jbod.begun_empty() == {str(index) for index in jbod.lying}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("without_more", [True, False])
def test_replicas_of_a_directory_that_was_replaced_or_taken_away_begin_empty_and_catch_up(
    *, is_clean: bool, without_more: bool
) -> None:
    jbod = Jbod()
    jbod.victim.stop() if is_clean else jbod.victim.kill()
    for index in range(PARTITIONS):
        jbod.write(index)
    jbod.victim.disk.remove("/more")
    jbod.restart(without_more=without_more)
    jbod.settles(range(PARTITIONS), *ALL)
    assert jbod.begun_empty() == {str(index) for index in jbod.lying}
    paths = ["/data"] if without_more else ["/data", "/more"]
    known = {jbod.directory_id(path) for path in paths}
    assert {jbod.partition(index).directory_of(NodeId(VICTIM)) for index in range(PARTITIONS)} <= known


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("without_more", [True, False])
def test_an_empty_log_is_not_elected_in_place_of_the_last_one_with_all_records(
    *, is_clean: bool, without_more: bool
) -> None:
    # KAFKA-16234. The victim is alone in sync when it loses the directory: the others lack one record.
    jbod = Jbod()
    (index, *_) = jbod.lying
    before = list(jbod.written[index])
    for node in (3, 4):
        jbod.cluster.nodes[NodeId(node)].kill(is_power_cut=False)
    jbod.cluster.run_until(lambda: jbod.cluster.leading("t", index) == VICTIM)
    jbod.cluster.run_until(lambda: jbod.partition(index).isr == (VICTIM,))
    assert jbod.cluster.write(b"only here", partition=index) == 0
    jbod.victim.stop() if is_clean else jbod.victim.kill()
    jbod.victim.disk.remove("/more")
    for node in (3, 4):
        jbod.cluster.nodes[NodeId(node)].start()
    jbod.restart(without_more=without_more)
    jbod.cluster.run_until(lambda: not jbod.fenced)
    jbod.cluster.run(10_000)
    assert jbod.partition(index).leader == -1
    assert jbod.cluster.replica(VICTIM, "t", index) is None
    reason = "its log directory is gone, and no other replica leads"
    assert [line for line in jbod.victim.trace if reason in line]
    jbod.elect_uncleanly(index)
    assert jbod.partition(index).leader in (3, 4)
    jbod.written[index] = before
    jbod.settles([index], *ALL)


def test_replicas_begin_empty_once_every_directory_of_a_partition_is_lost() -> None:
    jbod = Jbod()
    nodes = [jbod.cluster.nodes[NodeId(node)] for node in ALL]
    for node in nodes:
        node.kill()
        node.disk.remove("/more")
        node.disk.remove("/data")
    for node in nodes:
        number = next(number for number, one in jbod.cluster.nodes.items() if one is node)
        node.disk.make_directory("/data")
        meta = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={number}\n"
        node.disk.write("/data/meta.properties", meta.encode())
        node.start()
        jbod.cluster.run(5_000)
    jbod.written = {index: [] for index in range(PARTITIONS)}
    jbod.settles(range(PARTITIONS), *ALL)


def test_the_only_replica_begins_empty_after_its_directory_is_replaced_and_not_while_it_is_unreadable() -> (
    None
):
    jbod = Jbod(replicas=1, brokers=1 + 1)
    (index, *_) = jbod.lying
    jbod.victim.kill()
    jbod.break_more()
    jbod.restart()
    jbod.cluster.run_until(lambda: not jbod.fenced)
    jbod.cluster.run(10_000)
    assert jbod.partition(index).leader == -1
    assert jbod.move(index) == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert not jbod.begun_empty()
    jbod.victim.kill()
    jbod.victim.disk.fault = None
    jbod.victim.disk.remove("/more")
    jbod.restart()
    jbod.written = {one: [] if one in jbod.lying else known for one, known in jbod.written.items()}
    jbod.cluster.run_until(lambda: jbod.partition(index).leader == VICTIM)
    jbod.settles([index], VICTIM)
    assert jbod.begun_empty() == {str(one) for one in jbod.lying}


def test_a_replica_in_an_offline_directory_moves_to_another_broker() -> None:
    jbod = Jbod(replicas=2, brokers=3)
    (index, *_) = jbod.lying
    (stays,) = set(jbod.partition(index).replicas) - {VICTIM}
    (free,) = {3, 4} - {stays}
    jbod.break_more()
    jbod.cluster.write(b"seen", partition=index)
    jbod.cluster.run_until(lambda: jbod.partition(index).isr == (stays,))
    jbod.cluster.run(1_000)
    jbod.written[index] = jbod.cluster.values(int(stays), "t", index)
    assert jbod.reassign(index, [int(stays), free]) is ErrorCode.NONE
    jbod.settles([index], int(stays), free)
    assert jbod.partition(index).replicas == (stays, free)
    jbod.victim.kill()
    jbod.victim.disk.fault = None
    jbod.restart()
    jbod.cluster.run_until(lambda: not jbod.fenced)
    jbod.cluster.run(90_000)
    assert f"t-{index}" not in jbod.victim.disk.list("/more")


def test_a_replica_moves_away_from_a_node_that_is_not_registered_any_more() -> None:
    jbod = Jbod(replicas=2, brokers=3)
    index = next(one for one in range(PARTITIONS) if VICTIM in jbod.partition(one).replicas)
    (stays,) = set(jbod.partition(index).replicas) - {VICTIM}
    (free,) = {3, 4} - {stays}
    jbod.victim.kill()
    jbod.cluster.run_until(lambda: jbod.fenced == [VICTIM])
    reply = jbod.ask(jbod.other, UnregisterBrokerRequest(VICTIM), 0, UnregisterBrokerResponse)
    assert reply.error_code == 0
    jbod.cluster.run_until(lambda: VICTIM not in jbod.image.brokers)
    assert VICTIM in jbod.partition(index).replicas
    jbod.write(index)
    assert jbod.reassign(index, [int(stays), VICTIM]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert jbod.reassign(index, [int(stays), free]) is ErrorCode.NONE
    jbod.settles([index], int(stays), free)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_node_that_lost_the_directory_of_its_metadata_log_joins_with_the_logs_of_the_other_one(
    replicas: int,
) -> None:
    jbod = Jbod(replicas=replicas, brokers=3 if replicas == 3 else 2)
    jbod.victim.kill(is_power_cut=False)
    jbod.cluster.run_until(lambda: jbod.fenced == [VICTIM])
    jbod.victim.disk.remove("/data/__cluster_metadata-0")
    with pytest.raises(DirectoryRefused, match=r"empty /data, run `sparklog format --ignore-formatted"):
        jbod.restart()
    jbod.victim.kill(is_power_cut=False)
    jbod.victim.disk.remove("/data")
    with pytest.raises(
        DirectoryRefused, match=r"the metadata log is missing, but /more holds .*--ignore-formatted"
    ):
        jbod.restart()
    jbod.victim.kill(is_power_cut=False)
    formatted = format_node(
        jbod.victim._settings,
        jbod.victim.disk,
        cluster_id=CLUSTER_ID,
        voters=(),
        entropy=CountingEntropy(),
        wall_ms=jbod.cluster.clock.now.wall_ms,
        ignores_formatted=True,
    )
    assert [*formatted] == ["/data"]
    jbod.restart()
    if replicas == 3:
        jbod.settles(range(PARTITIONS), *ALL)
    else:
        jbod.cluster.run_until(lambda: all(jbod.partition(index).leader == VICTIM for index in jbod.lying))
        jbod.settles(jbod.lying, VICTIM)
    assert jbod.begun_empty().isdisjoint(map(str, jbod.lying))


def test_a_static_voter_that_lost_its_votes_does_not_vote_again() -> None:
    cluster = Cluster(log_dirs="/data,/more", metadata_log_dir="/data").start()
    cluster.run_until(lambda: cluster.is_ready and len(cluster.quorums[0].image.brokers) == 3)
    assert cluster.create(cluster.nodes[NodeId(1)], "t", PARTITIONS, 3) == 0
    node = cluster.nodes[NodeId(VICTIM)]
    cluster.run_until(lambda: any(name.startswith("t-") for name in node.disk.list("/more")))
    node.kill(is_power_cut=False)
    node.disk.remove("/data")
    node.disk.make_directory("/data")
    node.disk.write(
        "/data/meta.properties", f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={VICTIM}\n".encode()
    )
    with pytest.raises(DirectoryRefused, match="the metadata log is missing, but /more holds"):
        node.start()
