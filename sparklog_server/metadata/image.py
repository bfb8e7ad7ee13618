"""The cluster at one offset of the metadata log: an immutable image, and the changes that a batch of records
makes to it.

`MetadataImage.apply` copies only the tables that the records touch and shares the rest with the previous
image. Objects of an image never change, so a handler may keep one across any number of later changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from sparklog.model import NO_OFFSET, NodeId, Offset, ProducerId, TopicPartition, Uuid
from sparklog.wire.schema import Message
from sparklog_server.config.layers import BROKER_STATE, REASSIGNMENT_RATE

from .acls import AclRule, Acls
from .acls import replay as replay_acl
from .client_quotas import QuotaEntity, Quotas
from .client_quotas import replay as replay_quota
from .entries import (
    BrokerImage,
    BrokerState,
    ControllerImage,
    PartitionImage,
    TopicImage,
    endpoints_of,
    feature_ranges,
    merged,
    partition_of,
)
from .features import KRAFT_VERSION
from .records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
_STATES = frozenset(state.value for state in BrokerState if state is not BrokerState.ACTIVE)
CarriedKey = tuple[str | bytes | int | None, ...]
"""The key of a record that this release keeps unchanged and does not use, so that a snapshot preserves it."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def credential_key(user: str, mechanism: int) -> CarriedKey:
    """The key of a SCRAM credential."""
    return ("scram", user, mechanism)


def _carried_key(record: Message) -> tuple[CarriedKey, bool] | None:
    """The object of the record, and whether it still exists after the record; None for a record without
    state.
    """
    if isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
        return credential_key(record.name, record.mechanism), isinstance(record, UserScramCredentialRecord)
    if isinstance(record, DelegationTokenRecord | RemoveDelegationTokenRecord):
        return ("token", record.token_id), isinstance(record, DelegationTokenRecord)
    return None


class PartitionChanged(msgspec.Struct, frozen=True, gc=False):
    """A partition that is new (`before` is None) or changed."""

    topic_partition: TopicPartition
    topic_id: Uuid
    before: PartitionImage | None
    after: PartitionImage


class MetadataDelta(msgspec.Struct, frozen=True):
    """The changes between two images. Objects created and removed in between do not appear; `topics_deleted`
    has the last state of each deleted topic.
    """

    before: "MetadataImage"
    after: "MetadataImage"
    topics_created: tuple[TopicImage, ...] = ()
    topics_deleted: tuple[TopicImage, ...] = ()
    partitions_changed: tuple[PartitionChanged, ...] = ()
    brokers_changed: tuple[NodeId, ...] = ()
    configs_changed: tuple[tuple[int, str], ...] = ()
    features_changed: tuple[str, ...] = ()
    quotas_changed: tuple[QuotaEntity, ...] = ()
    acls_changed: tuple[Uuid, ...] = ()


