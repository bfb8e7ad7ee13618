"""Replicas move between brokers, while nodes end, topics go and controllers change: the histories in which
others have lost records or left directories behind.
"""

from collections.abc import Callable, Sequence

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, TopicPartition
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog_server.config.layers import BROKER_STATE
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import BROKER_RESOURCE, MetadataImage
from tests.broker.clusters import Cluster

CONTROLLER = 1


class Moving:
    """Node 1 is the controller, the others are brokers. One topic has a partition on nodes 2 and 3."""

    def __init__(self, brokers: int = 4, **given: str) -> None:
        self.cluster = Cluster(
            count=brokers + 1, voters=1, is_split=True, broker_session_timeout_ms="3000", **given
        ).start()
        self.cluster.run_until(
            lambda: self.cluster.is_ready and len(self.image.brokers) == brokers and not self.fenced
        )
        assert self.cluster.create(self.cluster.nodes[NodeId(2)], "t", replicas=2) == 0
        self.cluster.run_until(lambda: self.cluster.leading() is not None)
        assert self.reassign([2, 3]) is ErrorCode.NONE
        self.settles([2, 3])
        self.written: list[bytes] = []

    @property
    def image(self) -> MetadataImage:
        return max((one.image for one in self.cluster.quorums), key=lambda one: one.offset)

    @property
    def fenced(self) -> list[int]:
        return [int(node) for node, one in self.image.brokers.items() if one.is_fenced]

    @property
    def partition(self) -> PartitionImage:
        found = self.image.partition(TopicPartition("t", 0))
        assert found is not None
        return found

    def write(self, count: int = 20) -> None:
        for _ in range(count):
            value = b"%d" % len(self.written)
            assert self.cluster.write(value) == 0
            self.written.append(value)

    def reassign(self, replicas: Sequence[int] | None, at: int = 2) -> ErrorCode:
        """Ask a node for other replicas, or to cancel."""
        client = self.cluster.nodes[NodeId(at)].connect()
        asked = ReassignablePartition(0, None if replicas is None else list(replicas))
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", [asked])])
        client.send(request, 0, AlterPartitionReassignmentsResponse)
        self.cluster.run_until(lambda: bool(client.replies))
        answer = client.replies[0]
        assert isinstance(answer, AlterPartitionReassignmentsResponse)
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    def ask_state(self, node: int, state: str) -> ErrorCode:
        client = self.cluster.nodes[NodeId(2)].connect()
        change = AlterableConfig(BROKER_STATE, 0, state)
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(BROKER_RESOURCE, str(node), [change])]
        )
        client.send(request, 1, IncrementalAlterConfigsResponse)
        self.cluster.run_until(lambda: bool(client.replies))
        answer = client.replies[0]
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        return ErrorCode(answer.responses[0].error_code)

    def settles(self, replicas: Sequence[int], ms: int = 30_000) -> None:
        """These are the replicas, all in sync, and no other node has a log of the partition."""

        def is_settled() -> bool:
            one = self.partition
            return (
                [*one.replicas] == [*replicas]
                and set(one.isr) == set(replicas)
                and not one.adding_replicas
                and not one.removing_replicas
            )

        self.cluster.run_until(is_settled, ms)
        self.cluster.run_until(lambda: self.holders == set(replicas), ms)

    @property
    def holders(self) -> set[int]:
        """The running nodes whose disk has a directory of the partition by its name."""
        return {
            int(number)
            for number, node in self.cluster.nodes.items()
            if node.broker is not None and "t-0" in node.disk.list("/data")
        }

    def check(self, *nodes: int) -> None:
        """The replicas hold what was acknowledged."""
        self.cluster.run(1_000)
        for node in nodes:
            assert self.cluster.values(node) == self.written

    def until(self, claim: Callable[[], bool], ms: int = 30_000) -> None:
        self.cluster.run_until(claim, ms)

    def kill(self, node: int) -> None:
        self.cluster.nodes[NodeId(node)].kill()

    def stop(self, node: int) -> None:
        self.cluster.nodes[NodeId(node)].stop()

    def start(self, node: int) -> None:
        self.cluster.nodes[NodeId(node)].start()


