"""`sparklog groups`: committed offsets, lag, members, and moving the offsets."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.consumer import Consumer
from sparklog.local_broker import EmbeddedBroker
from sparklog.model import TopicPartition
from tests.cli.conftest import Tell


@pytest.fixture
def filled(tell: Tell, topic: str) -> str:
    """A topic of two partitions with five records each, whose times are 1000, 2000 … ms."""
    assert tell("topics", "create", topic, "--partitions", "2").code == 0
    for partition in ("0", "1"):
        lines = "".join(
            json.dumps({"value": str(number), "timestamp_ms": number * 1000}) + "\n" for number in range(1, 6)
        )
        assert tell("produce", topic, "-p", partition, "--from-json", stdin=lines).code == 0
    return topic


@pytest.fixture
def committed(shared_broker: EmbeddedBroker, filled: str, group: str) -> Iterator[Admin]:
    """The group has read two of partition 0 and nothing of partition 1."""
    with Admin(bootstrap_servers=shared_broker.bootstrap_servers) as admin:
        admin.alter_group_offsets(group, {TopicPartition(filled, 0): 2})
        yield admin


def offsets(admin: Admin, group: str) -> dict[int, int]:
    return {at.partition: told.offset for at, told in admin.list_group_offsets([group])[group].items()}


def test_a_group_is_listed_with_its_type_and_state(tell: Tell, committed: Admin, group: str) -> None:
    assert [group, "Classic", "Empty", ""] in tell("groups", "list").rows
    assert [group, "Classic", "Empty", ""] in tell(
        "groups", "list", "--state", "Empty", "--type", "classic"
    ).rows
    assert group not in tell("groups", "list", "--state", "Stable").out
    assert {"group": group, "type": "Classic", "state": "Empty", "protocol_type": ""} in tell(
        "groups", "list", "--json"
    ).json


def test_a_group_without_members_is_described_with_its_lag(
    tell: Tell, committed: Admin, filled: str, group: str
) -> None:
    assert tell("groups", "describe", group).rows == [[group, filled, "0", "2", "5", "3", "", "", ""]]


def test_members_are_described_with_what_they_read_and_what_nobody_committed(
    tell: Tell, shared_broker: EmbeddedBroker, committed: Admin, filled: str, group: str
) -> None:
    with Consumer(
        bootstrap_servers=shared_broker.bootstrap_servers,
        group_id=group,
        client_id="reader",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe([filled])
        while not consumer.assignment():
            consumer.poll(50)
        first, second = tell("groups", "describe", group).rows
        (member,) = tell("groups", "describe", group, "--members").rows
        (state,) = tell("groups", "describe", group, "--state").rows
        (told,) = tell("groups", "describe", group, "--json").json
        refused = tell("groups", "delete", group)
        moved = tell("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute")
    assert first == [group, filled, "0", "2", "5", "3", member[1], "/127.0.0.1", "reader"]
    assert second == [group, filled, "1", "", "5", "", member[1], "/127.0.0.1", "reader"]
    assert member == [group, member[1], "", "/127.0.0.1", "reader", "", "2", f"{filled}(0,1)"]
    assert state == [group, "Classic", "Stable", "consumer", "range", "1", "", "1"]
    assert [(one["partition"], one["committed"], one["lag"]) for one in told["offsets"]] == [
        (0, 2, 3),
        (1, None, None),
    ]
    assert told["members"][0]["assignment"] == [[filled, 0], [filled, 1]]
    assert (refused.code, "NON_EMPTY_GROUP" in refused.err) == (1, True)
    assert (moved.code, "stop them" in moved.err) == (1, True)
    assert offsets(committed, group) == {0: 2}


def test_members_of_the_new_protocol_have_epochs(
    tell: Tell, shared_broker: EmbeddedBroker, filled: str, group: str
) -> None:
    with Consumer(
        bootstrap_servers=shared_broker.bootstrap_servers, group_id=group, group_protocol="consumer"
    ) as consumer:
        consumer.subscribe([filled])
        while not consumer.assignment():
            consumer.poll(50)
        (told,) = tell("groups", "describe", group, "--json").json
    assert (told["type"], told["protocol_type"], len(told["members"])) == ("Consumer", "consumer", 1)
    assert told["members"][0]["epoch"] > 0
    assert told["members"][0]["subscribed_topics"] == [filled]


def test_the_json_of_a_group_keeps_its_keys(tell: Tell, committed: Admin, group: str) -> None:
    (told,) = tell("groups", "describe", group, "--json").json
    assert sorted(told) == [
        *(
            "assignment_epoch",
            "assignor",
            "coordinator",
            "epoch",
            "group",
            "members",
            "offsets",
            "protocol_type",
            "state",
            "type",
        ),
    ]
    assert sorted(told["offsets"][0]) == [
        "committed",
        "lag",
        "log_end",
        "member",
        "metadata",
        "partition",
        "topic",
    ]


def test_a_commit_for_a_topic_that_is_gone_has_no_lag(
    tell: Tell, committed: Admin, filled: str, group: str, topic: str
) -> None:
    committed.create_topics({f"{topic}-kept": 1})
    committed.alter_group_offsets(group, {TopicPartition(f"{topic}-kept", 0): 0})
    tell("topics", "delete", filled)
    # Kafka forgets the commits of a topic with the topic, in its own time.
    rows = tell("groups", "describe", group).rows
    assert [group, f"{topic}-kept", "0", "0", "0", "0", "", "", ""] in rows
    assert all(row[4:6] == ["", ""] for row in rows if row[1] == filled)


@pytest.mark.parametrize(
    ("way", "stands"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 5, 1: 5}),
        (["--to-current"], {0: 2, 1: 5}),
        (["--to-offset", "4"], {0: 4, 1: 4}),
        (["--to-offset", "99"], {0: 5, 1: 5}),
        (["--shift-by", "-1"], {0: 1, 1: 4}),
        (["--shift-by", "100"], {0: 5, 1: 5}),
        (["--shift-by", "-100"], {0: 0, 1: 0}),
        (["--to-datetime", "1970-01-01T00:00:03"], {0: 2, 1: 2}),
        (["--to-datetime", "2026-01-01"], {0: 5, 1: 5}),
        (["--by-duration", "1h"], {0: 5, 1: 5}),
        (["--by-duration", "P30000D"], {0: 0, 1: 0}),
    ],
)
def test_offsets_are_shown_first_and_moved_when_told_to(
    tell: Tell, committed: Admin, filled: str, group: str, way: list[str], stands: dict[int, int]
) -> None:
    shown = tell("groups", "reset-offsets", group, "--topic", filled, *way)
    assert shown.rows == [[filled, "0", str(stands[0]), "2"], [filled, "1", str(stands[1]), ""]]
    assert offsets(committed, group) == {0: 2}
    done = tell("groups", "reset-offsets", group, "--topic", filled, *way, "--execute", "--json").json
    assert (done["group"], done["is_executed"]) == (group, True)
    assert offsets(committed, group) == stands


def test_only_what_is_named_is_moved(tell: Tell, committed: Admin, filled: str, group: str) -> None:
    assert tell(
        "groups", "reset-offsets", group, "--topic", f"{filled}:1", "--to-earliest", "--execute"
    ).rows == [[filled, "1", "0", ""]]
    assert offsets(committed, group) == {0: 2, 1: 0}
    assert tell("groups", "reset-offsets", group, "--all-topics", "--to-latest").rows == [
        [filled, "0", "5", "2"],
        [filled, "1", "5", "0"],
    ]


def test_what_is_printed_can_be_read_back_from_a_file(
    tell: Tell, committed: Admin, filled: str, group: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(tell("groups", "reset-offsets", group, "--topic", filled, "--to-offset", "3").out)
    assert tell("groups", "reset-offsets", group, "--from-file", str(file), "--execute").code == 0
    assert offsets(committed, group) == {0: 3, 1: 3}
    file.write_text(f'"{group}",{filled},0,1\n{filled},1,99\n\n')
    assert tell("groups", "reset-offsets", group, "--from-file", str(file), "--execute").code == 0
    assert offsets(committed, group) == {0: 1, 1: 5}


@pytest.mark.parametrize(
    "line", ["", "t", "t,0", "t,x,0", "t,0,-1", "t,0,1\nt,0,2", ",0,1", "t,4294967296,0", f"t,0,{1 << 63}"]
)
def test_a_file_that_cannot_be_meant_is_refused(tell: Tell, group: str, tmp_path: Path, line: str) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(line + "\n")
    refused = tell("groups", "reset-offsets", group, "--from-file", str(file))
    assert (refused.code, refused.out) == (2, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--topic", "t"],
        ["--to-earliest"],
        ["--topic", "t", "--to-earliest", "--to-latest"],
        ["--topic", "t", "--all-topics", "--to-latest"],
        ["--topic", "t", "--to-latest", "--execute", "--dry-run"],
        ["--topic", "t", "--to-datetime", "yesterday"],
        ["--topic", "t", "--by-duration", "soon"],
        ["--topic", "t:x", "--to-latest"],
        ["--topic", "t", "--to-offset", "-1"],
    ],
)
def test_half_a_wish_is_bad_usage(tell: Tell, group: str, arguments: list[str]) -> None:
    refused = tell("groups", "reset-offsets", group, *arguments)
    assert (refused.code, refused.out) == (2, "")


def test_a_group_without_commits_has_no_topics_to_move(tell: Tell, group: str) -> None:
    refused = tell("groups", "reset-offsets", group, "--all-topics", "--to-latest")
    assert (refused.code, "--topic" in refused.err) == (1, True)


def test_offsets_and_groups_are_deleted(tell: Tell, committed: Admin, filled: str, group: str) -> None:
    tell("groups", "reset-offsets", group, "--topic", filled, "--to-latest", "--execute")
    assert tell("groups", "delete-offsets", group, "--topic", f"{filled}:0").code == 0
    assert offsets(committed, group) == {1: 5}
    assert tell("groups", "delete", group).code == 0
    assert group not in tell("groups", "list").out


def test_groups_that_are_not_there_are_each_named(tell: Tell) -> None:
    missing = tell("groups", "describe", "nobody", "nothing")
    assert (missing.code, missing.out) == (1, "")
    assert [line.split(":")[1].strip() for line in missing.err.splitlines()] == [
        "GROUP_ID_NOT_FOUND (69)"
    ] * 2
    assert (
        tell("groups", "delete", "nobody").err
        == "sparklog: GROUP_ID_NOT_FOUND (69): there is no group 'nobody'\n"
    )


def test_a_topic_or_partition_that_is_not_there_is_named(tell: Tell, filled: str, group: str) -> None:
    assert (
        "no topic 'nowhere'"
        in tell("groups", "reset-offsets", group, "--topic", "nowhere", "--to-latest").err
    )
    assert (
        "no partition 7"
        in tell("groups", "reset-offsets", group, "--topic", f"{filled}:7", "--to-latest").err
    )
