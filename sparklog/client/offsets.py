"""Offsets of many partitions, listed or deleted by their leaders, with retries after leader changes."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from sparklog.client.clock import now_us
from sparklog.client.cluster import NO_NODE
from sparklog.client.failures import UnknownTopic
from sparklog.client.settings import ISOLATION_LEVELS, IsolationLevel
from sparklog.client.transport.network import Network, wait_for_topic
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, RequestTimeout, code_of
from sparklog.model import Micros, NodeId, TopicPartition
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST: Final = -2
LATEST: Final = -1
T = TypeVar("T")

_LOOK_AGAIN_US: Final = 5_000


def list_offsets(
    network: Network,
    positions: Mapping[TopicPartition, int],
    *,
    isolation_level: IsolationLevel,
    deadline: Micros,
) -> dict[TopicPartition, tuple[int, int, int]]:
    """(offset, timestamp in ms, leader epoch) of every partition; the offset is -1 if every record
    is older.
    """

    def ask(node: NodeId, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int, int]]:
        request = offsets_request(asked, isolation_level, network.settings.request_timeout_ms)
        found: dict[TopicPartition, tuple[int, int, int]] = {}
        for topic in network.call(request, ListOffsetsResponse, node=node, deadline=deadline).topics:
            for result in topic.partitions:
                code, partition = (
                    code_of(result.error_code),
                    TopicPartition(topic.name, result.partition_index),
                )
                if code is ErrorCode.NONE:
                    found[partition] = (result.offset, result.timestamp, result.leader_epoch)
                elif not code.is_retriable:
                    raise BrokerError(code, str(partition))
        return found

    return _of_leaders(network, positions, ask, deadline, late="no offset of {} in time")


def delete_records(
    network: Network, before: Mapping[TopicPartition, int], *, deadline: Micros
) -> dict[TopicPartition, int | BrokerError]:
    """Delete the records below each offset (-1: the high watermark). Returns the new log start offset, or the
    leader's error.

    The request is idempotent, so retriable errors are retried.
    """

    def tell(node: NodeId, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | BrokerError]:
        topics: dict[str, DeleteRecordsTopic] = {}
        for partition, offset in asked.items():
            topic = topics.setdefault(
                partition.topic, DeleteRecordsTopic(name=partition.topic, partitions=[])
            )
            topic.partitions.append(
                DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
            )
        request = DeleteRecordsRequest(
            topics=list(topics.values()), timeout_ms=network.settings.request_timeout_ms
        )
        results: dict[TopicPartition, int | BrokerError] = {}
        for answered in network.call(request, DeleteRecordsResponse, node=node, deadline=deadline).topics:
            for result in answered.partitions:
                code, partition = (
                    code_of(result.error_code),
                    TopicPartition(answered.name, result.partition_index),
                )
                if code is ErrorCode.NONE:
                    results[partition] = result.low_watermark
                elif not code.is_retriable:
                    results[partition] = BrokerError(code, str(partition))
        return results

    return _of_leaders(network, before, tell, deadline, late="the records of {} were not deleted in time")


def _of_leaders(
    network: Network,
    wanted: Mapping[TopicPartition, int],
    ask: Callable[[NodeId, Mapping[TopicPartition, int]], dict[TopicPartition, T]],
    deadline: Micros,
    *,
    late: str,
) -> dict[TopicPartition, T]:
    """The leaders' answers for all partitions; partitions without a result of `ask` are requested again."""
    results: dict[TopicPartition, T] = {}
    # A metadata request for these partitions creates no topic.
    was_allowed, network.allow_auto_create = network.allow_auto_create, False
    try:
        topics = dict.fromkeys(partition.topic for partition in wanted)
        network.cluster.want(topics)  # one request for all of them
        for topic in topics:
            wait_for_topic(network, topic, deadline, is_patient=False)
        if any(_is_beyond(network, partition) for partition in wanted):
            _look_again(network, deadline)  # partitions may have been added since
        while missing := [partition for partition in wanted if partition not in results]:
            for node, partitions in _by_leader(network, missing, deadline).items():
                try:
                    results |= ask(node, {partition: wanted[partition] for partition in partitions})
                except (ConnectionFailed, RequestTimeout):
                    if now_us() >= deadline:
                        raise
            if len(results) < len(wanted):
                if now_us() >= deadline:
                    raise RequestTimeout(
                        late.format(next(partition for partition in missing if partition not in results))
                    )
                network.cluster.refresh_soon()
                network.rest(network.settings.retry_backoff_ms * 1000)
    finally:
        network.allow_auto_create = was_allowed
    return results


def _is_beyond(network: Network, partition: TopicPartition) -> bool:
    """Whether the metadata has fewer partitions of the topic."""
    view = network.cluster.topics.get(partition.topic)
    return view is not None and partition.partition >= len(view.partitions)


def _look_again(network: Network, deadline: Micros) -> None:
    """Request metadata, and wait for the response."""
    cluster = network.cluster
    refreshes = cluster.refreshes
    cluster.refresh_now()
    while cluster.refreshes == refreshes and now_us() < deadline:
        network.rest(_LOOK_AGAIN_US)


def offsets_request(
    positions: Mapping[TopicPartition, int], isolation_level: IsolationLevel, timeout_ms: int
) -> ListOffsetsRequest:
    """One request for partitions of one leader."""
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, timestamp in positions.items():
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=ISOLATION_LEVELS[isolation_level],
        topics=list(topics.values()),
        timeout_ms=timeout_ms,
    )


def _by_leader(
    network: Network, partitions: list[TopicPartition], deadline: Micros
) -> dict[NodeId, list[TopicPartition]]:
    """Partitions by leader; those without a leader are left out for now."""
    led: dict[NodeId, list[TopicPartition]] = {}
    for partition in partitions:
        leader = network.cluster.leader(partition)
        view = network.cluster.topics.get(partition.topic)
        if _is_beyond(network, partition):
            raise UnknownTopic(f"topic {partition.topic!r} has no partition {partition.partition}")
        code = network.cluster.errors.get(partition.topic)
        if view is None and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(f"there is no topic {partition.topic!r} any more")
        if view is None and code is not None and not code.is_retriable:
            raise BrokerError(code, f"topic {partition.topic!r}")
        if leader != NO_NODE:
            led.setdefault(leader, []).append(partition)
        elif now_us() >= deadline:
            raise RequestTimeout(f"{partition} has no leader")
    return led
