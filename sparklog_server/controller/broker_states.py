"""What the controller does for the state that is asked of a broker (`sparklog.broker.state`), and the end of
a throttle of reassignments.

    cordoned          new replicas go elsewhere (`placement`, `check_nodes`)
    drained           … and leaderships: to another replica in sync, at once and as soon as there is one
    decommissioned    … and replicas: a bounded number of them is reassigned at a time; the broker without
                      any is unregistered as soon as it is fenced

The states are dynamic settings of brokers, so any controller goes on with the work of the one before it.
"""

from collections.abc import Iterable
from typing import Final

from sparklog.model import Instant, Micros, NodeId
from sparklog.wire.schema import Message
from sparklog_server.config.layers import BROKER_STATE, REASSIGNMENT_RATE
from sparklog_server.metadata.entries import BrokerState, PartitionImage
from sparklog_server.metadata.image import BROKER_RESOURCE, MetadataImage
from sparklog_server.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

from .broker_fencing import forgotten, partitions_where
from .elections import (
    Election,
    PartitionChangeBuilder,
    Reassignment,
    SettingsFor,
    acceptable,
    rules_for,
)
from .placement import DirectoryChooser, SuccessorChooser
from .reassignments import reassigned

MOVES_MAX: Final = 50
"""The reassignments in progress at a time that decommissioning begins."""
RECORDS_MAX: Final = 1000
"""The records of one step; the next step follows at once."""
_SOON_US: Final = 50_000
"""Gathers the changes of many partitions, each of which may end what work has waited for."""
_AGAIN_US: Final = 10_000_000
"""After this time what could not be done is tried again."""


class BrokerStates:
    """When the next work for the states of brokers is due: soft state of one leadership."""

    def __init__(self, own_node: NodeId, now: Instant) -> None:
        self._own_node = own_node
        self._due_us = now.mono_us

    def decided(self, records: Iterable[Message], now: Instant) -> None:
        """These records were decided on: they may ask for a state, or end what work has waited for."""
        for one in records:
            if isinstance(one, ConfigRecord):
                if one.name in (BROKER_STATE, REASSIGNMENT_RATE):
                    self._due_us = now.mono_us
            elif (
                one.isr is not None or one.replicas is not None
                if isinstance(one, PartitionChangeRecord)
                else isinstance(one, BrokerRegistrationChangeRecord | RegisterBrokerRecord)
            ):
                self._due_us = min(self._due_us, Micros(now.mono_us + _SOON_US))

    def deadline(self, image: MetadataImage) -> Micros | None:
        """When `due` may have records; None if no broker has a state and nothing is throttled."""
        return self._due_us if image.has_broker_work else None

    def due(self, image: MetadataImage, settings_for: SettingsFor, now: Instant) -> tuple[Message, ...]:
        """The records that are due, RECORDS_MAX at most."""
        due_us = self.deadline(image)
        if due_us is None or due_us > now.mono_us:
            return ()
        self._due_us = Micros(now.mono_us + _AGAIN_US)
        records = (
            drained(image, settings_for)
            or self._decommissioned(image, settings_for)
            or list(unthrottled(image))
        )
        if records:
            self._due_us = now.mono_us
        return tuple(records[:RECORDS_MAX])

    def _decommissioned(self, image: MetadataImage, settings_for: SettingsFor) -> list[Message]:
        leaving = [node for node, state in image.broker_states.items() if state is BrokerState.DECOMMISSIONED]
        if not leaving:
            return []
        records, left = _moved(image, frozenset(leaving), settings_for)
        if records:
            return records
        for node in leaving:
            broker = image.brokers.get(node)
            if node in left:
                continue
            if broker is None:
                return [*forgotten(image, node)]
            if broker.is_fenced and node != self._own_node:
                return [
                    UnregisterBrokerRecord(broker_id=node, broker_epoch=broker.epoch),
                    *forgotten(image, node),
                ]
        return []


def drained(image: MetadataImage, settings_for: SettingsFor) -> list[Message]:
    """The elections that take leaderships from drained brokers, where another replica is in sync."""
    avoided = image.drained
    if not avoided:
        return []

    def is_wanted(partition: PartitionImage) -> bool:
        return partition.leader in avoided and not avoided.issuperset(partition.isr)

    records: list[Message] = []
    for topic_id, index, partition, rules in partitions_where(image, settings_for, is_wanted):
        builder = PartitionChangeBuilder(partition, topic_id, index, rules, acceptable(image, partition))
        if (change := builder.build(election=Election.ONLINE)) is not None:
            records.append(change)
        if len(records) == RECORDS_MAX:
            break
    return records


def _moved(
    image: MetadataImage, leaving: frozenset[NodeId], settings_for: SettingsFor
) -> tuple[list[Message], set[NodeId]]:
    """The reassignments that begin to take replicas from these brokers, and the brokers that have any."""
    waiting, moving, left = [], 0, set[NodeId]()
    for topic in image.topics_by_id.values():
        for index, partition in enumerate(topic.partitions):
            moving += bool(partition.adding_replicas or partition.removing_replicas)
            if leaving.isdisjoint(partition.replicas):
                continue
            left |= leaving.intersection(partition.replicas)
            if not leaving.isdisjoint(Reassignment.of(partition).target):
                waiting.append((topic, index))
    records: list[Message] = []
    if not waiting or moving >= MOVES_MAX:
        return records, left
    successors, directories = SuccessorChooser(image), DirectoryChooser(image)
    for topic, index in waiting:
        partition = topic.partitions[index]
        target = list(Reassignment.of(partition).target)
        for node in [one for one in target if one in leaving]:
            successor = successors.choose(target)
            if successor is not None:
                target[target.index(node)] = successor
        if leaving.isdisjoint(target):
            rules = rules_for(image, topic, settings_for(topic.name))
            change = reassigned(image, topic, index, target, rules, directories)
            if change is not None:
                records.append(change)
        if moving + len(records) >= MOVES_MAX:
            break
    return records, left


def unthrottled(image: MetadataImage) -> Iterable[Message]:
    """The record that ends the throttle of reassignments, once no replica of a live broker is catching up."""
    if not image.is_catching_up_throttled:
        return
    for topic in image.topics_by_id.values():
        for partition in topic.partitions:
            if partition.adding_replicas or partition.removing_replicas:
                return
            if len(partition.isr) < len(partition.replicas) and any(
                _is_alive(image, node) for node in partition.replicas if node not in partition.isr
            ):
                return
    yield ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=REASSIGNMENT_RATE, value=None)


def _is_alive(image: MetadataImage, node: NodeId) -> bool:
    broker = image.brokers.get(node)
    return broker is not None and not broker.is_fenced
