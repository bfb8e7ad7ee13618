"""Settings are changed while the broker runs: accepted and refused values, errors, and durability."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from sparklog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from sparklog_server.broker.access.authorization import Operation, Resource
from tests.broker.configuring import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    Answer,
    alter,
    describe,
    resource,
    set_to,
    synonyms_of,
    value_of,
)
from tests.broker.world import World

OF_TOPIC, OF_BROKER, OF_CLUSTER, OF_FILE, DEFAULT, OF_METRICS, OF_GROUP = 1, 2, 3, 4, 5, 7, 8
DONE: Answer = (ErrorCode.NONE, None)


def started(**given: str) -> World:
    world = World(seed=1, **{name.replace("_", "."): value for name, value in given.items()})
    world.node.start()
    world.settle()
    return world


# -- topics


def test_a_key_of_a_topic_is_set_told_and_taken_back(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    assert set_to(world, client, TOPIC, "t", retention_ms="1000", max_message_bytes="5000") == DONE
    row = describe(world, client, TOPIC, "t")["max.message.bytes"]
    assert (row.value, row.config_source, row.read_only, row.is_sensitive) == ("5000", OF_TOPIC, False, False)
    assert synonyms_of(row) == [
        ("max.message.bytes", "5000", OF_TOPIC),
        ("message.max.bytes", "1048588", DEFAULT),
    ]
    assert alter(world, client, resource(TOPIC, "t", ("retention.ms", DELETE, None))) == [DONE]
    assert value_of(world, client, TOPIC, "t", "retention.ms") == ("604800000", DEFAULT)
    assert value_of(world, client, TOPIC, "t", "max.message.bytes") == ("5000", OF_TOPIC)


def test_entries_are_appended_to_a_list_and_subtracted_from_it_beginning_with_the_default(
    world: World,
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    for operation, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
    ):
        assert alter(world, client, resource(TOPIC, "t", ("cleanup.policy", operation, value))) == [DONE]
        assert value_of(world, client, TOPIC, "t", "cleanup.policy") == (expected, OF_TOPIC)


def test_a_stored_list_that_repeats_an_entry_counts_it_once(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    assert set_to(world, client, TOPIC, "t", cleanup_policy="compact,compact") == DONE
    assert set_to(world, client, BROKER, "", log_cleanup_policy="compact,compact") == DONE
    world.create(client, "u")
    world.node.stop()
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert value_of(world, client, BROKER, "", "log.cleanup.policy") == ("compact,compact", OF_CLUSTER)
    assert value_of(world, client, TOPIC, "t", "cleanup.policy") == ("compact", OF_TOPIC)
    assert value_of(world, client, TOPIC, "u", "cleanup.policy") == ("compact", OF_CLUSTER)
    assert value_of(world, client, BROKER, "1", "log.cleanup.policy") == ("compact", OF_CLUSTER)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (
            ("cleanup.policy", SET, "compact,"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value compact, for configuration cleanup.policy: values must not be empty",
        ),
        (
            ("retention.m", SET, "1"),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: retention.m, did you mean retention.ms?",
        ),
        (
            ("retention.ms", SET, "soon"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        (
            ("retention.ms", SET, None),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            ("retention.ms", APPEND, "1"),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            ("nonsense", SUBTRACT, "1"),
            ErrorCode.INVALID_CONFIG,
            "Can't SUBTRACT to key nonsense because its type is not LIST.",
        ),
        (
            ("retention.ms", 9, "1"),
            ErrorCode.INVALID_REQUEST,
            "Unknown operations type 9: it is one of 0 (SET), 1 (DELETE), 2 (APPEND), 3 (SUBTRACT)",
        ),
        (
            ("leader.replication.throttled.replicas", SET, "0:1,all"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value 0:1,all for configuration leader.replication.throttled.replicas: "
            "it is the literal '*', or a list of partition:broker, both by their numbers",
        ),
        (("x" * 1000, SET, "1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: " + "x" * 1000),
        (
            ("min.compaction.lag.ms", SET, "7"),
            ErrorCode.INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms (7) > max.compaction.lag.ms (5)",
        ),
    ],
)
def test_a_change_of_a_topic_that_makes_no_sense_is_refused(
    world: World, change: tuple[str, int, str | None], code: ErrorCode, said: str
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    assert set_to(world, client, TOPIC, "t", max_compaction_lag_ms="5") == DONE
    assert alter(world, client, resource(TOPIC, "t", ("segment.ms", SET, "8"), change)) == [(code, said)]
    assert value_of(world, client, TOPIC, "t", "segment.ms") == ("604800000", DEFAULT)


def test_a_value_does_not_grow_beyond_what_a_record_holds(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    key = "leader.replication.throttled.replicas"
    assert alter(
        world, client, resource(TOPIC, "t", (key, SET, ",".join(f"{number}:1" for number in range(4000))))
    ) == [DONE]
    said = "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."
    more = ",".join(f"{number}:2" for number in range(4000))
    assert alter(world, client, resource(TOPIC, "t", (key, APPEND, more))) == [
        (ErrorCode.INVALID_CONFIG, said)
    ]


def test_each_resource_is_answered_by_itself(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    answers = alter(
        world,
        client,
        resource(TOPIC, "missing", ("retention.ms", SET, "1")),
        resource(TOPIC, "t", ("retention.ms", SET, "7")),
        resource(TOPIC, "twice", ("retention.ms", SET, "1")),
        resource(TOPIC, "twice", ("retention.ms", SET, "1")),
        resource(TOPIC, "", ("retention.ms", SET, "1")),
        resource(TOPIC, "no/good", ("retention.ms", SET, "1")),
        resource(77, "x", ("retention.ms", SET, "1")),
        resource(TOPIC, "u", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    )
    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert answers[:5] == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'missing' does not exist."),
        DONE,
        twice,
        twice,
        (ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
    ]
    assert [code for code, _ in answers[5:]] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [said for _, said in answers[6:]] == [
        "Unknown resource type 77",
        "Error due to duplicate config keys",
    ]
    assert value_of(world, client, TOPIC, "t", "retention.ms") == ("7", OF_TOPIC)


def test_a_change_that_is_only_validated_is_not_made(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    good, bad = (
        resource(TOPIC, "t", ("retention.ms", SET, "7")),
        resource(TOPIC, "u", ("retention.ms", SET, "7")),
    )
    answers = alter(world, client, good, bad, validate_only=True)
    assert [code for code, _ in answers] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert value_of(world, client, TOPIC, "t", "retention.ms") == ("604800000", DEFAULT)


def test_the_older_call_replaces_all_that_was_set(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    set_to(world, client, TOPIC, "t", retention_ms="1000", segment_ms="2000")
    for version in (0, 1, 2):
        request = AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    TOPIC,
                    "t",
                    [AlterableConfig("segment.ms", str(3000 + version)), AlterableConfig("flush.ms", "5")],
                ),
                AlterConfigsResource(LOGGER, "1", [AlterableConfig("root", "INFO")]),
                AlterConfigsResource(TOPIC, "u", [AlterableConfig("flush.ms", None)]),
            ]
        )
        answer = world.ask(client, request, version, AlterConfigsResponse)
        assert isinstance(answer, AlterConfigsResponse)
        assert [(one.error_code, one.error_message) for one in answer.responses] == [
            DONE,
            (ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
            (ErrorCode.INVALID_REQUEST, "Null value not supported for : flush.ms"),
        ]
        own = {
            name: row.value
            for name, row in describe(world, client, TOPIC, "t").items()
            if row.config_source == OF_TOPIC
        }
        assert own == {"flush.ms": "5", "segment.ms": str(3000 + version)}


def test_a_topic_that_is_deleted_leaves_no_settings_to_the_next_of_its_name(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    set_to(world, client, TOPIC, "t", retention_ms="1000")
    world.ask(client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5, DeleteTopicsResponse)
    world.create(client, "t")
    assert value_of(world, client, TOPIC, "t", "retention.ms") == ("604800000", DEFAULT)


# -- brokers


def test_defaults_of_topics_are_set_for_a_broker_over_the_cluster_over_the_file(world: World) -> None:
    world = started(log_segment_bytes="2097152")
    client = world.node.connect()
    world.create(client, "t")
    assert value_of(world, client, TOPIC, "t", "segment.bytes") == ("2097152", OF_FILE)
    assert set_to(world, client, BROKER, "", log_segment_bytes="3145728") == DONE
    assert value_of(world, client, TOPIC, "t", "segment.bytes") == ("3145728", OF_CLUSTER)
    assert set_to(world, client, BROKER, "1", log_segment_bytes="4194304") == DONE
    expected = [
        ("log.segment.bytes", "4194304", OF_BROKER),
        ("log.segment.bytes", "3145728", OF_CLUSTER),
        ("log.segment.bytes", "2097152", OF_FILE),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]
    assert synonyms_of(describe(world, client, TOPIC, "t")["segment.bytes"]) == expected
    row = describe(world, client, BROKER, "1")["log.segment.bytes"]
    assert (row.value, synonyms_of(row), row.read_only) == ("4194304", expected, False)
    assert list(describe(world, client, BROKER, "")) == ["log.segment.bytes", "min.insync.replicas"]
    assert value_of(world, client, BROKER, "", "log.segment.bytes") == ("3145728", OF_CLUSTER)
    assert alter(world, client, resource(BROKER, "1", ("log.segment.bytes", DELETE, ""))) == [DONE]
    assert value_of(world, client, TOPIC, "t", "segment.bytes") == ("3145728", OF_CLUSTER)


def test_a_finer_unit_set_while_running_beats_the_hours_of_the_file() -> None:
    world = started(log_retention_hours="2")
    client = world.node.connect()
    world.create(client, "t")
    assert value_of(world, client, TOPIC, "t", "retention.ms")[0] == "7200000"
    assert set_to(world, client, BROKER, "", log_retention_ms="9000") == DONE
    assert value_of(world, client, TOPIC, "t", "retention.ms") == ("9000", OF_CLUSTER)


@pytest.mark.parametrize(
    ("name", "values", "code", "said"),
    [
        (
            "1",
            {"node.id": "2", "log.dirs": "/x"},
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [node.id, log.dirs]",
        ),
        (
            "",
            {"sparklog.partitions.max": "1"},
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [sparklog.partitions.max]",
        ),
        (
            "",
            {"log.retention.hour": "1"},
            ErrorCode.INVALID_CONFIG,
            "Unknown broker config name: log.retention.hour, did you mean log.retention.hours?",
        ),
        (
            "",
            {"log.retention.hours": "1"},
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [log.retention.hours]",
        ),
        (
            "1",
            {"message.max.bytes": "many"},
            ErrorCode.INVALID_REQUEST,
            "Invalid value many for configuration message.max.bytes: Not a number of type INT",
        ),
        (
            "",
            {"cordoned.log.dirs": "/data"},
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[cordoned.log.dirs]",
        ),
        (
            "1",
            {"ssl.keystore.password": "secret"},
            ErrorCode.INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.password]",
        ),
        (
            "",
            {"log.cleaner.threads": "9"},
            ErrorCode.INVALID_REQUEST,
            "Invalid value 9 for configuration log.cleaner.threads: it is 1 now, and may become 1 to 2 in "
            "one step",
        ),
        (
            "",
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            ErrorCode.INVALID_REQUEST,
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)",
        ),
        (
            "2",
            {"message.max.bytes": "1"},
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 2",
        ),
        (
            "me",
            {"message.max.bytes": "1"},
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: me",
        ),
    ],
)
def test_a_change_of_a_broker_that_it_cannot_follow_is_refused(
    world: World, name: str, values: dict[str, str], code: ErrorCode, said: str
) -> None:
    client = world.node.connect()
    before = describe(world, client, BROKER, "")
    assert alter(
        world, client, resource(BROKER, name, *((key, SET, value) for key, value in values.items()))
    ) == [(code, said)]
    assert describe(world, client, BROKER, "") == before


def test_secrets_are_neither_told_nor_logged(world: World) -> None:
    client = world.node.connect()
    key = "listener.name.internal.ssl.keystore.password"
    assert alter(world, client, resource(BROKER, "1", (key, SET, "geheim"))) == [DONE]
    row = describe(world, client, BROKER, "1")[key]
    assert (row.value, row.is_sensitive, [one.value for one in row.synonyms]) == (None, True, [None])
    assert any(key in line for line in world.node.trace)
    assert not any("geheim" in line for line in world.node.trace)


def test_what_was_changed_is_in_effect_after_a_crash(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    set_to(world, client, TOPIC, "t", retention_ms="1000")
    set_to(world, client, BROKER, "", message_max_bytes="2000")
    set_to(world, client, GROUP, "g", consumer_session_timeout_ms="50000")
    world.node.kill()
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert value_of(world, client, TOPIC, "t", "retention.ms") == ("1000", OF_TOPIC)
    assert value_of(world, client, TOPIC, "t", "max.message.bytes") == ("2000", OF_CLUSTER)
    assert value_of(world, client, GROUP, "g", "consumer.session.timeout.ms") == ("50000", OF_GROUP)
    assert world.node.running.settings.topics.max_message_bytes == 2000


def test_a_file_that_contradicts_what_was_set_does_not_keep_the_broker_from_starting() -> None:
    world = started()
    client = world.node.connect()
    assert (
        set_to(world, client, BROKER, "", log_cleaner_max_compaction_lag_ms="8", message_max_bytes="2000")
        == DONE
    )
    world.node.stop()
    later = World(seed=2, **{"log.cleaner.min.compaction.lag.ms": "9"})
    later.disk = world.disk
    later.node.disk = world.disk
    later.node.start()
    later.settle()
    assert any(
        "settings-changed" in line and "conflict topic config setting" in line for line in later.node.trace
    )
    client = later.node.connect()
    assert alter(
        later, client, resource(BROKER, "", ("log.cleaner.max.compaction.lag.ms", DELETE, None))
    ) == [DONE]
    assert later.node.running.settings.topics.max_message_bytes == 2000


# -- resources with settings, and the permission to see them


def test_the_resources_that_have_settings_are_listed(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    set_to(world, client, GROUP, "g", consumer_session_timeout_ms="50000")
    set_to(world, client, METRICS, "m", interval_ms="1000")

    def listed(version: int, *types: int) -> tuple[int, list[tuple[int, str]]]:
        answer = world.ask(
            client,
            ListConfigResourcesRequest(resource_types=list(types)),
            version,
            ListConfigResourcesResponse,
        )
        assert isinstance(answer, ListConfigResourcesResponse)
        return answer.error_code, [(one.resource_type, one.resource_name) for one in answer.config_resources]

    assert listed(1) == (0, [(GROUP, "g"), (METRICS, "m"), (LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")])
    assert listed(1, TOPIC, GROUP) == (0, [(GROUP, "g"), (TOPIC, "t")])
    assert listed(0) == (0, [(METRICS, "m")])
    assert listed(1, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_who_may_not_is_told_so() -> None:
    def allow(principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        return operation not in (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS) or (resource, name) == (
            Resource.TOPIC,
            "mine",
        )

    world = World(seed=1, allow=allow)
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "mine")
    changes = [
        resource(kind, name)
        for kind, name in (
            (TOPIC, "mine"),
            (TOPIC, "other"),
            (BROKER, "1"),
            (METRICS, "m"),
            (GROUP, "g"),
            (LOGGER, "1"),
        )
    ]
    assert [code for code, _ in alter(world, client, *changes)] == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ]
    answer = world.ask(client, ListConfigResourcesRequest(), 1, ListConfigResourcesResponse)
    assert isinstance(answer, ListConfigResourcesResponse)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def test_too_many_changes_at_once_are_refused_whole(world: World) -> None:
    client = world.node.connect()
    many = [
        resource(GROUP, f"g{number}", ("consumer.session.timeout.ms", SET, "50000"))
        for number in range(10_001)
    ]
    assert {code for code, _ in alter(world, client, *many)} == {ErrorCode.POLICY_VIOLATION}
    assert {code for code, _ in alter(world, client, *many[1:])} == {ErrorCode.NONE}


def test_new_topics_are_checked_and_told_by_what_holds_now(world: World) -> None:
    client = world.node.connect()
    assert set_to(world, client, BROKER, "", log_cleaner_max_compaction_lag_ms="8") == DONE
    wrong = CreatableTopic("wrong", 1, 1, [], [CreatableTopicConfig("min.compaction.lag.ms", "9")])
    right = CreatableTopic("right", 1, 1, [], [])
    answer = world.ask(
        client, CreateTopicsRequest(topics=[wrong, right], timeout_ms=1000), 7, CreateTopicsResponse
    )
    assert isinstance(answer, CreateTopicsResponse)
    by_name = {topic.name: topic for topic in answer.topics}
    assert by_name["wrong"].error_code == ErrorCode.INVALID_CONFIG
    told = {config.name: (config.value, config.config_source) for config in by_name["right"].configs or []}
    assert told["max.compaction.lag.ms"] == ("8", OF_CLUSTER)
