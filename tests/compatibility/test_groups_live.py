"""Groups as the world's clients have them: members come, leave and are killed; what one commits, the next
goes on from.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import sparklog
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.local_broker import embedded
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.group_members import WAYS, Member, until_shared

pytestmark = pytest.mark.compat

PARTITIONS = 6
CLASSIC_MS = {"group_min_session_timeout_ms": 1000}
CONSUMER_MS = {
    "group_consumer_min_session_timeout_ms": 1000,
    "group_consumer_session_timeout_ms": 1500,
    "group_consumer_min_heartbeat_interval_ms": 300,
    "group_consumer_heartbeat_interval_ms": 300,
}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """A broker that gives members up after a second and a half, so that a death need not be waited for."""
    with embedded(data_dir=tmp_path_factory.mktemp("quick") / "data", **CLASSIC_MS, **CONSUMER_MS) as broker:
        yield LiveBroker(broker.bootstrap_servers, broker.data_dir)


def write(broker: LiveBroker, topic: str, per_partition: int, *, partitions: int = PARTITIONS) -> None:
    """So many records to each partition, each with a value of its own."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for partition in range(partitions):
        for number in range(per_partition):
            producer.produce(topic, b"%d-%d" % (partition, number), partition=partition)
    assert producer.flush(30) == 0


def come_and_go(broker: LiveBroker, way: str, *, is_quick: bool, patience_s: float = 30.0) -> None:
    topic = broker.create("shared", partitions=PARTITIONS)
    write(broker, topic, 10)
    group = f"g-{topic}"
    with ExitStack() as stack:

        def member() -> Member:
            return stack.enter_context(Member(broker.bootstrap_servers, way, group, topic, is_quick=is_quick))

        first = member()
        until_shared([first], 6, patience_s=patience_s)
        first.until(lambda one: len(one.records) == 60 and not one.uncommitted)
        second = member()
        until_shared([first, second], 3, 3, patience_s=patience_s)
        kept = set(first.owned)
        third = member()
        until_shared([first, second, third], 2, 2, 2, patience_s=patience_s)
        if WAYS[way].is_cooperative:
            assert not first.gave_up & first.owned, "a partition that stays was taken away meanwhile"
            assert first.owned < kept
        second.leave()
        until_shared([first, third], 3, 3, patience_s=patience_s)
        third.kill()
        until_shared([first], 6, patience_s=patience_s)
        write(broker, topic, 1)
        first.until(lambda one: len(one.records) == 66 and not one.uncommitted, patience_s)
        assert second.records == third.records == []  # all was committed before they came


@pytest.mark.parametrize("way", WAYS)
def test_partitions_have_one_owner_each_while_members_come_leave_and_are_killed(
    quick: LiveBroker, way: str
) -> None:
    come_and_go(quick, way, is_quick=True)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
def test_the_same_at_default_settings_of_broker_and_client(live: LiveBroker, way: str) -> None:
    come_and_go(live, way, is_quick=False, patience_s=90.0)


@pytest.mark.parametrize("way", WAYS)
def test_the_next_member_goes_on_where_the_last_committed(live: LiveBroker, way: str) -> None:
    topic = live.create("resumed")
    group = f"g-{topic}"
    write(live, topic, 20, partitions=1)
    with Member(live.bootstrap_servers, way, group, topic, is_quick=False) as first:
        first.until(lambda one: len(one.records) == 20 and not one.uncommitted)
        first.leave()
    write(live, topic, 5, partitions=1)
    with Member(live.bootstrap_servers, way, group, topic, is_quick=False) as second:
        second.until(lambda one: len(one.records) == 5 and not one.uncommitted)
        assert [offset for _, offset, _ in second.records] == list(range(20, 25))


