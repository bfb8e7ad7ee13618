"""A topic of 1 000 partitions over three nodes: when every node shows it whole, and when every partition
answers as its leader.
"""

import socket
import time
from contextlib import ExitStack

from benchmarks import harness, nodes
from benchmarks.group_members import ask
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

PARTITIONS = 1_000
RUNS = 5
PATIENCE_S = 60


def main() -> None:
    options = harness.options(__doc__, repeats=RUNS)
    figures = harness.Figures("cluster_topics")
    with nodes.cluster() as cluster, ExitStack() as stack:
        connections = []
        for address in cluster.bootstrap_servers.split(","):
            host, _, port = address.rpartition(":")
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections.append(connection)
        for run in range(options.repeats):
            measure(figures, connections, f"wide{run}")
            time.sleep(2)  # the nodes write checkpoints meanwhile
    figures.report(options)


def measure(figures: harness.Figures, connections: list[socket.socket], topic: str) -> None:
    """Create a topic by the first node."""
    began_s = time.perf_counter()
    asked = [CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)]
    answer = ask(
        connections[0], CreateTopicsRequest(topics=asked, timeout_ms=30_000), 5, CreateTopicsResponse
    )
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
    for connection in connections:
        while not (leaders := leaders_by(connection, topic)):
            time.sleep(0.001)
    figures.add(
        "visible on every node", "ms", "sparklog", (time.perf_counter() - began_s) * 1000, bound="<= 150"
    )
    for number, connection in enumerate(connections, 1):
        led = [index for index, leader in enumerate(leaders) if leader == number]
        while not answers(connection, topic, led):
            time.sleep(0.01)
            if time.perf_counter() - began_s > PATIENCE_S:
                raise RuntimeError(f"not every partition answers after {PATIENCE_S} s")
    figures.add("every partition answers", "ms", "sparklog", (time.perf_counter() - began_s) * 1000)


def leaders_by(connection: socket.socket, topic: str) -> list[int]:
    """The leader of each partition, as this node shows them; empty while it does not show all."""
    answer = ask(
        connection,
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False),
        8,
        MetadataResponse,
    )
    assert isinstance(answer, MetadataResponse)
    parts = sorted(answer.topics[0].partitions, key=lambda part: part.partition_index)
    leaders = [part.leader_id for part in parts]
    return leaders if len(leaders) == PARTITIONS and min(leaders) >= 0 else []


def answers(connection: socket.socket, topic: str, led: list[int]) -> bool:
    """Whether the node answers as the leader of these partitions."""
    parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in led]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=parts)])
    answer = ask(connection, request, 5, ListOffsetsResponse)
    assert isinstance(answer, ListOffsetsResponse)
    return not any(part.error_code for part in answer.topics[0].partitions)


if __name__ == "__main__":
    main()
