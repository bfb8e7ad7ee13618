"""`sparklog topics delete-records`: the deleted records, the output, and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def filled(run: Run, topic: str, *, partitions: int = 1) -> None:
    run("topics", "create", topic, "--partitions", str(partitions))
    for partition in range(partitions):
        assert run("produce", topic, "--partition", str(partition), stdin=b"0\n1\n2\n3\n4\n").returncode == 0


def left(run: Run, topic: str, partition: int) -> bytes:
    return run(
        "consume", topic, "--from-beginning", "--partition", str(partition), "--timeout-ms", "200"
    ).stdout


def test_records_below_an_offset_are_deleted_and_the_new_beginning_is_told(run: Run, topic: str) -> None:
    filled(run, topic, partitions=2)
    deleted = run("topics", "delete-records", topic, "--partition", "1", "--before", "3")
    assert (deleted.returncode, deleted.stdout.decode()) == (0, f"{topic}\t1\t3\n")
    assert left(run, topic, 0) == b"0\n1\n2\n3\n4\n"
    assert left(run, topic, 1) == b"3\n4\n"


def test_minus_one_deletes_everything_committed(run: Run, topic: str) -> None:
    filled(run, topic)
    answered = json.loads(
        run("topics", "delete-records", topic, "--partition", "0", "--before", "-1", "--json").stdout
    )
    assert answered == [{"topic": topic, "partition": 0, "low_watermark": 5, "error": None}]
    assert left(run, topic, 0) == b""


def test_offsets_come_from_a_file_as_kafkas_tool_reads_it_and_a_refusal_leaves_the_others_alone(
    run: Run, topic: str, tmp_path: Path
) -> None:
    filled(run, topic, partitions=2)
    asked = [{"topic": topic, "partition": 0, "offset": 99}, {"topic": topic, "partition": 1, "offset": 2}]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": asked, "version": 1}))
    deleted = run("topics", "delete-records", "--offset-json-file", str(file))
    assert deleted.returncode == 1
    assert deleted.stdout.decode() == f"{topic}\t1\t2\n"
    assert deleted.stderr.decode() == f"sparklog: OFFSET_OUT_OF_RANGE (1): {topic}-0\n"
    assert left(run, topic, 1) == b"2\n3\n4\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[", "not JSON"),
        ("[]", "expected"),
        ('{"partitions": [], "version": 2}', "expected"),
        ('{"partitions": []}', "no partition is named"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "needs topic, partition"),
        ('{"partitions": [{"topic": "t", "partition": true, "offset": 1}]}', "needs topic, partition"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 0, "offset": 2}]}',  # noqa: E501
            "twice",
        ),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_before_anything_is_asked(
    run: Run, tmp_path: Path, content: str, complaint: str
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    refused = run("topics", "delete-records", "--offset-json-file", str(file))
    assert refused.returncode == 2
    assert complaint in refused.stderr.decode()


@pytest.mark.parametrize(
    "arguments",
    [(), ("t",), ("t", "--partition", "0"), ("t", "--before", "1"), ("t", "--offset-json-file", "/dev/null")],
)
def test_half_a_wish_is_bad_usage(run: Run, arguments: tuple[str, ...]) -> None:
    refused = run("topics", "delete-records", *arguments)
    assert refused.returncode == 2
    assert b"Traceback" not in refused.stderr


def test_a_partition_or_topic_that_is_not_there_is_named(run: Run, topic: str) -> None:
    missing = run("topics", "delete-records", topic, "--partition", "0", "--before", "1")
    assert missing.returncode == 1
    assert topic.encode() in missing.stderr
    filled(run, topic)
    missing = run("topics", "delete-records", topic, "--partition", "7", "--before", "1")
    assert missing.returncode == 1
    assert b"partition 7" in missing.stderr
