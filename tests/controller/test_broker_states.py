"""The states that are asked of brokers: no new replicas, no leaderships, no replicas, unregistered."""

from collections.abc import Sequence

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Millis, NodeId
from sparklog.wire.schema import Message
from sparklog_server.config.layers import BROKER_STATE, REASSIGNMENT_RATE
from sparklog_server.controller.broker_states import MOVES_MAX, BrokerStates
from sparklog_server.metadata.image import BROKER_RESOURCE, MetadataImage
from sparklog_server.metadata.records import (
    ConfigRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tests.controller.test_elect_leaders import DIRECTORIES, TOPIC_ID, image_of
from tests.controller.test_reassignments import Cluster, changed, the


def asked(node: int, state: str | None) -> Message:
    return ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name=str(node), name=BROKER_STATE, value=state
    )


def throttled(rate: str | None) -> Message:
    return ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=REASSIGNMENT_RATE, value=rate)


class Kept(Cluster):
    """A partition, and the controller that keeps the states of brokers; node 1 is its own."""

    def __init__(self, image: MetadataImage, *records: Message) -> None:
        super().__init__(image)
        self.us = 0
        self.states = BrokerStates(NodeId(1), self.now)
        self.decide(*records)

    @property
    def now(self) -> Instant:
        return Instant(Micros(self.us), Millis(0))

    def decide(self, *records: Message) -> None:
        self.image = changed(self.image, records)
        self.states.decided(records, self.now)

    def due(self) -> Sequence[Message]:
        """The records of all steps that are due a little later."""
        self.us += 12_000_000
        found: list[Message] = []
        while records := self.states.due(self.image, lambda _: self.settings, self.now):
            found += records
            self.decide(*records)
        return found


def test_a_drained_broker_leads_nothing_that_another_replica_in_sync_can_lead() -> None:
    kept = Kept(image_of([1, 2, 3], [1, 2, 3], 1), asked(1, "drained"))
    assert len(kept.due()) == 1
    assert kept.state[:3] == ((1, 2, 3), (1, 2, 3), 2)
    assert kept.states.deadline(kept.image) is not None


def test_a_drained_broker_leads_on_alone_until_another_is_in_sync() -> None:
    kept = Kept(image_of([1, 2], [1], 1), asked(1, "drained"))
    assert kept.due() == []
    change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1, 2])
    kept.decide(change)
    kept.due()
    assert the(kept.image).leader == 2


def test_a_drained_broker_is_elected_where_no_other_replica_is_alive() -> None:
    kept = Kept(image_of([1, 2], [1, 2], 2), asked(1, "drained"))
    kept.dies(2)
    assert the(kept.image).leader == 1


def test_a_cordoned_broker_keeps_what_it_has_and_gets_no_replica() -> None:
    kept = Kept(image_of([1, 2], [1, 2], 1), asked(1, "cordoned"), asked(3, "cordoned"))
    assert kept.due() == []
    assert kept.reassign([1, 3]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert kept.message == (
        "The manual partition assignment includes broker 3, which is cordoned: it gets no new replicas."
    )
    assert kept.reassign([2, 1]) is ErrorCode.NONE


def test_a_decommissioned_broker_gives_its_replicas_away_and_is_unregistered_once_it_is_fenced() -> None:
    kept = Kept(image_of([2, 3], [2, 3], 2), asked(2, "decommissioned"))
    kept.due()
    assert kept.state == ((1, 3, 2), (2, 3), 3, (1,), (2,))
    assert kept.in_sync(2, 3, 1) is ErrorCode.NONE
    assert kept.state == ((1, 3), (3, 1), 3, (), ())
    assert kept.due() == []  # it is alive
    kept.decide(FenceBrokerRecord(id=2, epoch=2))
    kept.due()
    assert 2 not in kept.image.brokers
    assert not kept.image.broker_states


def test_a_dead_broker_can_be_decommissioned() -> None:
    kept = Kept(image_of([2, 3], [3], 3, fenced=[2]), asked(2, "decommissioned"))
    kept.due()
    assert kept.state == ((1, 3, 2), (3,), 3, (1,), (2,))
    assert kept.in_sync(3, 1) is ErrorCode.NONE
    kept.due()
    assert 2 not in kept.image.brokers


def test_a_broker_that_was_unregistered_is_decommissioned_until_no_partition_lists_it() -> None:
    kept = Kept(image_of([2, 3], [3], 3, fenced=[2]))
    kept.decide(UnregisterBrokerRecord(broker_id=2, broker_epoch=2))
    kept.decide(asked(2, "decommissioned"))
    kept.due()
    assert kept.state == ((1, 3, 2), (3,), 3, (1,), (2,))
    assert kept.image.broker_states
    assert kept.in_sync(3, 1) is ErrorCode.NONE
    kept.due()
    assert not kept.image.broker_states


def test_a_successor_is_in_a_rack_without_a_replica_and_neither_fenced_nor_drained() -> None:
    image = image_of([1, 2], [1, 2], 1, fenced=[5])
    racks = [
        RegisterBrokerRecord(broker_id=node, broker_epoch=node, rack=rack, fenced=node == 5, log_dirs=[one])
        for (node, one), rack in zip(DIRECTORIES.items(), "aabba", strict=True)
    ]
    kept = Kept(changed(image, racks), asked(2, "decommissioned"), asked(3, "drained"))
    kept.due()
    assert the(kept.image).adding_replicas == (4,)


def test_a_replica_without_a_place_elsewhere_stays() -> None:
    kept = Kept(image_of([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 1), asked(5, "decommissioned"))
    assert kept.due() == []
    assert 5 in the(kept.image).replicas


def test_a_bounded_number_of_partitions_moves_at_a_time() -> None:
    image = image_of([2], [2], 2)
    more = [
        PartitionRecord(
            partition_id=index,
            topic_id=TOPIC_ID,
            replicas=[2],
            isr=[2],
            leader=2,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORIES[2]],
        )
        for index in range(1, 2 * MOVES_MAX)
    ]
    kept = Kept(changed(image, more), asked(2, "decommissioned"))
    assert len(kept.due()) == MOVES_MAX
    moving = [one for one in kept.image.topics_by_name["t"].partitions if one.adding_replicas]
    assert len(moving) == MOVES_MAX
    assert {one.adding_replicas[0] for one in moving} == {1, 3, 4, 5}  # the least loaded in turn


def test_a_throttle_ends_with_the_last_reassignment_and_the_last_replica_that_catches_up() -> None:
    kept = Kept(image_of([1, 2], [1], 1), throttled("1000000"))
    kept.reassign([1, 2, 3])
    assert kept.due() == []
    kept.in_sync(1, 3)
    assert kept.due() == []
    kept.dies(2)
    kept.decide()
    assert kept.states.due(kept.image, lambda _: kept.settings, kept.now) == ()  # still being added
    kept.reassign([1, 3])
    assert len(kept.due()) == 1
    assert kept.states.deadline(kept.image) is None


@pytest.mark.parametrize("state", ["active", "somehow", None])
def test_another_value_asks_for_nothing(state: str | None) -> None:
    kept = Kept(image_of([1, 2], [1, 2], 1), asked(1, "drained"), asked(1, state))
    assert not kept.image.broker_states
    assert kept.states.deadline(kept.image) is None
    assert kept.due() == []