def test_a_partition_moves_and_leaves_no_directory_behind() -> None:
    moving = Moving()
    moving.write()
    assert moving.reassign([4, 5]) is ErrorCode.NONE
    moving.write()
    moving.settles([4, 5])
    moving.write()
    moving.check(4, 5)


def test_a_cancelled_move_leaves_no_directory_on_the_nodes_that_were_to_be_added() -> None:
    # KAFKA-13972
    moving = Moving()
    moving.write()
    moving.kill(5)
    assert moving.reassign([4, 5]) is ErrorCode.NONE
    moving.until(lambda: 4 in moving.holders)
    assert moving.reassign(None) is ErrorCode.NONE
    moving.until(lambda: moving.holders == {2, 3})
    assert sorted(moving.partition.replicas) == [2, 3]
    moving.start(5)
    moving.write()
    moving.until(lambda: not moving.fenced)
    assert moving.reassign([2, 5]) is ErrorCode.NONE
    moving.settles([2, 5])
    moving.check(2, 5)


def test_a_removed_replica_is_not_in_sync_though_its_node_was_down() -> None:
    # KAFKA-6638
    moving = Moving()
    moving.write()
    moving.kill(3)
    moving.until(lambda: moving.fenced == [3])
    assert moving.reassign([2, 4]) is ErrorCode.NONE
    moving.settles([2, 4])
    moving.start(3)
    moving.until(lambda: not moving.fenced)
    moving.settles([2, 4])
    moving.check(2, 4)


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_topic_that_goes_during_a_move_leaves_nothing_on_a_node_that_was_down(
    is_created_again: bool,
) -> None:
    # KAFKA-14616: the log of a deleted topic is told from that of its successor by the topic id.
    moving = Moving()
    moving.write()
    assert moving.reassign([4, 5]) is ErrorCode.NONE
    moving.until(lambda: {4, 5} <= moving.holders)
    moving.kill(5)
    client = moving.cluster.nodes[NodeId(2)].connect()
    client.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 4, DeleteTopicsResponse)
    moving.until(lambda: "t" not in moving.image.topics_by_name)
    moving.written.clear()
    if is_created_again:
        assert moving.cluster.create(moving.cluster.nodes[NodeId(2)], "t", replicas=2) == 0
        moving.until(lambda: moving.cluster.leading() is not None)
        assert moving.reassign([2, 5]) is ErrorCode.NONE
        moving.until(lambda: moving.cluster.leading() == 2)
        moving.write()
    moving.start(5)
    moving.until(lambda: not moving.fenced)
    if is_created_again:
        moving.settles([2, 5])
        moving.write()
        moving.check(2, 5)
    else:
        moving.until(lambda: not moving.holders)


def test_a_restart_of_the_controller_and_of_the_new_replica_together_holds_nothing_up() -> None:
    # KAFKA-4214
    moving = Moving()
    moving.write()
    moving.kill(5)
    assert moving.reassign([4, 5]) is ErrorCode.NONE
    moving.until(lambda: 4 in moving.holders)
    moving.kill(CONTROLLER)
    moving.kill(4)
    moving.cluster.run(500)
    for node in (CONTROLLER, 4, 5):
        moving.start(node)
    moving.settles([4, 5], 60_000)
    moving.write()
    moving.check(4, 5)


def test_a_replica_that_moved_while_its_node_was_down_is_removed_once_another_broker_leads() -> None:
    moving = Moving(log_segment_delete_delay_ms="1000")
    moving.write()
    moving.stop(3)
    moving.until(lambda: moving.fenced == [3])
    assert moving.reassign([2, 4]) is ErrorCode.NONE
    moving.settles([2, 4])
    disk = moving.cluster.nodes[NodeId(3)].disk
    assert [name for name in disk.list("/data") if name.startswith("t-0")] == ["t-0"]
    moving.start(3)
    moving.until(lambda: not [name for name in disk.list("/data") if name.startswith("t-0")])
    assert moving.reassign([2, 3]) is ErrorCode.NONE
    moving.settles([2, 3])
    moving.check(2, 3)


