"""Reassignments of partitions to other replicas: begun, completed by an ISR, changed, cancelled, refused."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from sparklog_server.config.layers import Layers
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.config.topic_settings import TopicSettings
from sparklog_server.controller.alter_partition import alter_partition
from sparklog_server.controller.broker_fencing import broker_left
from sparklog_server.controller.configs import CreatedConfigs
from sparklog_server.controller.reassignments import alter_partition_reassignments
from sparklog_server.controller.topics import DecisionInputs, create_partitions
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    PartitionRecord,
)
from tests.controller.test_elect_leaders import DIRECTORIES, TOPIC_ID, after, image_of
from tests.entropy import CountingEntropy

UNCLEAN = replace(TopicSettings(), unclean_leader_election_enable=True)


def changed(image: MetadataImage, records: Sequence[object]) -> MetadataImage:
    numbered = [(image.offset + 1 + index, record) for index, record in enumerate(records)]
    return image.apply(numbered)[0]  # type: ignore[arg-type]


def the(image: MetadataImage) -> PartitionImage:
    return image.topics_by_name["t"].partitions[0]


class Cluster:
    """A partition, and the requests that change it."""

    def __init__(self, image: MetadataImage, settings: TopicSettings | None = None) -> None:
        self.image = image
        self.settings = settings or replace(TopicSettings(), min_insync_replicas=2)

    def reassign(self, replicas: list[int] | None, *, is_factor_free: bool = True) -> ErrorCode:
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic("t", [ReassignablePartition(0, replicas)])],
            allow_replication_factor_change=is_factor_free,
        )
        outcome = alter_partition_reassignments(self.image, request, lambda _: self.settings)
        self.image = changed(self.image, outcome.records)
        result = outcome.reply.responses[0].partitions[0]
        self.message = result.error_message
        return ErrorCode(result.error_code)

    def in_sync(self, *isr: int) -> ErrorCode:
        one = the(self.image)
        asked = AlterPartitionRequestPartitionData(
            partition_index=0,
            leader_epoch=one.leader_epoch,
            new_isr_with_epochs=[BrokerState(node, -1) for node in isr],
            partition_epoch=one.partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=one.leader, topics=[AlterPartitionRequestTopicData(TOPIC_ID, [asked])]
        )
        outcome = alter_partition(self.image, request, lambda _: self.settings)
        self.image = changed(self.image, outcome.records)
        return ErrorCode(outcome.reply.topics[0].partitions[0].error_code)

    def dies(self, node: int) -> None:
        records = broker_left(self.image, NodeId(node), lambda _: self.settings)
        self.image = changed(self.image, [*records, FenceBrokerRecord(id=node, epoch=node)])

    @property
    def state(self) -> tuple[object, ...]:
        one = the(self.image)
        return one.replicas, one.isr, one.leader, one.adding_replicas, one.removing_replicas

    @property
    def directories(self) -> tuple[object, ...]:
        return the(self.image).directories


def test_replicas_take_another_order_with_their_directories_and_the_leader_stays() -> None:
    cluster = Cluster(image_of([1, 2], [1, 2], 1))
    assert cluster.reassign([2, 1]) is ErrorCode.NONE
    assert cluster.state == ((2, 1), (1, 2), 1, (), ())
    assert cluster.directories == (DIRECTORIES[2], DIRECTORIES[1])
    assert the(cluster.image).leader_epoch == 5


def test_the_same_replicas_change_nothing() -> None:
    cluster = Cluster(image_of([1, 2], [1, 2], 1))
    before = cluster.image
    assert cluster.reassign([1, 2]) is ErrorCode.NONE
    assert cluster.image.offset == before.offset


def test_a_replica_that_is_left_out_is_fenced_by_a_new_leader_epoch() -> None:
    cluster = Cluster(image_of([1, 2, 3], [1, 2, 3], 1))
    assert cluster.reassign([2, 3]) is ErrorCode.NONE
    assert cluster.state == ((2, 3), (2, 3), 2, (), ())
    assert the(cluster.image).leader_epoch == 6


def test_replicas_are_removed_once_the_added_ones_are_in_sync() -> None:
    cluster = Cluster(image_of([1, 2, 3], [1, 2, 3], 1))
    assert cluster.reassign([4, 2, 3]) is ErrorCode.NONE
    assert cluster.state == ((4, 2, 3, 1), (1, 2, 3), 1, (4,), (1,))
    assert cluster.directories == tuple(DIRECTORIES[node] for node in (4, 2, 3, 1))
    # The sender leads no more: it is told so, and the record is written all the same.
    assert cluster.in_sync(1, 2, 3, 4) is ErrorCode.NEW_LEADER_ELECTED
    assert cluster.state == ((4, 2, 3), (2, 3, 4), 4, (), ())
    assert cluster.directories == tuple(DIRECTORIES[node] for node in (4, 2, 3))


def test_a_raised_replication_factor_is_complete_when_all_are_in_sync() -> None:
    cluster = Cluster(image_of([1], [1], 1))
    assert cluster.reassign([1, 2, 3]) is ErrorCode.NONE
    assert cluster.in_sync(1, 3) is ErrorCode.NONE
    assert cluster.state == ((1, 2, 3), (1, 3), 1, (2, 3), ())
    assert cluster.in_sync(1, 3, 2) is ErrorCode.NONE
    assert cluster.state == ((1, 2, 3), (1, 3, 2), 1, (), ())


def test_a_lowered_replication_factor_waits_for_its_whole_target() -> None:
    cluster = Cluster(image_of([1, 2, 3, 4], [1, 2], 1))
    assert cluster.reassign([3, 5]) is ErrorCode.NONE
    assert cluster.in_sync(1, 2, 5) is ErrorCode.NONE
    assert cluster.state[3:] == ((5,), (1, 2, 4))  # 3 is not in sync
    assert cluster.in_sync(1, 2, 5, 3) is ErrorCode.NEW_LEADER_ELECTED
    assert cluster.state == ((3, 5), (5, 3), 3, (), ())


def test_a_dead_replica_that_does_not_move_holds_nothing_up() -> None:
    # KAFKA-19975
    cluster = Cluster(image_of([1, 2, 3], [1, 3], 1, fenced=[2]))
    assert cluster.reassign([1, 2, 4]) is ErrorCode.NONE
    assert cluster.in_sync(1, 3, 4) is ErrorCode.NONE
    assert cluster.state == ((1, 2, 4), (1, 4), 1, (), ())


def test_fewer_in_sync_than_are_needed_are_not_left_while_others_can_catch_up() -> None:
    cluster = Cluster(image_of([1, 2, 3], [3], 3))
    assert cluster.reassign([1, 2, 4]) is ErrorCode.NONE
    assert cluster.in_sync(3, 4) is ErrorCode.NONE
    assert cluster.state == ((1, 2, 4, 3), (3, 4), 3, (4,), (3,))
    cluster.dies(2)
    assert cluster.in_sync(3, 4, 1) is ErrorCode.NEW_LEADER_ELECTED
    assert cluster.state == ((1, 2, 4), (4, 1), 1, (), ())


def test_the_death_of_a_replica_to_be_removed_completes_nothing_before_its_successor_is_in_sync() -> None:
    cluster = Cluster(image_of([1, 2], [1, 2], 1))
    cluster.reassign([3, 2])
    cluster.dies(1)
    assert cluster.state == ((3, 2, 1), (2,), 2, (3,), (1,))
    assert cluster.in_sync(2, 3) is ErrorCode.NONE
    assert cluster.state == ((3, 2), (2, 3), 2, (), ())


def test_a_cancel_gives_the_original_replicas_back() -> None:
    cluster = Cluster(image_of([1, 2], [1, 2], 1))
    cluster.reassign([3, 4])
    cluster.in_sync(1, 2, 3)
    assert cluster.reassign(None) is ErrorCode.NONE
    assert sorted(the(cluster.image).replicas) == [1, 2]
    assert cluster.state[1:] == ((1, 2), 1, (), ())
    assert cluster.reassign(None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_cancel_of_which_no_original_replica_is_alive_is_refused() -> None:
    # KAFKA-14424
    cluster = Cluster(image_of([1, 2], [1, 2], 1), replace(TopicSettings(), min_insync_replicas=1))
    cluster.reassign([3, 4])
    cluster.in_sync(1, 2, 3)
    cluster.dies(1)
    cluster.dies(2)
    assert cluster.state[1:3] == ((3,), 3)
    before = cluster.image
    assert cluster.reassign(None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.message == (
        "Unable to revert partition assignment for t:0: of its original replicas [1, 2] none is alive and in "
        "sync. Wait until one is, or let the reassignment end."
    )
    assert cluster.image.offset == before.offset


@pytest.mark.parametrize(
    ("settings", "expected"),
    [(TopicSettings(), ErrorCode.INVALID_REPLICA_ASSIGNMENT), (UNCLEAN, ErrorCode.NONE)],
)
def test_a_cancel_takes_an_original_replica_that_is_behind_only_where_that_is_allowed(
    settings: TopicSettings, expected: ErrorCode
) -> None:
    cluster = Cluster(image_of([1, 2], [1, 2], 1), settings)
    cluster.reassign([3, 4])
    cluster.in_sync(1, 2, 3)
    cluster.in_sync(1, 3)
    cluster.dies(1)
    assert cluster.state[1:3] == ((3,), 3)
    assert cluster.reassign(None) is expected
    if expected is ErrorCode.NONE:
        assert cluster.state == ((1, 2), (2,), 2, (), ())
        assert the(cluster.image).is_recovering


def test_another_target_keeps_what_is_being_added_and_drops_what_never_came_in_sync() -> None:
    cluster = Cluster(image_of([1, 2], [1, 2], 1))
    cluster.reassign([3, 4])
    assert cluster.state == ((3, 4, 1, 2), (1, 2), 1, (3, 4), (1, 2))
    assert cluster.reassign([3, 5]) is ErrorCode.NONE
    assert cluster.state == ((3, 5, 1, 2), (1, 2), 1, (3, 5), (1, 2))
    assert cluster.in_sync(1, 2, 5) is ErrorCode.NONE
    assert cluster.reassign([3, 1]) is ErrorCode.NONE  # 5 is in sync: it goes only with 2
    assert cluster.state == ((3, 1, 2, 5), (1, 2, 5), 1, (3,), (2, 5))
    assert cluster.in_sync(1, 2, 5, 3) is ErrorCode.NONE
    assert cluster.state == ((3, 1), (1, 3), 1, (), ())


def test_the_replication_factor_is_that_of_the_target_where_it_must_not_change() -> None:
    # KIP-860
    cluster = Cluster(image_of([1, 2], [1, 2], 1))
    assert cluster.reassign([1, 2, 3], is_factor_free=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert cluster.message == "The replication factor is changed from 2 to 3"
    assert cluster.reassign([3, 4], is_factor_free=False) is ErrorCode.NONE
    assert cluster.reassign([3, 5], is_factor_free=False) is ErrorCode.NONE
    assert cluster.reassign([3], is_factor_free=False) is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("replicas", [[], [1, 1], [9], [-1]])
def test_replicas_that_cannot_be_are_refused(replicas: list[int]) -> None:
    cluster = Cluster(image_of([1, 2], [1, 2], 1))
    before = cluster.image
    assert cluster.reassign(replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.image.offset == before.offset


def test_a_node_whose_directories_are_cordoned_gets_no_replica() -> None:
    image = image_of([1, 2], [1, 2], 1)
    cordon = BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=3, cordoned_log_dirs=[DIRECTORIES[3]])
    cluster = Cluster(changed(image, [cordon]))
    assert cluster.reassign([1, 3]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "broker 3, but all its log directories are cordoned" in str(cluster.message)


def test_a_partition_that_a_request_names_twice_is_reassigned_once() -> None:
    asked = [ReassignablePartition(0, [3, 4]), ReassignablePartition(0, None)]
    outcome = alter_partition_reassignments(
        image_of([1, 2], [1, 2], 1),
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", asked)]),
        lambda _: TopicSettings(),
    )
    codes = [one.error_code for one in outcome.reply.responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert after(image_of([1, 2], [1, 2], 1), outcome.records).adding_replicas == (3, 4)


def test_partitions_that_are_added_during_a_move_get_the_replication_factor_of_its_end() -> None:
    cluster = Cluster(image_of([1, 2], [1, 2], 1))
    cluster.reassign([3, 4])
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", 2, assignments=None)])
    inputs = DecisionInputs(
        BrokerSettings.of({}),
        CountingEntropy(),
        lambda _: None,
        CreatedConfigs(Layers.of(BrokerSettings.of({}))),
    )
    outcome = create_partitions(cluster.image, request, inputs)
    (record,) = outcome.records
    assert isinstance(record, PartitionRecord)
    assert len(record.replicas) == 2
