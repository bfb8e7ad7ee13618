"""Offsets of many partitions at once, asked of their leaders or told to them, followed through leader changes."""

from collections.abc import Mapping
from typing import Final

from sparklog.client.cluster import NO_NODE
from sparklog.client.failures import UnknownTopic
from sparklog.client.settings import IsolationLevel
from sparklog.client.transport import Network, now_us
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, RequestTimeout, code_of
from sparklog.model import Micros, NodeId, TopicPartition
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from sparklog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

EARLIEST: Final = -2
LATEST: Final = -1
ISOLATION_LEVELS: Final[Mapping[IsolationLevel, int]] = {"read_uncommitted": 0, "read_committed": 1}


def list_offsets(
    network: Network, positions: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel, deadline: Micros
) -> dict[TopicPartition, tuple[int, int, int]]:
    """(offset, timestamp in ms, leader epoch) of every partition; offset -1 where no record is that young."""
    found: dict[TopicPartition, tuple[int, int, int]] = {}
    # Asking for offsets creates no topic.
    was_allowed, network.allow_auto_create = network.allow_auto_create, False
    try:
        for topic in dict.fromkeys(partition.topic for partition in positions):
            network.wait_for_topic(topic, deadline, is_patient=False)
        while missing := [partition for partition in positions if partition not in found]:
            for node, partitions in _by_leader(network, missing, deadline).items():
                _ask(network, node, {p: positions[p] for p in partitions}, isolation_level, deadline, found)
            if len(found) < len(positions):
                if now_us() >= deadline:
                    raise RequestTimeout(f"no offset of {next(p for p in positions if p not in found)} in time")
                network.cluster.refresh_soon()
                network.rest(network.settings.retry_backoff_ms * 1000)
    finally:
        network.allow_auto_create = was_allowed
    return found


def offsets_request(positions: Mapping[TopicPartition, int], isolation_level: IsolationLevel, timeout_ms: int) -> ListOffsetsRequest:
    """One request for partitions of one leader."""
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, timestamp in positions.items():
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
        topic.partitions.append(ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp))
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=ISOLATION_LEVELS[isolation_level], topics=list(topics.values()), timeout_ms=timeout_ms
    )


def _by_leader(network: Network, partitions: list[TopicPartition], deadline: Micros) -> dict[NodeId, list[TopicPartition]]:
    """Partitions by leader; those without one are left out for now."""
    led: dict[NodeId, list[TopicPartition]] = {}
    for partition in partitions:
        leader = network.cluster.leader(partition)
        view = network.cluster.topics.get(partition.topic)
        if view is not None and partition.partition >= len(view.partitions):
            raise UnknownTopic(f"topic {partition.topic!r} has no partition {partition.partition}")
        if view is None and network.cluster.errors.get(partition.topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(f"there is no topic {partition.topic!r} any more")
        if leader != NO_NODE:
            led.setdefault(leader, []).append(partition)
        elif now_us() >= deadline:
            raise RequestTimeout(f"{partition} has no leader")
    return led


def _ask(
    network: Network,
    node: NodeId,
    positions: Mapping[TopicPartition, int],
    isolation_level: IsolationLevel,
    deadline: Micros,
    found: dict[TopicPartition, tuple[int, int, int]],
) -> None:
    request = offsets_request(positions, isolation_level, network.settings.request_timeout_ms)
    try:
        reply = network.call(request, ListOffsetsResponse, node=node, deadline=deadline)
    except (ConnectionFailed, RequestTimeout):
        if now_us() >= deadline:
            raise
        return
    for topic in reply.topics:
        for told in topic.partitions:
            code = code_of(told.error_code)
            if code is ErrorCode.NONE:
                found[TopicPartition(topic.name, told.partition_index)] = (told.offset, told.timestamp, told.leader_epoch)
            elif not code.is_retriable:
                raise BrokerError(code, f"{topic.name}-{told.partition_index}")


def delete_records(network: Network, before: Mapping[TopicPartition, int], *, deadline: Micros) -> dict[TopicPartition, int | BrokerError]:
    """Delete the records below each offset (-1: the high watermark): the new log start, or why the leader refused.

    Asking twice deletes no more than asking once, so what fails for the moment is tried again.
    """
    told: dict[TopicPartition, int | BrokerError] = {}
    was_allowed, network.allow_auto_create = network.allow_auto_create, False
    try:
        for topic in dict.fromkeys(partition.topic for partition in before):
            network.wait_for_topic(topic, deadline, is_patient=False)
        while missing := [partition for partition in before if partition not in told]:
            for node, partitions in _by_leader(network, missing, deadline).items():
                _tell(network, node, {p: before[p] for p in partitions}, deadline, told)
            if len(told) < len(before):
                if now_us() >= deadline:
                    raise RequestTimeout(f"the records of {next(p for p in before if p not in told)} were not deleted in time")
                network.cluster.refresh_soon()
                network.rest(network.settings.retry_backoff_ms * 1000)
    finally:
        network.allow_auto_create = was_allowed
    return told


def _tell(
    network: Network, node: NodeId, before: Mapping[TopicPartition, int], deadline: Micros, told: dict[TopicPartition, int | BrokerError]
) -> None:
    topics: dict[str, DeleteRecordsTopic] = {}
    for partition, offset in before.items():
        topic = topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic, partitions=[]))
        topic.partitions.append(DeleteRecordsPartition(partition_index=partition.partition, offset=offset))
    request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=network.settings.request_timeout_ms)
    try:
        reply = network.call(request, DeleteRecordsResponse, node=node, deadline=deadline)
    except (ConnectionFailed, RequestTimeout):
        if now_us() >= deadline:
            raise
        return
    for answered in reply.topics:
        for result in answered.partitions:
            code = code_of(result.error_code)
            partition = TopicPartition(answered.name, result.partition_index)
            if code is ErrorCode.NONE:
                told[partition] = result.low_watermark
            elif not code.is_retriable:
                told[partition] = BrokerError(code, str(partition))
