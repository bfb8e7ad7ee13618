"""The output of the commands, its stream, and the exit code."""

import json
import os
import subprocess
import sys

import click
import pytest

import sparklog
from sparklog_server.cli.main import COMMANDS
from sparklog_server.cli.main import sparklog as program
from tests.cli.conftest import Run


def test_a_topic_is_created_listed_described_and_deleted(run: Run, topic: str) -> None:
    assert (
        run(
            "topics", "create", topic, "--partitions", "3", "--config", "max.message.bytes=2000000"
        ).returncode
        == 0
    )
    assert f"{topic}\t3\t1" in run("topics", "list").stdout.decode().splitlines()
    described = run("topics", "describe", topic).stdout.decode().splitlines()
    assert described[0].split("\t")[0] == topic
    assert "max.message.bytes=2000000" in described[0]
    assert described[1:] == [f"{number}\t1\t1\t1\t0\t0\t0" for number in range(3)]
    assert run("topics", "delete", topic).returncode == 0
    assert topic not in run("topics", "list").stdout.decode()


def test_json_is_for_programs(run: Run, topic: str) -> None:
    created = json.loads(run("topics", "create", topic, "--partitions", "2", "--json").stdout)
    assert created == [{"name": topic, "partitions": 2, "replication_factor": 1}]
    (described,) = json.loads(run("topics", "describe", topic, "--json").stdout)
    assert described["name"] == topic
    assert [partition["leader"] for partition in described["partitions"]] == [1, 1]
    assert topic in [listed["name"] for listed in json.loads(run("topics", "list", "--json").stdout)]


def test_creating_a_topic_twice_fails_unless_that_is_fine(run: Run, topic: str) -> None:
    assert run("topics", "create", topic).returncode == 0
    again = run("topics", "create", topic)
    assert again.returncode == 1
    assert b"TOPIC_ALREADY_EXISTS" in again.stderr
    assert run("topics", "create", topic, "--if-not-exists").returncode == 0


def test_a_topic_that_is_not_there_cannot_be_deleted_unless_that_is_fine(run: Run, topic: str) -> None:
    missing = run("topics", "delete", topic)
    assert missing.returncode == 1
    assert b"Traceback" not in missing.stderr
    assert run("topics", "delete", topic, "--if-exists").returncode == 0


def test_lines_go_in_and_come_out(run: Run, topic: str) -> None:
    run("topics", "create", topic)
    assert run("produce", topic, stdin=b"one\ntwo\n\nfour").returncode == 0
    consumed = run("consume", topic, "--from-beginning", "--max", "4")
    assert (consumed.returncode, consumed.stdout) == (0, b"one\ntwo\n\nfour\n")


def test_keys_go_in_and_come_out(run: Run, topic: str) -> None:
    run("topics", "create", topic, "--partitions", "3")
    assert run("produce", topic, "--key-separator", ":", stdin=b"a:1\nb:2\nc:x:y\n").returncode == 0
    consumed = run("consume", topic, "--from-beginning", "--max", "3", "--key-separator", "=")
    assert sorted(consumed.stdout.splitlines()) == [b"a=1", b"b=2", b"c=x:y"]


def test_a_line_without_its_key_is_told_by_number(run: Run, topic: str) -> None:
    run("topics", "create", topic)
    failed = run("produce", topic, "--key-separator", ":", stdin=b"a:1\nb\n")
    assert failed.returncode == 1
    assert b"line 2" in failed.stderr
    assert run("consume", topic, "--from-beginning", "--max", "1").stdout == b"1\n"


def test_one_partition_can_be_written_and_read_alone(run: Run, topic: str) -> None:
    run("topics", "create", topic, "--partitions", "2")
    run("produce", topic, "--partition", "0", stdin=b"zero\n")
    run("produce", topic, "--partition", "1", stdin=b"one\n")
    consumed = run("consume", topic, "--from-beginning", "--partition", "1", "--timeout-ms", "300")
    assert consumed.stdout == b"one\n"
    assert b"no partition 7" in run("consume", topic, "--partition", "7").stderr


def test_records_as_json_tell_where_they_stand(run: Run, topic: str) -> None:
    run("topics", "create", topic)
    run("produce", topic, "--key-separator", ":", stdin="k:grüße\n".encode())
    record = json.loads(run("consume", topic, "--from-beginning", "--max", "1", "--json").stdout)
    assert (record["topic"], record["partition"], record["offset"]) == (topic, 0, 0)
    assert (record["key"], record["value"]) == ("k", "grüße")


def test_consuming_a_topic_that_is_not_there_fails(run: Run, topic: str) -> None:
    failed = run("consume", topic, "--from-beginning", "--max", "1")
    assert failed.returncode == 1
    assert topic.encode() in failed.stderr
    assert b"Traceback" not in failed.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "mislay"),
        ("topics", "create"),
        ("topics", "create", "t", "--config", "nothing"),
        ("produce", "t", "--set", "lingr.ms=1"),
    ],
)
def test_bad_usage_ends_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    failed = run(*arguments)
    assert failed.returncode == 2
    assert failed.stdout == b""
    assert b"Traceback" not in failed.stderr


def test_no_broker_is_said_in_one_line(run: Run) -> None:
    failed = run("topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert failed.returncode == 1
    assert len(failed.stderr.splitlines()) == 1
    assert b"127.0.0.1:1" in failed.stderr


def test_the_command_line_loads_neither_server_nor_tables_nor_spark() -> None:
    program = (
        "import sys; import sparklog_server.cli.main; "
        "import sparklog.client.admin.admin; print(*sorted(sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    ).stdout.split()
    unwanted = {
        "asyncio",
        "rich",
        "pyarrow",
        "pyspark",
        "logging",
        "sparklog_server.broker",
        "sparklog_server.daemon",
    }
    assert unwanted.intersection(loaded) == set()


def test_the_help_of_the_program_imports_no_command_and_says_what_their_own_say() -> None:
    for name, place in COMMANDS.items():
        command = program.get_command(click.Context(program), name)
        assert command is not None
        assert command.get_short_help_str(1_000) == place.help, name
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "sparklog_server.cli.program", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "COLUMNS": "120"},
    )
    assert all(f"\n  {name} " in shown.stdout for name in COMMANDS)
    own = {line.split("|")[-1].strip() for line in shown.stderr.splitlines() if "sparklog" in line}
    assert own <= {
        "sparklog",
        "sparklog_server",
        *(f"sparklog_server.cli{one}" for one in ("", ".main", ".program")),
    }


def test_the_program_ends_with_the_code_of_its_command_and_prints_everything(run: Run, topic: str) -> None:
    def ended(*arguments: str) -> tuple[int, bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "sparklog_server.cli.program", *arguments],
            capture_output=True,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        return done.returncode, done.stdout

    assert ended("--version") == (0, f"sparklog {sparklog.__version__}\n".encode())
    assert ended("topics", "list", "-b", "127.0.0.1:1") == (1, b"")
    assert ended("topics", "mislay") == (2, b"")