class MetadataImage(msgspec.Struct, frozen=True):
    """The cluster after the record at `offset`.

    The two topic tables hold the same images; `configs` maps (resource type, name) to texts by key;
    `features` holds levels above 0; `carried` holds the records that this release only keeps.
    """

    offset: Offset = NO_OFFSET
    topics_by_name: Mapping[str, TopicImage] = {}
    topics_by_id: Mapping[Uuid, TopicImage] = {}
    brokers: Mapping[NodeId, BrokerImage] = {}
    configs: Mapping[tuple[int, str], Mapping[str, str]] = {}
    features: Mapping[str, int] = {}
    next_producer_id: ProducerId = ProducerId(0)
    partition_count: int = 0
    open_transaction: tuple[tuple[Offset, Message], ...] | None = None
    carried: Mapping[CarriedKey, Message] = {}
    quotas: Quotas = {}
    controllers: Mapping[NodeId, ControllerImage] = {}
    acls: Acls = {}
    broker_states: Mapping[NodeId, BrokerState] = {}
    """What `configs` asks of brokers that are not active."""

    def apply(self, records: Iterable[tuple[Offset, Message]]) -> tuple["MetadataImage", MetadataDelta]:
        """The image after these (offset, record) pairs, and their changes."""
        draft = _Draft(self)
        for offset, record in records:
            draft.replay(offset, record)
        return draft.finish()

    @property
    def is_catching_up_throttled(self) -> bool:
        """Whether the throttle of reassignments is set, which the controller removes."""
        return REASSIGNMENT_RATE in self.broker_config("")

    @property
    def has_broker_work(self) -> bool:
        """Whether the controller has something to do for the states of brokers, or to end a throttle."""
        return bool(self.broker_states) or self.is_catching_up_throttled

    @property
    def drained(self) -> frozenset[NodeId]:
        """The brokers that are to lead nothing."""
        states = self.broker_states.items()
        return frozenset(node for node, state in states if state is not BrokerState.CORDONED)

    def takes_replicas(self, node: NodeId) -> bool:
        """Whether a broker may get new replicas: its state allows it, and a directory is not cordoned."""
        broker = self.brokers[node]
        has_directory = not broker.directories or set(broker.directories) - set(broker.cordoned_directories)
        return node not in self.broker_states and bool(has_directory)

    @property
    def features_epoch(self) -> int:
        """The epoch of the finalized features in ApiVersions; it never decreases."""
        return self.offset

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        """The partition of that name; None if the topic or the partition does not exist."""
        topic = self.topics_by_name.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The overrides of a topic."""
        return self.configs.get((TOPIC_RESOURCE, name), {})

    def broker_config(self, name: str) -> Mapping[str, str]:
        """The dynamic settings of the broker of that number, or of the cluster for the empty name."""
        return self.configs.get((BROKER_RESOURCE, name), {})


class _Draft:
    """An image under change: every table is copied on its first change, and changed entries keep
    their order.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._offset = image.offset
        self._by_id: dict[Uuid, TopicImage] | None = None
        self._brokers: dict[NodeId, BrokerImage] | None = None
        self._controllers: dict[NodeId, ControllerImage] | None = None
        self._configs: dict[tuple[int, str], Mapping[str, str]] | None = None
        self._states: dict[NodeId, BrokerState] | None = None
        self._features: dict[str, int] | None = None
        self._carried: dict[CarriedKey, Message] | None = None
        self._quotas: dict[QuotaEntity, Mapping[str, float]] | None = None
        self._acls: dict[Uuid, AclRule] | None = None
        self._next_producer_id = image.next_producer_id
        self._transaction = None if image.open_transaction is None else list(image.open_transaction)
        # Partitions of changed topics, as lists, so that adding n partitions costs n and not n squared.
        self._partitions: dict[Uuid, list[PartitionImage]] = {}
        self._touched_partitions: dict[tuple[Uuid, int], None] = {}
        self._touched_topics: dict[Uuid, None] = {}
        self._touched_brokers: dict[NodeId, None] = {}
        self._touched_configs: dict[tuple[int, str], None] = {}
        self._touched_features: dict[str, None] = {}
        self._touched_quotas: dict[QuotaEntity, None] = {}
        self._touched_acls: dict[Uuid, None] = {}

    def replay(self, offset: Offset, record: Message) -> None:
        """Apply one record; the records of a metadata transaction take effect at its end."""
        self._offset = offset
        if isinstance(record, BeginTransactionRecord):
            self._transaction = []
        elif isinstance(record, AbortTransactionRecord):
            self._transaction = None
        elif isinstance(record, EndTransactionRecord):
            held, self._transaction = self._transaction or [], None
            for held_offset, held_record in held:
                self._replay(held_offset, held_record)
        elif self._transaction is not None:
            self._transaction.append((offset, record))
        else:
            self._replay(offset, record)

    def finish(self) -> tuple[MetadataImage, MetadataDelta]:
        """The new image and its differences from the previous one."""
        old = self._image
        by_name: Mapping[str, TopicImage] = old.topics_by_name
        by_id: Mapping[Uuid, TopicImage] = old.topics_by_id
        partition_count = old.partition_count
        if self._by_id is not None:
            for topic_id, partitions in self._partitions.items():
                topic = self._by_id[topic_id]
                self._by_id[topic_id] = TopicImage(topic.name, topic_id, tuple(partitions))
            names = dict(old.topics_by_name)
            for topic_id in self._touched_topics:
                before, after = old.topics_by_id.get(topic_id), self._by_id.get(topic_id)
                partition_count += (len(after.partitions) if after else 0) - (
                    len(before.partitions) if before else 0
                )
                if before is not None and after is None and names.get(before.name) is before:
                    del names[before.name]
            for topic_id in self._touched_topics:
                if (kept := self._by_id.get(topic_id)) is not None:
                    names[kept.name] = kept
            by_id, by_name = self._by_id, names
        image = MetadataImage(
            offset=self._offset,
            topics_by_name=by_name,
            topics_by_id=by_id,
            brokers=old.brokers if self._brokers is None else self._brokers,
            configs=old.configs if self._configs is None else self._configs,
            features=old.features if self._features is None else self._features,
            next_producer_id=self._next_producer_id,
            partition_count=partition_count,
            open_transaction=None if self._transaction is None else tuple(self._transaction),
            carried=old.carried if self._carried is None else self._carried,
            quotas=old.quotas if self._quotas is None else self._quotas,
            controllers=old.controllers if self._controllers is None else self._controllers,
            acls=old.acls if self._acls is None else self._acls,
            broker_states=old.broker_states if self._states is None else self._states,
        )
        return image, self._delta(image)

    def _delta(self, image: MetadataImage) -> MetadataDelta:
        old = self._image
        created = [
            image.topics_by_id[one]
            for one in self._touched_topics
            if one in image.topics_by_id and one not in old.topics_by_id
        ]
        deleted = [
            old.topics_by_id[one]
            for one in self._touched_topics
            if one in old.topics_by_id and one not in image.topics_by_id
        ]
        changed: list[PartitionChanged] = []
        for topic_id, partition in self._touched_partitions:
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                old_topic = old.topics_by_id.get(topic_id)
                before = (
                    old_topic.partitions[partition]
                    if old_topic and partition < len(old_topic.partitions)
                    else None
                )
                changed.append(
                    PartitionChanged(
                        TopicPartition(topic.name, partition), topic_id, before, topic.partitions[partition]
                    )
                )
        return MetadataDelta(
            before=old,
            after=image,
            topics_created=tuple(created),
            topics_deleted=tuple(deleted),
            partitions_changed=tuple(changed),
            brokers_changed=tuple(self._touched_brokers),
            configs_changed=tuple(self._touched_configs),
            features_changed=tuple(self._touched_features),
            quotas_changed=tuple(self._touched_quotas),
            acls_changed=tuple(self._touched_acls),
        )

    def _replay(self, offset: Offset, record: Message) -> None:
        if isinstance(record, PartitionRecord):
            self._partition(record)
        elif isinstance(record, PartitionChangeRecord):
            self._partition_changed(record)
        elif isinstance(record, TopicRecord):
            topic_id = Uuid(record.topic_id)
            assert topic_id not in self._topics(), f"topic id of {record.name} is taken"
            self._topics()[topic_id] = TopicImage(record.name, topic_id, ())
            self._touched_topics[topic_id] = None
        elif isinstance(record, RemoveTopicRecord):
            self._topic_removed(Uuid(record.topic_id))
        elif isinstance(record, ConfigRecord):
            self._configured(record)
        elif isinstance(record, RegisterBrokerRecord):
            self._registered(offset, record)
        elif isinstance(record, BrokerRegistrationChangeRecord):
            self._registration_changed(record)
        elif isinstance(record, FenceBrokerRecord | UnfenceBrokerRecord):
            self._replace_broker(NodeId(record.id), is_fenced=isinstance(record, FenceBrokerRecord))
        elif isinstance(record, UnregisterBrokerRecord):
            self._broker_table().pop(NodeId(record.broker_id), None)
            self._touched_brokers[NodeId(record.broker_id)] = None
        elif isinstance(record, RegisterControllerRecord):
            self._controller_registered(record)
        elif isinstance(record, FeatureLevelRecord):
            self._feature_set(record)
        elif isinstance(record, ProducerIdsRecord):
            self._next_producer_id = ProducerId(record.next_producer_id)
        elif isinstance(record, ClearElrRecord):
            self._clear_elr(record)
        elif isinstance(record, ClientQuotaRecord):
            if self._quotas is None:
                self._quotas = dict(self._image.quotas)
            self._touched_quotas[replay_quota(self._quotas, record)] = None
        elif isinstance(record, AccessControlEntryRecord | RemoveAccessControlEntryRecord):
            if self._acls is None:
                self._acls = dict(self._image.acls)
            self._touched_acls[replay_acl(self._acls, record)] = None
        else:
            self._carry(record)

    def _topics(self) -> dict[Uuid, TopicImage]:
        if self._by_id is None:
            self._by_id = dict(self._image.topics_by_id)
        return self._by_id

    def _partitions_of(self, topic_id: Uuid) -> list[PartitionImage]:
        if topic_id not in self._partitions:
            self._partitions[topic_id] = list(self._topics()[topic_id].partitions)
            self._touched_topics[topic_id] = None
        return self._partitions[topic_id]

    def _partition(self, record: PartitionRecord) -> None:
        partitions = self._partitions_of(Uuid(record.topic_id))
        image = partition_of(record)
        if record.partition_id == len(partitions):
            partitions.append(image)
        else:
            partitions[record.partition_id] = image
        self._touched_partitions[Uuid(record.topic_id), record.partition_id] = None

    def _partition_changed(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions_of(Uuid(record.topic_id))
        partitions[record.partition_id] = merged(partitions[record.partition_id], record)
        self._touched_partitions[Uuid(record.topic_id), record.partition_id] = None

    def _topic_removed(self, topic_id: Uuid) -> None:
        topic = self._topics().pop(topic_id)
        self._partitions.pop(topic_id, None)
        self._touched_topics[topic_id] = None
        if (TOPIC_RESOURCE, topic.name) in (self._image.configs if self._configs is None else self._configs):
            del self._config_table()[TOPIC_RESOURCE, topic.name]
            self._touched_configs[TOPIC_RESOURCE, topic.name] = None

    def _clear_elr(self, record: ClearElrRecord) -> None:
        """Forget the eligible leader replicas of a topic, or of all topics for the empty name: one change of
        each partition that has some.
        """
        for topic_id, topic in list(self._topics().items()):
            if record.topic_name not in ("", topic.name):
                continue
            for index, partition in enumerate(self._partitions.get(topic_id, topic.partitions)):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self._partitions_of(topic_id)[index] = merged(
                        partition, PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                    )
                    self._touched_partitions[topic_id, index] = None

    def _carry(self, record: Message) -> None:
        found = _carried_key(record)
        if found is None:
            return
        if self._carried is None:
            self._carried = dict(self._image.carried)
        key, still_exists = found
        self._carried.pop(key, None)
        if still_exists:
            self._carried[key] = record

    def _config_table(self) -> dict[tuple[int, str], Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self._image.configs)
        return self._configs

    def _configured(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        texts = dict(self._config_table().get(resource, {}))
        if record.value is None:
            texts.pop(record.name, None)
        else:
            texts[record.name] = record.value
        if texts:
            self._config_table()[resource] = texts
        else:
            self._config_table().pop(resource, None)
        self._touched_configs[resource] = None
        if record.name == BROKER_STATE and record.resource_type == BROKER_RESOURCE:
            self._state_asked(record.resource_name, record.value)

    def _state_asked(self, node: str, state: str | None) -> None:
        if self._states is None:
            self._states = dict(self._image.broker_states)
        if node.isdecimal():
            self._states.pop(NodeId(int(node)), None)
            if state in _STATES:
                self._states[NodeId(int(node))] = BrokerState(state)

    def _broker_table(self) -> dict[NodeId, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self._image.brokers)
        return self._brokers

    def _registered(self, offset: Offset, record: RegisterBrokerRecord) -> None:
        node_id = NodeId(record.broker_id)
        self._broker_table()[node_id] = BrokerImage(
            node_id=node_id,
            epoch=record.broker_epoch,
            incarnation_id=Uuid(record.incarnation_id),
            endpoints=endpoints_of(record.end_points),
            rack=record.rack,
            is_fenced=record.fenced,
            is_in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(Uuid(one) for one in record.log_dirs),
            cordoned_directories=tuple(Uuid(one) for one in record.cordoned_log_dirs or ()),
            features=feature_ranges(record.features),
            registered_at=offset,
        )
        self._touched_brokers[node_id] = None

    def _registration_changed(self, record: BrokerRegistrationChangeRecord) -> None:
        node_id = NodeId(record.broker_id)
        broker = self._broker_table()[node_id]
        assert broker.epoch == record.broker_epoch, (
            f"broker {node_id} has epoch {broker.epoch}, not {record.broker_epoch}"
        )
        self._replace_broker(
            node_id,
            is_fenced=broker.is_fenced if record.fenced == 0 else record.fenced > 0,
            is_in_controlled_shutdown=broker.is_in_controlled_shutdown or record.in_controlled_shutdown == 1,
            directories=tuple(Uuid(one) for one in record.log_dirs) or broker.directories,
            cordoned_directories=broker.cordoned_directories
            if record.cordoned_log_dirs is None
            else tuple(Uuid(one) for one in record.cordoned_log_dirs),
        )

    def _replace_broker(self, node_id: NodeId, **changes: object) -> None:
        self._broker_table()[node_id] = msgspec.structs.replace(self._broker_table()[node_id], **changes)
        self._touched_brokers[node_id] = None

    def _controller_registered(self, record: RegisterControllerRecord) -> None:
        if self._controllers is None:
            self._controllers = dict(self._image.controllers)
        node_id = NodeId(record.controller_id)
        self._controllers[node_id] = ControllerImage(
            node_id,
            Uuid(record.incarnation_id),
            endpoints_of(record.end_points),
            feature_ranges(record.features),
        )

    def _feature_set(self, record: FeatureLevelRecord) -> None:
        if record.name == KRAFT_VERSION:
            return  # raft's own; Kafka 4.0 wrote the record by mistake, and later releases ignore it
        if self._features is None:
            self._features = dict(self._image.features)
        if record.feature_level == 0:
            self._features.pop(record.name, None)
        else:
            self._features[record.name] = record.feature_level
        self._touched_features[record.name] = None


def difference(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """The changes as if one batch of records had led from `before` to `after`: a snapshot has taken the place
    of the metadata log.
    """
    old, new = before.topics_by_id, after.topics_by_id
    return MetadataDelta(
        before=before,
        after=after,
        topics_created=tuple(topic for topic_id, topic in new.items() if topic_id not in old),
        topics_deleted=tuple(topic for topic_id, topic in old.items() if topic_id not in new),
        partitions_changed=tuple(_partitions_changed(before, new.values())),
        brokers_changed=_changed(before.brokers, after.brokers),
        configs_changed=_changed(before.configs, after.configs),
        features_changed=_changed(before.features, after.features),
        quotas_changed=_changed(before.quotas, after.quotas),
        acls_changed=_changed(before.acls, after.acls),
    )


def _partitions_changed(before: MetadataImage, topics: Iterable[TopicImage]) -> Iterator[PartitionChanged]:
    for topic in topics:
        known = before.topics_by_id.get(topic.topic_id)
        partitions = () if known is None else known.partitions
        for index, partition in enumerate(topic.partitions):
            old = partitions[index] if index < len(partitions) else None
            if old != partition:
                yield PartitionChanged(TopicPartition(topic.name, index), topic.topic_id, old, partition)


def _changed(before: Mapping[_Key, _Value], after: Mapping[_Key, _Value]) -> tuple[_Key, ...]:
    """The keys that are new, changed or gone."""
    kept = [key for key, value in after.items() if before.get(key) != value]
    return (*kept, *(key for key in before if key not in after))