@pytest.mark.parametrize("way", [way for way in WAYS if WAYS[way].static])
def test_a_static_member_that_comes_back_disturbs_nobody(quick: LiveBroker, way: str) -> None:
    topic = quick.create("static", partitions=PARTITIONS)
    group = f"g-{topic}"
    patient = (
        {"session.timeout.ms": 30_000} if WAYS[way].library == "confluent" else {"session_timeout_ms": 30_000}
    )
    settings = {}
    if way == "confluent-consumer":  # there the broker sets it
        with sparklog.Admin(bootstrap_servers=quick.bootstrap_servers) as admin:
            admin.alter_configs(
                {ConfigResource("group", group): [ConfigChange("consumer.session.timeout.ms", "30000")]}
            )
    else:
        settings = patient
    with ExitStack() as stack:

        def member(instance: str) -> Member:
            return stack.enter_context(
                Member(quick.bootstrap_servers, way, group, topic, instance=instance, settings=settings)
            )

        one, other = member("one"), member("other")
        until_shared([one, other], 3, 3)
        kept = set(one.owned)
        other.gave_up.clear()
        if way == "confluent-consumer":
            # KIP-848 refuses a namesake until the other has said that it goes for a while: -2 by a static
            # member's close
            one.leave()
        else:
            one.kill()
        again = member("one")
        again.until(lambda member: member.owned == kept)
        write(quick, topic, 1)
        other.until(lambda member: len(member.records) == 3)
        assert other.gave_up == set()


def test_a_group_of_kip_848_reads_the_topics_that_match_its_pattern(quick: LiveBroker) -> None:
    first, second = quick.create("matching-a", partitions=2), quick.create("matching-b")
    quick.create("unmatching", partitions=2)
    write(quick, second, 3, partitions=1)
    with Member(quick.bootstrap_servers, "confluent-consumer", "pattern", pattern="^matching-.*") as member:
        member.until(lambda one: one.owned == {f"{first}:0", f"{first}:1", f"{second}:0"})
        member.until(lambda one: len(one.records) == 3)


@pytest.mark.long  # a pattern is gone through again ten seconds after the last time at the earliest
def test_a_group_of_kip_848_follows_new_topics_that_match_its_pattern(quick: LiveBroker) -> None:
    first = quick.create("matched-a", partitions=2)
    with Member(quick.bootstrap_servers, "confluent-consumer", "followed", pattern="^matched-.*") as member:
        member.until(lambda one: one.owned == {f"{first}:0", f"{first}:1"})
        second = quick.create("matched-b")
        member.until(lambda one: one.owned == {f"{first}:0", f"{first}:1", f"{second}:0"})
        write(quick, second, 3, partitions=1)
        member.until(lambda one: len(one.records) == 3)


def kind_of(broker: LiveBroker, group: str) -> str:
    """The kind of a group, as an admin client lists it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    return next(
        one.type.name
        for one in admin.list_consumer_groups().result(timeout=30).valid
        if one.group_id == group
    )


@pytest.mark.parametrize("way", ["confluent-classic", "confluent-cooperative"])
def test_a_live_group_moves_to_the_new_protocol_and_back_with_members_of_both(
    quick: LiveBroker, way: str
) -> None:
    topic = quick.create("migrated", partitions=PARTITIONS)
    group = f"g-{topic}"
    write(quick, topic, 2)
    with ExitStack() as stack:

        def member(way: str) -> Member:
            return stack.enter_context(Member(quick.bootstrap_servers, way, group, topic))

        old, older = member(way), member(way)
        until_shared([old, older], 3, 3)
        assert kind_of(quick, group) == "CLASSIC"
        new = member("confluent-consumer")
        until_shared([old, older, new], 2, 2, 2)
        assert kind_of(quick, group) == "CONSUMER"
        old.leave()
        until_shared([older, new], 3, 3)
        older.leave()
        until_shared([new], 6)
        back = member(way)
        until_shared([new, back], 3, 3)
        new.leave()
        until_shared([back], 6)
        assert kind_of(quick, group) == "CLASSIC"
        everyone = [old, older, new, back]
        every = {(f"{topic}:{partition}", offset) for partition in range(PARTITIONS) for offset in range(2)}

        def read() -> set[tuple[str, int]]:
            return {record[:2] for one in everyone for record in one.records}

        # A member that owned a partition for a moment need not have read it: the last one does.
        back.until(lambda one: not one.uncommitted and read() == every)
        back.leave()
