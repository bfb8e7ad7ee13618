"""Ways in which a node stops leading the partition that keeps a key, as others take its place, and clusters
whose internal topics have three replicas.
"""

from collections.abc import Callable

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, TopicPartition
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from sparklog_server.coordinator.placement import partition_for
from sparklog_server.simulation.cluster import SimulatedConnection, SimulatedNode
from tests.broker.clusters import Cluster
from tests.broker.coordinators.test_coordinators_of_nodes import Client, formed

COORDINATOR_PARTITIONS = 6
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
KEY_TYPES = {OFFSETS: 0, TRANSACTIONS: 1}

Move = Callable[["Kept"], None]


class Kept:
    """A key, and the partition of an internal topic that keeps it."""

    def __init__(self, client: Client, topic: str, key: str) -> None:
        self.client = client
        self.cluster = client.cluster
        self.key = key
        self.at = TopicPartition(topic, partition_for(key, COORDINATOR_PARTITIONS))
        client.coordinator(
            key, KEY_TYPES[topic], next(iter(self.cluster.nodes.values()))
        )  # creates the topic
        self.cluster.run_until(lambda: self.cluster.isr(*self.at) == {1, 2, 3})

    @property
    def number(self) -> NodeId:
        """The node that leads the partition."""
        return NodeId(self.cluster.leading(*self.at) or -1)

    @property
    def coordinator(self) -> SimulatedNode:
        """The running node that leads the partition."""
        return self.cluster.nodes[self.number]

    def is_led_by_another(self, than: NodeId) -> bool:
        """Whether every other running node that is in touch knows another leader."""
        others = [node for number, node in self.cluster.nodes.items() if number != than]
        images = [node.broker._quorum.image.partition(self.at) for node in others if node.broker is not None]
        return self.number not in (-1, than) and all(
            one is not None and one.leader not in (-1, than) for one in images
        )

    def move(self, move: Move) -> NodeId:
        """Move the leadership; returns the node that had it."""
        old = self.number
        move(self)
        self.cluster.run_until(lambda: self.is_led_by_another(old))
        return old

    def logs(self) -> list[list[bytes]]:
        """The values below the high watermark on each running node."""
        return [self.cluster.values(node, *self.at) for node in self.cluster.replicas(*self.at)]


def killed(kept: Kept) -> None:
    """The process ends."""
    kept.coordinator.kill(is_power_cut=False)


def cut_off(kept: Kept) -> None:
    """The node loses its power, and its disk what is not synced."""
    kept.coordinator.kill(is_power_cut=True)


def stopped(kept: Kept) -> None:
    """The node stops cleanly."""
    kept.coordinator.stop()


def unelected(kept: Kept) -> None:
    """The replica on the next node becomes the preferred one, and is elected; the old leader goes on."""
    prefer_next(kept)
    election = elect(kept)
    kept.cluster.run_until(lambda: bool(election.replies))
    answer = election.replies[0]
    assert isinstance(answer, ElectLeadersResponse)
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE


def prefer_next(kept: Kept) -> None:
    """Let the replica on the node after the leader's be the preferred one."""
    (topic, partition), old = kept.at, kept.number
    order = [*range(old + 1, len(kept.cluster.nodes) + 1), *range(1, old + 1)]
    asked = [ReassignableTopic(topic, [ReassignablePartition(partition, order)])]
    request = AlterPartitionReassignmentsRequest(topics=asked)
    answer = kept.client.ask(kept.coordinator, request, 0, AlterPartitionReassignmentsResponse)
    assert isinstance(answer, AlterPartitionReassignmentsResponse)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)


def elect(kept: Kept) -> SimulatedConnection:
    """Request the election of the preferred replica; returns the connection that will have the response."""
    connection = kept.coordinator.connect()
    topic, partition = kept.at
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic, [partition])])
    connection.send(request, 2, ElectLeadersResponse)
    return connection


MOVES: tuple[Move, ...] = (killed, cut_off, stopped, unelected)


def replicated(*, replicas: int = 3, **given: str) -> tuple[Cluster, Client]:
    """Three nodes; the internal topics have three replicas each, and the topic `t` as many by default."""
    return formed(
        replicas=replicas,
        **{
            "offsets_topic_replication_factor": "3",
            "transaction_state_log_replication_factor": "3",
            "transaction_state_log_min_isr": "2",
            "group_initial_rebalance_delay_ms": "0",
            **given,
        },
    )
