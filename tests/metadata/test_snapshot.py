"""An image and the records that recreate it."""

from random import Random

import pytest

from sparklog.model import NodeId, Offset, TopicPartition
from sparklog.wire.schema import Message
from sparklog_server.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from sparklog_server.metadata.records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaEntity,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    decode_value,
    encode_value,
)
from sparklog_server.metadata.snapshot import records_of_image

DIRECTORY = b"D" * 16


def image_of(*records: Message) -> MetadataImage:
    return MetadataImage().apply([(Offset(index), record) for index, record in enumerate(records)])[0]


def made_again(image: MetadataImage) -> MetadataImage:
    """The image that the written records of an image make."""
    written = [encode_value(record) for record in records_of_image(image)]
    return MetadataImage(offset=image.offset).apply(
        [(image.offset, decode_value(value)) for value in written]
    )[0]


def broker(node: int, *, fenced: bool = True) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node,
        incarnation_id=bytes([node]) * 16,
        broker_epoch=7 + node,
        end_points=[BrokerEndpoint("PLAINTEXT", "localhost", 9092, 0)],
        features=[BrokerFeature("metadata.version", 1, 30)],
        rack="r" if node == 1 else None,
        fenced=fenced,
        log_dirs=[DIRECTORY],
    )


def partition(topic: bytes, index: int, random: Random) -> PartitionRecord:
    replicas = random.sample(range(1, 6), random.randint(1, 3))
    return PartitionRecord(
        partition_id=index,
        topic_id=topic,
        replicas=replicas,
        isr=replicas[: random.randint(1, len(replicas))],
        leader=random.choice((-1, replicas[0])),
        leader_epoch=random.randrange(9),
        partition_epoch=random.randrange(9),
        leader_recovery_state=random.randrange(2),
        directories=[DIRECTORY] * len(replicas),
        eligible_leader_replicas=random.choice((None, [9])),
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_records_of_an_image_make_the_same_image(seed: int) -> None:
    random = Random(seed)
    records: list[Message] = [FeatureLevelRecord(name="group.version", feature_level=1)]
    records += [FeatureLevelRecord(name="metadata.version", feature_level=30)]
    records += [broker(node, fenced=node > 2) for node in range(1, 4)]
    records += [
        BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=8, in_controlled_shutdown=1, cordoned_log_dirs=[DIRECTORY]
        )
    ]
    for number in range(random.randint(1, 6)):
        topic = bytes([number]) * 16
        records.append(TopicRecord(name=f"t{number}", topic_id=topic))
        records += [partition(topic, index, random) for index in range(random.randint(1, 4))]
        records.append(
            ConfigRecord(
                resource_type=TOPIC_RESOURCE, resource_name=f"t{number}", name="retention.ms", value="1"
            )
        )
        if random.random() < 0.5:
            records.append(PartitionChangeRecord(partition_id=0, topic_id=topic, leader=-1))
        if random.random() < 0.2:
            records.append(RemoveTopicRecord(topic_id=topic))
    records.append(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name="k", value=""))
    records.append(ProducerIdsRecord(broker_id=1, broker_epoch=8, next_producer_id=3000))
    records.append(
        RegisterControllerRecord(
            controller_id=1,
            incarnation_id=bytes([1]) * 16,
            end_points=[BrokerEndpoint("CONTROLLER", "localhost", 9093, 0)],
            features=[BrokerFeature("metadata.version", 1, 30)],
        )
    )
    image = image_of(*records, NoOpRecord())
    again = made_again(image)
    brokers = {
        node: (one.epoch, one.is_fenced, one.is_in_controlled_shutdown, one.endpoints)
        for node, one in image.brokers.items()
    }
    assert {
        node: (one.epoch, one.is_fenced, one.is_in_controlled_shutdown, one.endpoints)
        for node, one in again.brokers.items()
    } == brokers
    assert again.brokers[NodeId(1)].cordoned_directories == (DIRECTORY,)
    assert {one.registered_at for one in again.brokers.values()} == {image.offset}
    assert (again.topics_by_name, again.topics_by_id) == (image.topics_by_name, image.topics_by_id)
    assert list(again.topics_by_id) == list(image.topics_by_id)
    assert (again.configs, again.features, again.next_producer_id) == (
        image.configs,
        image.features,
        image.next_producer_id,
    )
    assert again.controllers[NodeId(1)].endpoints[0].port == 9093
    assert (again.partition_count, again.controllers, again.carried, again.offset) == (
        image.partition_count,
        image.controllers,
        image.carried,
        image.offset,
    )


def test_metadata_version_comes_first_for_the_other_records_are_read_by_it() -> None:
    image = image_of(
        FeatureLevelRecord(name="a", feature_level=1),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
    )
    assert [record.name for record in records_of_image(image) if isinstance(record, FeatureLevelRecord)] == [
        "metadata.version",
        "a",
    ]


def test_what_means_nothing_here_yet_is_carried_until_it_is_removed() -> None:
    rule, other = AccessControlEntryRecord(id=b"1" * 16), AccessControlEntryRecord(id=b"2" * 16)
    login = UserScramCredentialRecord(name="u", mechanism=1)
    image = image_of(rule, other, login)
    assert list(records_of_image(image)) == [rule, other, login]
    removals: list[Message] = [
        RemoveAccessControlEntryRecord(id=b"1" * 16),
        RemoveUserScramCredentialRecord(name="u", mechanism=1),
    ]
    after, _ = image.apply([(Offset(9), record) for record in removals])
    assert list(records_of_image(after)) == [other]


def test_quotas_stand_before_the_producer_ids_and_an_entity_without_any_is_gone() -> None:
    user, pair = (
        [ClientQuotaEntity("user", None)],
        [ClientQuotaEntity("client-id", "c"), ClientQuotaEntity("user", "u")],
    )
    first = ClientQuotaRecord(entity=user, key="producer_byte_rate", value=1.0)
    second = ClientQuotaRecord(entity=pair, key="request_percentage", value=2.5)
    ids = ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=1000)
    image = image_of(ids, first, second)
    assert list(records_of_image(image)) == [first, second, ids]
    after, delta = image.apply(
        [(Offset(9), ClientQuotaRecord(entity=user, key="producer_byte_rate", remove=True))]
    )
    assert after.quotas == {(("client-id", "c"), ("user", "u")): {"request_percentage": 2.5}}
    assert delta.quotas_changed == ((("user", None),),)
    assert image.quotas[(("user", None),)] == {"producer_byte_rate": 1.0}


def test_eligible_leaders_are_cleared_for_one_topic_or_for_all() -> None:
    records: list[Message] = []
    for name in ("a", "b"):
        topic = name.encode() * 16
        records += [TopicRecord(name=name, topic_id=topic)]
        records += [
            PartitionRecord(
                partition_id=0, topic_id=topic, replicas=[1], isr=[], leader=-1, eligible_leader_replicas=[1]
            )
        ]
    image, delta = image_of(*records).apply([(Offset(9), ClearElrRecord(topic_name="a"))])
    eligible = {
        name: topic.partitions[0].eligible_leader_replicas for name, topic in image.topics_by_name.items()
    }
    assert eligible == {"a": (), "b": (1,)}
    assert [one.topic_partition for one in delta.partitions_changed] == [TopicPartition("a", 0)]
    assert image.topics_by_name["a"].partitions[0].partition_epoch == 0
    image, _ = image.apply([(Offset(10), ClearElrRecord())])
    assert image.topics_by_name["b"].partitions[0].eligible_leader_replicas == ()
