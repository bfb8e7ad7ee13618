"""`sparklog topics` and `sparklog configs`: creating, changing and showing them, and errors."""

import os

import pytest

from tests.cli.conftest import Tell


def test_a_topic_is_described_with_leader_in_sync_replicas_and_size(tell: Tell, topic: str) -> None:
    assert tell("topics", "create", topic, "--partitions", "2", "--config", "retention.ms=5000").code == 0
    tell("produce", topic, "-p", "1", stdin="x" * 1000 + "\n")
    head, first, second = tell("topics", "describe", topic).rows
    assert [head[0], *head[2:]] == [topic, "partitions=2", "retention.ms=5000"]
    assert first == ["0", "1", "1", "1", "0", "0", "0"]
    assert second[:4] == ["1", "1", "1", "1"]
    assert int(second[4]) > 1000
    assert second[5:] == ["0", "1"]


def test_the_json_of_a_topic_keeps_its_keys(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    (told,) = tell("topics", "describe", topic, "--json").json
    assert sorted(told) == ["configs", "id", "is_internal", "name", "partitions"]
    assert sorted(told["partitions"][0]) == [
        "isr",
        "leader",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "replicas",
        "size_bytes",
    ]


def test_nothing_is_under_replicated_or_without_leader_in_a_healthy_cluster(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    assert tell("topics", "describe", "--under-replicated") == (0, "", "no such partition\n")
    assert tell("topics", "describe", "--unavailable", "--json").json == []


def test_internal_topics_are_shown_when_asked_for(tell: Tell, topic: str, group: str) -> None:
    tell("topics", "create", topic)
    tell("groups", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute")
    assert "__consumer_offsets" not in tell("topics", "describe").out
    assert "__consumer_offsets" in tell("topics", "describe", "--internal").out
    assert "__consumer_offsets" in tell("topics", "list", "--internal").out


def test_an_assignment_says_where_each_partition_is(tell: Tell, topic: str) -> None:
    assert tell("topics", "create", topic, "--replica-assignment", "1,1,1").code == 0
    assert len(tell("topics", "describe", topic).rows) == 4
    absent = tell("topics", "create", f"{topic}-b", "--replica-assignment", "1,7")
    assert (absent.code, "broker 7" in absent.err) == (1, True)
    assert tell("topics", "create", f"{topic}-b", "--replica-assignment", "1", "--partitions", "2").code == 2
    assert tell("topics", "create", f"{topic}-b", "--replica-assignment", "one").code == 2


def test_validation_alone_creates_nothing(tell: Tell, topic: str) -> None:
    assert tell("topics", "create", topic, "--validate-only").code == 0
    assert topic not in tell("topics", "list").out


def test_of_several_topics_each_refusal_is_told_and_the_rest_is_done(tell: Tell, topic: str) -> None:
    tell("topics", "create", f"{topic}-a", f"{topic}-b")
    mixed = tell("topics", "create", f"{topic}-a", f"{topic}-b", f"{topic}-c")
    assert mixed.code == 1
    assert mixed.err == "".join(
        f"sparklog: TOPIC_ALREADY_EXISTS (36): Topic '{topic}-{one}' already exists.\n" for one in "ab"
    )
    assert f"{topic}-c" in tell("topics", "list").out


def test_topics_that_cannot_be_deleted_are_told_by_name(tell: Tell) -> None:
    told = tell("topics", "delete", "no-such", "a")
    assert told.code == 1
    assert [line.split("topic ")[1].split(":")[0] for line in told.err.splitlines()] == ["'no-such'", "'a'"]


def test_a_name_that_is_no_text_is_refused(tell: Tell) -> None:
    told = tell("topics", "delete", os.fsdecode(b"a\xe9"))
    assert (told.code, told.err) == (
        2,
        "sparklog: 'a\\udce9' is not UTF-8; only keys, values and headers may be other bytes\n",
    )


def test_partitions_are_added_and_never_taken_away(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic, "--partitions", "2")
    assert tell("topics", "add-partitions", topic, "--partitions", "3").code == 0
    assert [topic, "3", "1"] in tell("topics", "list").rows
    fewer = tell("topics", "add-partitions", topic, "--total", "2")
    assert (fewer.code, "INVALID_PARTITIONS" in fewer.err) == (1, True)


def test_settings_are_altered_and_go_back_to_their_defaults(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic, "--config", "max.message.bytes=2000")
    assert (
        tell(
            "topics",
            "alter",
            topic,
            "--config",
            "retention.bytes=4096",
            "--delete-config",
            "max.message.bytes",
        ).code
        == 0
    )
    assert _own(tell("configs", "describe", "--topic", topic).rows) == [
        ["topic", topic, "retention.bytes", "4096", "DYNAMIC_TOPIC_CONFIG", "-1"],
    ]
    assert tell("topics", "alter", topic).code == 2


def test_lists_grow_and_shrink_by_their_entries(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    assert tell("configs", "set", "--topic", topic, "cleanup.policy+=compact").code == 0
    assert tell("configs", "describe", "--topic", topic, "cleanup.policy").rows[0][3] == "delete,compact"
    assert tell("configs", "set", "--topic", topic, "cleanup.policy-=delete").code == 0
    assert tell("configs", "describe", "--topic", topic, "cleanup.policy").rows[0][3] == "compact"
    assert tell("configs", "delete", "--topic", topic, "cleanup.policy").code == 0
    assert _own(tell("configs", "describe", "--topic", topic).rows) == []


def _own(rows: list[list[str]]) -> list[list[str]]:
    """The settings without the one that the cluster has because of eligible leader replicas."""
    return [row for row in rows if row[2] != "min.insync.replicas"]


def test_a_setting_says_where_it_comes_from_and_what_it_does(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    (row,) = tell("configs", "describe", "--topic", topic, "segment.bytes", "--doc").rows
    assert row[:6] == ["topic", topic, "segment.bytes", "1073741824", "DEFAULT_CONFIG", "1073741824"]
    assert "segment" in row[6]
    assert len(tell("configs", "describe", "--topic", topic, "--all").rows) > 20


def test_the_json_of_a_setting_keeps_its_keys(tell: Tell) -> None:
    (told,) = tell("configs", "describe", "--broker", "1", "node.id", "--json").json
    assert sorted(told) == [
        *(
            "default",
            "documentation",
            "is_read_only",
            "is_sensitive",
            "name",
            "resource",
            "source",
            "synonyms",
            "type",
            "value",
            "value_type",
        ),
    ]
    assert (told["value"], told["is_read_only"]) == ("1", True)


@pytest.mark.parametrize(
    ("resource", "key", "value", "source"),
    [
        (["--group", "settings-group"], "consumer.session.timeout.ms", "50000", "DYNAMIC_GROUP_CONFIG"),
        (["--client-metrics", "settings-metrics"], "interval.ms", "2000", "DYNAMIC_CLIENT_METRICS_CONFIG"),
        (["--broker", "default"], "log.cleaner.threads", "2", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    ],
)
def test_groups_client_metrics_and_all_brokers_have_settings_too(
    tell: Tell, resource: list[str], key: str, value: str, source: str
) -> None:
    assert tell("configs", "set", *resource, f"{key}={value}")[:2] == (0, "")
    (row,) = _own(tell("configs", "describe", *resource).rows)
    assert row[2:5] == [key, value, source]
    assert tell("configs", "delete", *resource, key)[:2] == (0, "")
    assert _own(tell("configs", "describe", *resource).rows) == []


def test_what_has_settings_is_listed(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    assert ["broker", "1"] in tell("configs", "list").rows
    assert {"type": "topic", "name": topic} in tell("configs", "list", "--type", "topic", "--json").json


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["set", "--topic", "TOPIC", "retention.ms=soon"], "retention.ms"),
        (["set", "--topic", "TOPIC", "nonsense=1"], "nonsense"),
        (["set", "--topic", "TOPIC", "retention.ms+=1"], "retention.ms"),
        (["describe", "--topic", "TOPIC", "nonsense"], "no setting 'nonsense'"),
        (["describe", "--broker", "77"], "there is no broker 77; there are 1"),
        (["describe", "--topic", "nowhere"], "nowhere"),
        (["set", "--topic", "nowhere", "retention.ms=1"], "nowhere"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(
    tell: Tell, topic: str, arguments: list[str], complaint: str
) -> None:
    tell("topics", "create", topic)
    refused = tell("configs", *(topic if argument == "TOPIC" else argument for argument in arguments))
    assert (refused.code, refused.out) == (1, "")
    assert complaint in refused.err
    assert "Traceback" not in refused.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["set", "a=1"],
        ["set", "--topic", "t", "a"],
        ["set", "--topic", "t", "+=1"],
        ["describe", "--broker", "x"],
    ],
)
def test_bad_usage_of_configs_is_said_before_anything_is_asked(tell: Tell, arguments: list[str]) -> None:
    assert tell("configs", *arguments).code == 2
