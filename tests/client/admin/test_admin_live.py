"""Admin against a broker of its own: the broker answers its requests."""

from collections.abc import Iterator

import pytest

import sparklog
from sparklog.client.admin.admin import LATEST, Admin, ItemsFailed, NewPartitions, NewTopic
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.client.admin.groups import GroupOffset
from sparklog.client.admin.quotas import QuotaEntity, QuotaFilter
from sparklog.client.clock import now_us
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.failures import UnknownTopic
from sparklog.client.offsets import list_offsets
from sparklog.client.producer.producer import Producer
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.network import Network
from sparklog.errors import BrokerError, ErrorCode
from sparklog.local_broker import EmbeddedBroker
from sparklog.model import Micros, TopicPartition


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded() as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers, default_api_timeout_ms=10_000) as admin:
        yield admin


def errors_of(failed: ItemsFailed) -> dict[object, ErrorCode]:
    return {item: error.code for item, error in failed.errors.items()}


def test_topics_grow_and_their_partitions_are_told(admin: Admin) -> None:
    admin.create_topics([NewTopic("grows", 1), NewTopic("placed", assignment=[[1], [1]])])
    admin.create_partitions({"grows": 2, "placed": NewPartitions(3, [[1]])})
    described = admin.describe_topics(["placed", "grows"])
    assert [(topic.name, len(topic.partitions)) for topic in described.values()] == [
        ("placed", 3),
        ("grows", 2),
    ]
    assert not any(
        partition.is_under_replicated for topic in described.values() for partition in topic.partitions
    )


def test_offsets_of_partitions_that_another_client_has_added_are_listed(
    admin: Admin, broker: EmbeddedBroker
) -> None:
    admin.create_topics({"grown": 1})
    assert list(admin.list_offsets({TopicPartition("grown", 0): LATEST})) == [("grown", 0)]
    with Admin(bootstrap_servers=broker.bootstrap_servers) as other:
        other.create_partitions({"grown": 2})
    assert admin.list_offsets({TopicPartition("grown", 1): LATEST})[TopicPartition("grown", 1)].offset == 0
    with pytest.raises(UnknownTopic, match="no partition 2"):
        admin.list_offsets({TopicPartition("grown", 2): LATEST})


def test_offsets_of_many_topics_need_few_requests_for_metadata(broker: EmbeddedBroker, admin: Admin) -> None:
    names = [f"many-{number}" for number in range(50)]
    admin.create_topics(dict.fromkeys(names, 1))
    network = Network(ClientSettings(bootstrap_servers=(broker.bootstrap_servers,)))
    try:
        asked = {TopicPartition(name, 0): LATEST for name in names}
        deadline = Micros(now_us() + 10_000_000)
        found = list_offsets(network, asked, isolation_level="read_uncommitted", deadline=deadline)
        assert len(found) == len(names)
        assert network.cluster.answers < len(names) // 2
    finally:
        network.close()


