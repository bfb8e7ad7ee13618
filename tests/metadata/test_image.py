"""The image: the result of replayed records, the tables shared between two images, and the delta."""

from random import Random

import pytest

from sparklog.model import Offset, TopicPartition
from sparklog.wire.schema import Message
from sparklog_server.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataDelta, MetadataImage
from sparklog_server.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def created(name: str, partitions: int = 1) -> list[Message]:
    return [
        TopicRecord(name=name, topic_id=topic_id(name)),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id(name),
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in range(partitions)
        ),
    ]


def applied(image: MetadataImage, *records: Message) -> tuple[MetadataImage, MetadataDelta]:
    return image.apply([(Offset(image.offset + 1 + index), record) for index, record in enumerate(records)])


def test_a_named_leader_even_the_same_bumps_its_epoch_and_a_change_without_one_does_not() -> None:
    image, _ = applied(MetadataImage(), *created("t"))
    image, _ = applied(image, PartitionChangeRecord(partition_id=0, topic_id=topic_id("t"), isr=[1]))
    partition = image.partition(TopicPartition("t", 0))
    assert partition is not None
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)
    image, _ = applied(image, PartitionChangeRecord(partition_id=0, topic_id=topic_id("t"), leader=1))
    partition = image.partition(TopicPartition("t", 0))
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 2)


def test_an_image_shares_what_the_records_did_not_touch() -> None:
    before, _ = applied(
        MetadataImage(), *created("a", 2), *created("b"), FeatureLevelRecord(name="f", feature_level=1)
    )
    after, _ = applied(before, PartitionChangeRecord(partition_id=1, topic_id=topic_id("a"), leader=-1))
    assert after.topics_by_name["b"] is before.topics_by_name["b"]
    assert after.topics_by_name["a"].partitions[0] is before.topics_by_name["a"].partitions[0]
    assert after.features is before.features
    assert after.brokers is before.brokers
    assert before.topics_by_name["a"].partitions[1].leader == 1
    configured, _ = applied(
        after, ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name="k", value="v")
    )
    assert configured.topics_by_name is after.topics_by_name


def test_the_delta_names_each_partition_once_as_it_was_and_as_it_is() -> None:
    before, _ = applied(MetadataImage(), *created("t", 2))
    changes = [
        PartitionChangeRecord(partition_id=1, topic_id=topic_id("t"), leader=leader) for leader in (-1, 1)
    ]
    after, delta = applied(before, *changes)
    assert [str(one.topic_partition) for one in delta.partitions_changed] == ["t-1"]
    assert delta.partitions_changed[0].before is before.topics_by_name["t"].partitions[1]
    assert delta.partitions_changed[0].after.leader_epoch == 2
    assert (delta.before, delta.after) == (before, after)


def test_a_topic_that_comes_and_goes_between_two_images_appears_in_no_delta() -> None:
    _, delta = applied(MetadataImage(), *created("t"), RemoveTopicRecord(topic_id=topic_id("t")))
    assert (delta.topics_created, delta.topics_deleted, delta.partitions_changed) == ((), (), ())


def test_a_topic_deleted_and_created_again_is_another_topic() -> None:
    before, _ = applied(MetadataImage(), *created("t"))
    again = [
        TopicRecord(name="t", topic_id=topic_id("other")),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id("other"),
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        ),
    ]
    after, delta = applied(before, RemoveTopicRecord(topic_id=topic_id("t")), *again)
    assert after.topics_by_name["t"].topic_id == topic_id("other")
    assert [topic.topic_id for topic in delta.topics_deleted] == [topic_id("t")]
    assert [topic.topic_id for topic in delta.topics_created] == [topic_id("other")]
    assert after.partition_count == 1


def test_the_settings_of_a_topic_go_with_it() -> None:
    image, _ = applied(
        MetadataImage(),
        *created("t"),
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="k", value="v"),
    )
    assert image.topic_config("t") == {"k": "v"}
    image, delta = applied(image, RemoveTopicRecord(topic_id=topic_id("t")))
    assert image.topic_config("t") == {}
    assert delta.configs_changed == ((TOPIC_RESOURCE, "t"),)


def test_a_setting_is_removed_by_a_null_value() -> None:
    image, _ = applied(
        MetadataImage(), ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name="k", value="v")
    )
    image, _ = applied(
        image, ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name="k", value=None)
    )
    assert image.configs == {}


def test_a_broker_is_found_by_its_listeners_until_it_is_unregistered() -> None:
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="here", port=9092)
    image, _ = applied(
        MetadataImage(),
        RegisterBrokerRecord(broker_id=1, broker_epoch=0, end_points=[endpoint], log_dirs=[b"D" * 16]),
    )
    broker = image.brokers[1]
    assert broker.endpoint("PLAINTEXT").host == "here"
    assert broker.endpoint("SSL") is None
    assert broker.is_fenced
    image, _ = applied(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, fenced=-1))
    assert image.brokers[1].is_active
    assert image.brokers[1].directories == (b"D" * 16,)
    image, delta = applied(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=0))
    assert image.brokers == {}
    assert delta.brokers_changed == (1,)


def test_records_of_a_transaction_count_together_at_its_end() -> None:
    open_, _ = applied(MetadataImage(), BeginTransactionRecord(), *created("t"))
    assert open_.topics_by_name == {}
    ended, delta = applied(open_, ProducerIdsRecord(next_producer_id=1000), EndTransactionRecord())
    assert list(ended.topics_by_name) == ["t"]
    assert ended.next_producer_id == 1000
    assert len(delta.topics_created) == 1
    aborted, _ = applied(open_, AbortTransactionRecord())
    assert aborted.topics_by_name == {}
    assert aborted.open_transaction is None


@pytest.mark.parametrize("seed", range(20))
def test_records_applied_one_by_one_add_up_to_the_same_as_all_at_once(seed: int) -> None:
    random = Random(seed)
    records: list[Message] = []
    alive: dict[str, int] = {}
    for number in range(60):
        if not alive or random.random() < 0.4:
            name = f"t{number}"
            alive[name] = 1 + random.randrange(3)
            records += created(name, alive[name])
        elif random.random() < 0.5:
            name = random.choice(sorted(alive))
            records.append(
                PartitionChangeRecord(
                    partition_id=random.randrange(alive[name]),
                    topic_id=topic_id(name),
                    leader=random.choice([-1, 1]),
                )
            )
        elif random.random() < 0.5:
            name = random.choice(sorted(alive))
            records.append(
                ConfigRecord(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=name,
                    name="k",
                    value=random.choice([None, "1", "2"]),
                )
            )
        else:
            name = random.choice(sorted(alive))
            del alive[name]
            records.append(RemoveTopicRecord(topic_id=topic_id(name)))
    whole, _ = applied(MetadataImage(), *records)
    step = MetadataImage()
    for record in records:
        step, _ = applied(step, record)
    assert step == whole
    assert whole.partition_count == sum(alive.values())
    assert set(whole.topics_by_name) == set(alive)


def test_a_level_of_kraft_version_is_no_record_of_the_metadata() -> None:
    image, _ = MetadataImage().apply([(Offset(0), FeatureLevelRecord(name="kraft.version", feature_level=1))])
    assert image.features == {}
