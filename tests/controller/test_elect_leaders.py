"""Elections on request over several brokers."""

from collections.abc import Sequence

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Offset, Uuid
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from sparklog.wire.schema import Message
from sparklog_server.config.topic_settings import TopicSettings
from sparklog_server.controller.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    elect_leaders,
)
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import (
    FenceBrokerRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)

TOPIC_ID = Uuid(b"t" * 16)
DIRECTORIES = {node: Uuid(bytes([node]) * 16) for node in (1, 2, 3, 4, 5)}


def image_of(
    replicas: Sequence[int], isr: Sequence[int], leader: int, *, fenced: Sequence[int] = ()
) -> MetadataImage:
    """Five brokers and one partition."""
    records: list[Message] = [
        RegisterBrokerRecord(broker_id=node, broker_epoch=node, log_dirs=[one])
        for node, one in DIRECTORIES.items()
    ]
    records += [UnfenceBrokerRecord(id=node, epoch=node) for node in DIRECTORIES if node not in fenced]
    records += [FenceBrokerRecord(id=node, epoch=node) for node in fenced]
    records.append(TopicRecord(name="t", topic_id=TOPIC_ID))
    directories = [DIRECTORIES[node] for node in replicas]
    records.append(
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=list(replicas),
            isr=list(isr),
            leader=leader,
            leader_epoch=5,
            partition_epoch=0,
            directories=directories,
        )
    )
    return MetadataImage().apply([(Offset(index), record) for index, record in enumerate(records)])[0]


def after(image: MetadataImage, records: Sequence[Message]) -> PartitionImage:
    changed, _ = image.apply(
        [(Offset(image.offset + 1 + index), record) for index, record in enumerate(records)]
    )
    return changed.topics_by_name["t"].partitions[0]


def elect(image: MetadataImage, kind: int, *, is_all: bool = False) -> tuple[list[int], PartitionImage]:
    """The error codes, and the resulting partition."""
    asked = None if is_all else [TopicPartitions("t", [0])]
    outcome = elect_leaders(
        image, ElectLeadersRequest(election_type=kind, topic_partitions=asked), lambda _: TopicSettings()
    )
    codes = [
        part.error_code for topic in outcome.reply.replica_election_results for part in topic.partition_result
    ]
    return codes, after(image, outcome.records)


@pytest.mark.parametrize("is_all", [True, False])
def test_the_preferred_replica_takes_over_in_a_new_epoch(is_all: bool) -> None:
    codes, partition = elect(image_of([1, 2], [1, 2], 2), PREFERRED, is_all=is_all)
    assert (codes, partition.leader, partition.leader_epoch, partition.isr) == ([0], 1, 6, (1, 2))


@pytest.mark.parametrize(("isr", "fenced"), [([2], []), ([1, 2], [1])])
def test_a_preferred_replica_that_is_behind_or_fenced_does_not_lead(
    isr: list[int], fenced: list[int]
) -> None:
    codes, partition = elect(image_of([1, 2], isr, 2, fenced=fenced), PREFERRED)
    assert (codes, partition.leader) == ([ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE], 2)


def test_an_unclean_election_takes_an_unfenced_replica_of_a_partition_without_leader() -> None:
    codes, partition = elect(image_of([1, 2], [1], -1, fenced=[1]), UNCLEAN)
    assert (codes, partition.leader, partition.isr, partition.is_recovering) == ([0], 2, (2,), True)
    codes, partition = elect(image_of([1, 2], [1, 2], 2), UNCLEAN)
    assert (codes, partition.leader) == ([ErrorCode.ELECTION_NOT_NEEDED], 2)
    codes, partition = elect(image_of([1, 2], [1], -1, fenced=[1, 2]), UNCLEAN)
    assert (codes, partition.leader) == ([ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE], -1)


def test_a_partition_that_is_named_twice_is_elected_once() -> None:
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=[TopicPartitions("t", [0, 0])])
    outcome = elect_leaders(image_of([1, 2], [1, 2], 2), request, lambda _: TopicSettings())
    assert [part.error_code for part in outcome.reply.replica_election_results[0].partition_result] == [
        0,
        ErrorCode.ELECTION_NOT_NEEDED,
    ]
    assert len(outcome.records) == 1