def test_refusals_of_topics_are_by_name(admin: Admin) -> None:
    admin.create_topics({"twice": 1})
    with pytest.raises(ItemsFailed) as failed:
        admin.create_topics(
            [
                NewTopic("twice", 1),
                NewTopic("once", 1),
                NewTopic("bad name", 1),
                NewTopic("far", assignment=[[7]]),
            ]
        )
    assert errors_of(failed.value) == {
        "twice": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "far": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
    assert list(failed.value.results) == ["once"]
    with pytest.raises(ItemsFailed) as failed:
        admin.delete_topics(["once", "never"])
    assert errors_of(failed.value) == {"never": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    with pytest.raises(UnknownTopic, match="'once'"):
        admin.describe_topics(["twice", "once"])


def test_settings_change_and_say_where_they_come_from(admin: Admin) -> None:
    admin.create_topics({"set": 1})
    topic = ConfigResource("topic", "set")
    admin.alter_configs(
        {
            topic: [
                ConfigChange("segment.bytes", "2000000"),
                ConfigChange("cleanup.policy", "compact", "append"),
            ]
        }
    )
    entries = admin.describe_resources([topic])[topic]
    assert (entries["segment.bytes"].value, entries["segment.bytes"].default) == ("2000000", "1073741824")
    assert (entries["cleanup.policy"].value, entries["cleanup.policy"].source) == (
        "delete,compact",
        "DYNAMIC_TOPIC_CONFIG",
    )
    admin.alter_configs({topic: [ConfigChange("segment.bytes", None, "delete")]}, validate_only=True)
    assert admin.describe_configs(["set"])["set"]["segment.bytes"].value == "2000000"
    assert topic in admin.list_config_resources(["topic"])
    with pytest.raises(ItemsFailed) as failed:
        admin.alter_configs({topic: [ConfigChange("nonsense", "1")], ConfigResource("group", "g"): []})
    assert errors_of(failed.value) == {topic: ErrorCode.INVALID_CONFIG}


def test_settings_can_be_asked_for_by_name(admin: Admin) -> None:
    admin.create_topics([NewTopic("named-settings", 1, configs={"retention.ms": "7000"})])
    topic = ConfigResource("topic", "named-settings")
    entries = admin.describe_resources([topic], ["retention.ms", "there.is.none"])[topic]
    assert [(one.name, one.value, one.documentation) for one in entries.values()] == [
        ("retention.ms", "7000", None)
    ]


def test_a_group_is_committed_for_described_and_deleted(admin: Admin) -> None:
    admin.create_topics({"read": 2})
    first, second = TopicPartition("read", 0), TopicPartition("read", 1)
    admin.alter_group_offsets("reader", {first: 0, second: GroupOffset(0, metadata="note")})  # type: ignore[arg-type]
    assert admin.list_group_offsets({"reader": [second], "nobody": None}) == {
        "reader": {second: GroupOffset(0, metadata="note")},  # type: ignore[arg-type]
        "nobody": {},
    }
    with pytest.raises(ItemsFailed) as failed:
        admin.alter_group_offsets("reader", {first: 0, TopicPartition("read", 9): 0})
    assert errors_of(failed.value) == {TopicPartition("read", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    admin.delete_group_offsets("reader", [first])
    assert list(admin.list_group_offsets(["reader"])["reader"]) == [second]
    assert admin.describe_groups(["reader"])["reader"].state == "Empty"
    with pytest.raises(ItemsFailed) as failed:
        admin.delete_groups(["reader", "nobody"])
    assert (errors_of(failed.value), list(failed.value.results)) == (
        {"nobody": ErrorCode.GROUP_ID_NOT_FOUND},
        ["reader"],
    )


def test_a_static_member_is_removed_by_its_instance_id(admin: Admin, broker: EmbeddedBroker) -> None:
    admin.create_topics({"joined": 1})
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="static", group_instance_id="i-1"
    ) as consumer:
        consumer.subscribe(["joined"])
        while not consumer.assignment():
            consumer.poll(50)
        (member,) = admin.describe_groups(["static"])["static"].members
        assert (member.instance_id, member.assignment) == ("i-1", (TopicPartition("joined", 0),))
        with pytest.raises(ItemsFailed) as failed:
            admin.remove_group_members("static", ["nobody"], instance_ids=["i-1"])
        assert errors_of(failed.value) == {"nobody": ErrorCode.UNKNOWN_MEMBER_ID}
        assert admin.describe_groups(["static"])["static"].members == ()


def test_records_are_deleted_and_refusals_are_by_partition(admin: Admin, broker: EmbeddedBroker) -> None:
    admin.create_topics({"old": 2})
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(4):
            producer.send("old", b"x", partition=number % 2)
    first, second = TopicPartition("old", 0), TopicPartition("old", 1)
    assert {at: told.offset for at, told in admin.list_offsets({first: LATEST, second: LATEST}).items()} == {
        first: 2,
        second: 2,
    }
    with pytest.raises(ItemsFailed) as failed:
        admin.delete_records({first: 1, second: 9})
    assert (errors_of(failed.value), failed.value.results) == (
        {second: ErrorCode.OFFSET_OUT_OF_RANGE},
        {first: 1},
    )
    sizes = [
        directory.replicas[first].size_bytes
        for directory in admin.describe_log_dirs(partitions=[first])[
            admin.describe_cluster().nodes[0].node_id
        ]
    ]
    assert sizes[0] > 0
    assert [len(producers) for producers in admin.describe_producers([first, second]).values()] == [1, 1]


def test_quotas_are_found_by_filters(admin: Admin) -> None:
    both, user, everybody = (
        QuotaEntity.of(user="q", client_id="c"),
        QuotaEntity.of(user="q"),
        QuotaEntity.of(user=None),
    )
    admin.alter_client_quotas({one: {"producer_byte_rate": 1e12} for one in (both, user, everybody)})
    assert list(admin.describe_client_quotas([QuotaFilter("user", "exact", "q")])) == [both, user]
    assert list(admin.describe_client_quotas([QuotaFilter("user", "exact", "q")], is_strict=True)) == [user]
    assert list(admin.describe_client_quotas([QuotaFilter("user", "default")])) == [everybody]
    admin.alter_client_quotas({one: {"producer_byte_rate": None} for one in (both, user, everybody)})
    assert admin.describe_client_quotas() == {}
    with pytest.raises(ItemsFailed) as failed:
        admin.alter_client_quotas({user: {"nonsense": 1.0}})
    assert list(failed.value.errors) == [user]


def test_a_cluster_of_one_answers_for_elections_moves_and_features(admin: Admin) -> None:
    admin.create_topics({"led": 1})
    partition = TopicPartition("led", 0)
    assert admin.elect_leaders([partition]) == {partition: False}
    assert admin.list_reassignments() == {}
    with pytest.raises(ItemsFailed) as failed:
        admin.alter_reassignments({partition: None, TopicPartition("nowhere", 0): [1]})
    assert errors_of(failed.value) == {
        partition: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        TopicPartition("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    quorum = admin.describe_quorum()
    assert (quorum.leader, [voter.node_id for voter in quorum.voters]) == (1, [1])
    level = admin.describe_features()["metadata.version"]
    assert level.min_level <= level.finalized_level <= level.max_level
    with pytest.raises(BrokerError):
        admin.update_features({"nonsense": 1})
    with pytest.raises(BrokerError) as refused:
        admin.unregister_broker(77)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_member_creates_the_topics_it_names_only_if_it_may(
    broker: EmbeddedBroker, admin: Admin, protocol: str, *, is_allowed: bool
) -> None:
    topic = f"named-{protocol}-{is_allowed}"
    servers = broker.bootstrap_servers
    with Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        group_protocol=protocol,
        allow_auto_create_topics=is_allowed,
    ) as consumer:
        consumer.subscribe([topic])
        for _ in range(100 if is_allowed else 3):
            consumer.poll(100)
            if topic in admin.list_topics():
                break
        assert (topic in admin.list_topics()) == is_allowed


def test_who_only_asks_does_not_make_a_deleted_topic_anew(broker: EmbeddedBroker, admin: Admin) -> None:
    admin.create_topics({"deleted": 1})
    with Admin(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as asking:
        asking.list_offsets({TopicPartition("deleted", 0): LATEST})
        admin.delete_topics(["deleted"])
        with pytest.raises(UnknownTopic):
            asking.list_offsets({TopicPartition("deleted", 0): LATEST})
        for _ in range(
            20
        ):  # each of them looks once more at the topics that were asked for, where that is due
            assert "deleted" not in asking.list_topics()
    assert "deleted" not in admin.list_topics()
