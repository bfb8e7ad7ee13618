"""Settings of groups and of subscriptions to client metrics, which need not exist."""

import pytest

from sparklog.errors import ErrorCode
from tests.broker.configuring import (
    GROUP,
    METRICS,
    SET,
    Answer,
    alter,
    describe,
    resource,
    set_to,
    synonyms_of,
    value_of,
)
from tests.broker.world import World

DEFAULT, OF_METRICS, OF_GROUP = 5, 7, 8
DONE: Answer = (ErrorCode.NONE, None)


def started(**given: str) -> World:
    world = World(seed=1, **{name.replace("_", "."): value for name, value in given.items()})
    world.node.start()
    world.settle()
    return world


def test_a_group_is_told_its_own_settings_over_those_of_the_broker(world: World) -> None:
    client = world.node.connect()
    assert (
        set_to(
            world,
            client,
            GROUP,
            "g",
            consumer_session_timeout_ms="50000",
            consumer_heartbeat_interval_ms="6000",
        )
        == DONE
    )
    rows = describe(world, client, GROUP, "g")
    assert synonyms_of(rows["consumer.session.timeout.ms"]) == [
        ("consumer.session.timeout.ms", "50000", OF_GROUP),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]
    assert synonyms_of(rows["share.auto.offset.reset"]) == [("share.auto.offset.reset", "latest", DEFAULT)]
    assert len(rows) == 17
    assert describe(world, client, GROUP, "unheard-of")["consumer.session.timeout.ms"].value == "45000"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"consumer_session_timeout": "1"},
            "Unknown group config name: consumer.session.timeout, did you mean consumer.session.timeout.ms?",
        ),
        (
            {"consumer_session_timeout_ms": "1"},
            "consumer.session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms (1 is less than 45000)",
        ),
        (
            {"consumer_heartbeat_interval_ms": "99000"},
            "consumer.heartbeat.interval.ms must be less than or equal to "
            "group.consumer.max.heartbeat.interval.ms "
            "(99000 is more than 15000)",
        ),
        (
            {"streams_num_standby_replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas "
            "(2)",
        ),
        (
            {"share_auto_offset_reset": "never"},
            "Invalid value never for configuration share.auto.offset.reset: "
            "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
        (
            {"share_isolation_level": "none"},
            "Invalid value none for configuration share.isolation.level: String must be one of: "
            "read_committed, read_uncommitted",
        ),
    ],
)
def test_a_setting_of_a_group_beyond_its_bounds_is_refused(
    world: World, values: dict[str, str], said: str
) -> None:
    assert set_to(world, world.node.connect(), GROUP, "g", **values) == (ErrorCode.INVALID_CONFIG, said)


def test_a_group_keeps_its_session_longer_than_its_heartbeats() -> None:
    world = started(
        group_consumer_min_session_timeout_ms="1000", group_consumer_max_heartbeat_interval_ms="50000"
    )
    answer = set_to(world, world.node.connect(), GROUP, "g", consumer_session_timeout_ms="4000")
    said = "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms (4000 is not greater than 5000)"  # noqa: E501
    assert answer == (ErrorCode.INVALID_CONFIG, said)


def test_share_groups_may_begin_at_a_duration_before_now(world: World) -> None:
    client = world.node.connect()
    for value in ("earliest", "latest", "by_duration:PT5M", "by_duration:P1DT2H"):
        assert set_to(world, client, GROUP, "s", share_auto_offset_reset=value) == DONE
    for value in ("by_duration:", "by_duration:P", "by_duration:-PT5M", "latest:", "none"):
        assert set_to(world, client, GROUP, "s", share_auto_offset_reset=value)[0] == ErrorCode.INVALID_CONFIG


def test_a_subscription_to_metrics_of_clients_is_kept_and_checked(world: World) -> None:
    client = world.node.connect()
    assert (
        set_to(world, client, METRICS, "m", metrics="org.apache.", interval_ms="1000", match="client_id=a.*")
        == DONE
    )
    rows = describe(world, client, METRICS, "m")
    assert {name: (row.value, row.config_source) for name, row in rows.items()} == {
        "interval.ms": ("1000", OF_METRICS),
        "match": ("client_id=a.*", OF_METRICS),
        "metrics": ("org.apache.", OF_METRICS),
    }
    for values, code in (
        ({"interval_ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"interval_ms": "x"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "who=a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
        ({"match": ",".join(f"client_id={n}" for n in range(65))}, ErrorCode.INVALID_CONFIG),
        ({"metrics": "a,a"}, ErrorCode.NONE),  # a repeated entry counts once, as in Kafka
        ({"metrics": "a,,b"}, ErrorCode.INVALID_CONFIG),
        ({"interval": "1000"}, ErrorCode.INVALID_REQUEST),
    ):
        assert set_to(world, client, METRICS, "m", **values)[0] == code, values
    assert set_to(world, client, METRICS, "")[1] == "Subscription name can't be empty"
    assert value_of(world, client, METRICS, "other", "interval.ms") == ("300000", DEFAULT)


def test_one_request_makes_the_broker_compile_so_many_patterns_and_no_more(world: World) -> None:
    patterns = ",".join(f"client_id=a{number}" for number in range(60))
    many = [resource(METRICS, f"m{number}", ("match", SET, patterns)) for number in range(20)]
    codes = [code for code, _ in alter(world, world.node.connect(), *many)]
    assert codes == [ErrorCode.NONE] * 16 + [ErrorCode.POLICY_VIOLATION] * 4
