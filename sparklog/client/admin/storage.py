"""The logs on the brokers' disks, and the producers that write to a partition."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from sparklog.client.admin.calls import Caller, refusal, settle
from sparklog.client.admin.fan_out import of_brokers
from sparklog.client.failures import UnknownTopic
from sparklog.client.transport.network import wait_for_topic
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, RequestTimeout
from sparklog.model import Micros, NodeId, Offset, ProducerEpoch, ProducerId, TopicPartition
from sparklog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from sparklog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from sparklog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)


class ReplicaSize(Struct, frozen=True):
    """The size of a replica in bytes, its lag in records, and whether it is the copy of a move between
    directories.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(Struct, frozen=True):
    """A log directory; total and usable bytes are -1 if the broker does not return them. `error` is set for
    an offline directory.
    """

    node_id: NodeId
    path: str
    error: BrokerError | None
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, ReplicaSize]


class ActiveProducer(Struct, frozen=True):
    """A producer of a partition; -1 if it has no sequence, coordinator epoch or open transaction."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: Offset


def describe_log_dirs(
    caller: Caller, nodes: Iterable[int] | None, partitions: Iterable[TopicPartition] | None
) -> dict[NodeId, tuple[LogDir, ...]]:
    """See Admin.describe_log_dirs."""
    deadline = caller.deadline()
    topics: dict[str, DescribableLogDirTopic] = {}
    for topic, number in partitions or ():
        topics.setdefault(topic, DescribableLogDirTopic(topic, [])).partitions.append(number)
    request = DescribeLogDirsRequest(None if partitions is None else list(topics.values()))
    asked = caller.brokers(deadline) if nodes is None else [caller.require(node, deadline) for node in nodes]
    replies, errors, _ = of_brokers(
        caller, asked, request, DescribeLogDirsResponse, deadline, lambda reply: [reply.error_code]
    )
    described: dict[NodeId, tuple[LogDir, ...]] = {}
    for node, reply in replies.items():
        described[node] = tuple(
            LogDir(
                node,
                result.log_dir,
                refusal(result.error_code, f"log directory {result.log_dir} of broker {node}"),
                result.total_bytes,
                result.usable_bytes,
                {
                    TopicPartition(topic.name, p.partition_index): ReplicaSize(
                        p.partition_size, p.offset_lag, p.is_future_key
                    )
                    for topic in sorted(result.topics, key=lambda topic: topic.name)
                    for p in sorted(topic.partitions, key=lambda partition: partition.partition_index)
                },
            )
            for result in sorted(reply.results, key=lambda result: result.log_dir)
        )
    return settle(described, errors)


def alter_replica_log_dirs(caller: Caller, node: int, moves: Mapping[TopicPartition, str]) -> None:
    """See Admin.alter_replica_log_dirs."""
    dirs: dict[str, dict[str, AlterReplicaLogDirTopic]] = {}
    for (topic, number), path in moves.items():
        dirs.setdefault(path, {}).setdefault(topic, AlterReplicaLogDirTopic(topic, [])).partitions.append(
            number
        )
    request = AlterReplicaLogDirsRequest(
        [AlterReplicaLogDir(path, list(topics.values())) for path, topics in dirs.items()]
    )
    deadline = caller.deadline()
    reply = caller.call(request, AlterReplicaLogDirsResponse, deadline, node=caller.require(node, deadline))
    results = {
        (at := TopicPartition(topic.topic_name, p.partition_index)): refusal(
            p.error_code, f"{at} to {moves.get(at)}"
        )
        for topic in reply.results
        for p in topic.partitions
    }
    settle(
        {at: None for at, error in results.items() if error is None},
        {at: error for at, error in results.items() if error is not None},
    )


def describe_producers(
    caller: Caller, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    """See Admin.describe_producers."""
    deadline = caller.deadline()
    wanted = list(dict.fromkeys(partitions))
    results: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
    errors: dict[TopicPartition, BrokerError] = {}
    for topic in dict.fromkeys(partition.topic for partition in wanted):
        wait_for_topic(caller.network, topic, deadline, is_patient=False)
    while left := [partition for partition in wanted if partition not in results and partition not in errors]:
        for node, own in _leaders(caller, left).items():
            try:
                producers = _producers(caller, node, own, deadline)
            except (ConnectionFailed, RequestTimeout):
                caller.pause(deadline)
                continue
            for partition, answer in producers.items():
                if not isinstance(answer, BrokerError):
                    results[partition] = answer
                elif not answer.is_retriable or answer.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    errors[partition] = answer
        if len(results) + len(errors) < len(wanted):
            caller.network.cluster.refresh_soon()
            caller.pause(deadline)
    return settle({partition: results[partition] for partition in wanted if partition in results}, errors)


def _leaders(caller: Caller, partitions: list[TopicPartition]) -> dict[NodeId, list[TopicPartition]]:
    """Partitions by leader; those without a leader are left out. Raises UnknownTopic for a partition that a
    topic does not have.
    """
    led: dict[NodeId, list[TopicPartition]] = {}
    for partition in partitions:
        view = caller.network.cluster.topics.get(partition.topic)
        if view is not None and not 0 <= partition.partition < len(view.partitions):
            raise UnknownTopic(f"topic {partition.topic!r} has no partition {partition.partition}")
        leader = caller.network.cluster.leader(partition)
        if leader >= 0:
            led.setdefault(leader, []).append(partition)
    return led


def _producers(
    caller: Caller, node: NodeId, partitions: list[TopicPartition], deadline: Micros
) -> dict[TopicPartition, tuple[ActiveProducer, ...] | BrokerError]:
    topics: dict[str, TopicRequest] = {}
    for topic, number in partitions:
        topics.setdefault(topic, TopicRequest(topic, [])).partition_indexes.append(number)
    reply = caller.call(
        DescribeProducersRequest(list(topics.values())), DescribeProducersResponse, deadline, node=node
    )
    return {
        (at := TopicPartition(t.name, p.partition_index)): refusal(p.error_code, str(at), p.error_message)
        or tuple(
            ActiveProducer(
                ProducerId(one.producer_id),
                ProducerEpoch(one.producer_epoch),
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                Offset(one.current_txn_start_offset),
            )
            for one in p.active_producers
        )
        for t in reply.topics
        for p in t.partitions
    }