def test_a_replica_that_moved_while_its_node_was_down_is_kept_for_the_operator_while_no_broker_leads() -> (
    None
):
    moving = Moving(min_insync_replicas="1")
    moving.write()
    moving.stop(3)
    moving.until(lambda: moving.fenced == [3])
    assert moving.reassign([2, 4]) is ErrorCode.NONE
    moving.settles([2, 4])
    moving.kill(2)
    moving.kill(4)
    moving.until(lambda: moving.partition.leader == -1)
    moving.start(3)
    moving.until(lambda: 3 not in moving.fenced)
    names = moving.cluster.nodes[NodeId(3)].disk.list("/data")
    assert len([name for name in names if name.startswith("t-0.") and name.endswith("-stray")]) == 1


def test_the_source_ends_in_the_middle_of_a_move() -> None:
    moving = Moving()
    moving.write()
    assert moving.reassign([4, 3]) is ErrorCode.NONE
    moving.kill(2)
    moving.settles([4, 3], 60_000)
    moving.write()
    moving.start(2)
    moving.until(lambda: not moving.fenced)
    moving.settles([4, 3])
    moving.check(3, 4)


def test_a_cancel_of_which_the_original_nodes_are_down_is_refused() -> None:
    # KAFKA-14424
    moving = Moving(min_insync_replicas="1")
    moving.write()
    moving.kill(5)
    assert moving.reassign([4, 5]) is ErrorCode.NONE
    moving.until(lambda: 4 in moving.partition.isr)
    moving.kill(2)
    moving.kill(3)
    moving.until(lambda: moving.partition.leader == 4)
    assert moving.reassign(None, at=4) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    moving.write(5)
    moving.start(5)
    moving.settles([4, 5], 60_000)
    moving.check(4, 5)


def test_a_dead_node_is_decommissioned_and_forgotten() -> None:
    moving = Moving()
    moving.write()
    moving.kill(3)
    moving.until(lambda: moving.fenced == [3])
    assert moving.ask_state(3, "decommissioned") is ErrorCode.NONE
    moving.until(lambda: 3 not in moving.image.brokers)
    assert 3 not in moving.partition.replicas
    assert len(moving.partition.isr) == 2
    moving.write()
    moving.check(*map(int, moving.partition.replicas))


def test_a_drained_node_leads_nothing_and_leads_again_once_it_is_active() -> None:
    moving = Moving()
    moving.write()
    leader = int(moving.partition.leader)
    assert moving.ask_state(leader, "drained") is ErrorCode.NONE
    moving.until(lambda: moving.partition.leader not in (leader, -1), 2_000)
    moving.write()
    assert moving.ask_state(leader, "active") is ErrorCode.NONE
    moving.until(lambda: moving.partition.leader == 2, 20_000)
    moving.check(2, 3)


def test_a_replica_that_catches_up_has_a_link_of_its_own_until_it_is_in_sync() -> None:
    # A response with old records may wait for the leader's disk; those in sync must not wait for it.
    moving = Moving()
    moving.write()
    moving.until(lambda: moving.partition.leader == 2)
    assert moving.reassign([2, 3, 4]) is ErrorCode.NONE
    moving.until(lambda: moving.cluster.replica(4) is not None)
    replication = moving.cluster.nodes[NodeId(4)].running._replication
    assert replication is not None
    key = moving.image.topics_by_name["t"].topic_id, 0
    lanes = set()

    def is_in_sync() -> bool:
        if key in replication._placed:
            lanes.add((replication._placed[key][0][1], 4 in moving.partition.isr))
        return set(moving.partition.isr) == {2, 3, 4} and (False, True) in lanes

    moving.until(is_in_sync)
    assert (True, False) in lanes
    moving.write()
    moving.check(2, 3, 4)
