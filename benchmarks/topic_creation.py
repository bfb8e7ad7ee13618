"""A topic of 1 000 partitions is created: when clients see it whole, when every partition leads and has
its files, its memory.

Run as `python -m benchmarks.topic_creation [--json FILE] [--against kafka]`.
"""

import socket
import time

from benchmarks import cpu, harness, raw
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
PATIENCE_S = 60


def is_visible(connection: socket.socket, topic: str) -> bool:
    """Whether metadata has every partition with a leader."""
    answer = ask(
        connection,
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False),
        8,
        MetadataResponse,
    )
    assert isinstance(answer, MetadataResponse)
    parts = answer.topics[0].partitions
    return len(parts) == PARTITIONS and all(part.leader_id >= 0 for part in parts)


def is_settled(connection: socket.socket, subject: harness.Subject, topic: str) -> bool:
    """Whether every partition has its log, and answers as its leader; the broker is asked once the files
    are there, for that costs it.
    """
    if sum(1 for _ in subject.data_dir.glob(f"{topic}-*/*.log")) != PARTITIONS:
        return False
    parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=parts)])
    answer = ask(connection, request, 5, ListOffsetsResponse)
    assert isinstance(answer, ListOffsetsResponse)
    return not any(part.error_code for part in answer.topics[0].partitions)


def measure(figures: harness.Figures, subject: harness.Subject, topic: str) -> None:
    bounds = {} if subject.name == "kafka" else {"visible": "<= 50", "settled": "<= 1", "memory": "<= 10"}
    with raw.connect(subject) as connection:
        ask(connection, MetadataRequest(topics=[]), 8, MetadataResponse)
        memory_before = subject.resident_bytes()
        with cpu.Stopwatch(subject) as watch:
            started = time.perf_counter()
            asked = [CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)]
            answer = ask(
                connection, CreateTopicsRequest(topics=asked, timeout_ms=30_000), 5, CreateTopicsResponse
            )
            assert isinstance(answer, CreateTopicsResponse)
            assert answer.topics[0].error_code == 0, answer.topics[0].error_message
            while not is_visible(connection, topic):
                time.sleep(0.001)
            figures.add(
                "metadata visible",
                "ms",
                subject.name,
                (time.perf_counter() - started) * 1000,
                bound=bounds.get("visible", ""),
            )
            while not is_settled(connection, subject, topic):
                time.sleep(0.05)
                if time.perf_counter() - started > PATIENCE_S:
                    raise RuntimeError(f"{subject.name}: not settled after a minute")
            figures.add(
                "settled", "s", subject.name, time.perf_counter() - started, bound=bounds.get("settled", "")
            )
        figures.add("broker CPU until settled", "ms", subject.name, watch.cpu_s * 1000)
    time.sleep(2)
    memory_mb = (subject.resident_bytes() - memory_before) / 1e6
    figures.add("memory added", "MB", subject.name, memory_mb, bound=bounds.get("memory", ""))


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("topic_creation")
    for _ in range(options.repeats):
        for subject in harness.subjects(options):
            harness.create_topic(subject, "warm")
            measure(figures, subject, "wide")
    figures.report(options)


if __name__ == "__main__":
    main()
