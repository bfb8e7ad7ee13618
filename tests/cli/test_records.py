"""`sparklog produce` and `consume` beyond plain lines: formats, headers, times, codecs, positions, groups,
JSON.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog_server.cli.produce import NewRecord, new_record
from sparklog_server.operations.json_records import json_text
from tests.cli.conftest import Run, Tell

NOTHING = NewRecord(None, b"", (), None, None)


def test_a_format_prints_what_it_names(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    assert (
        tell(
            "produce", topic, "-K", ":", "-H", "a=1", "-H", "b", "-T", "1000", "-z", "zstd", stdin="k:v\n"
        ).code
        == 0
    )
    printed = tell("consume", topic, "-o", "beginning", "-e", "-f", r"%t/%p@%o %T [%h] %K:%k %S:%s\n")
    assert printed == (0, f"{topic}/0@0 1000 [a=1,b=NULL] 1:k 1:v\n", "read 1 record\n")


def test_json_lines_go_out_and_in_again(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic, f"{topic}-copy")
    tell("produce", topic, "-k", "key", "-H", "a=1", "-T", "1000", stdin="one\ntwo\n")
    lines = tell("consume", topic, "--from-beginning", "-e", "--json").out
    assert tell("produce", f"{topic}-copy", "--from-json", "--json", stdin=lines).json == {
        "topic": f"{topic}-copy",
        "records": 2,
    }
    assert tell("consume", f"{topic}-copy", "--from-beginning", "-e", "--json").out == lines.replace(
        topic, f"{topic}-copy"
    )


def test_bytes_that_are_no_text_go_out_and_in_again(tell: Tell, topic: str) -> None:
    key = os.fsdecode(b"k\xe9")
    assert (
        tell("produce", topic, "--create", "--key", key, "--header", f"h={key}", stdin=b"\x80\xff\n").code
        == 0
    )
    printed = tell("consume", topic, "--from-beginning", "--exit-eof", "--json").out
    told = json.loads(printed)
    assert (told["key"], told["value"], told["headers"]) == (
        {"base64": "a+k="},
        {"base64": "gP8="},
        [["h", {"base64": "a+k="}]],
    )
    assert tell("produce", topic, "--from-json", stdin=printed).code == 0
    first, second = tell("consume", topic, "--from-beginning", "--exit-eof", "--json").out.splitlines()
    assert {**json.loads(second), "offset": 0} == json.loads(first)


CONTENTS = (
    st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode) | st.just(b'{"base64": "gP8="}')
)


@given(
    key=CONTENTS,
    value=CONTENTS,
    headers=st.lists(st.tuples(st.text(max_size=5), CONTENTS), max_size=3),
    partition=st.integers(0, 9),
    timestamp_ms=st.integers(0, 1 << 40),
)
@example(b'{"base64": "AA=="}', b"\xff", [("base64", b"\r\n\x85\xe2\x80\xa8")], 0, 0)
def test_a_record_survives_a_line_of_json(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int,
    timestamp_ms: int,
) -> None:
    line = json_text(
        {"topic": "t", "partition": partition, "offset": 7, "timestamp_ms": timestamp_ms}
        | {"key": key, "value": value, "headers": headers}
    ).encode()
    assert line.count(b"\n") == 1  # `produce` reads lines
    assert new_record(line, 1, NOTHING, keeps_partition=True) == NewRecord(
        key, value, tuple(headers), partition, timestamp_ms
    )
    assert new_record(line, 1, NOTHING, keeps_partition=False).partition is None


def test_bytes_go_through_a_pipe_in_a_locale_that_is_not_unicode(run: Run, topic: str) -> None:
    contents = [bytes([byte, 0xE9]) for byte in range(256)] + [
        "grüße \u2028 😀".encode(),
        b'{"base64": "AA=="}',
    ]
    lines = b"".join(json_text({"key": one, "value": one}).encode() for one in contents)
    assert run("topics", "create", topic, f"{topic}-copy").returncode == 0
    assert run("produce", topic, "--from-json", stdin=lines).returncode == 0
    everything = ("--from", "beginning", "--exit-eof", "--json")
    printed = run("consume", topic, *everything, environment={"PYTHONIOENCODING": "latin-1"}).stdout
    assert run("produce", f"{topic}-copy", "--from-json", stdin=printed).returncode == 0
    copied = run("consume", f"{topic}-copy", *everything).stdout
    assert copied == printed.replace(topic.encode(), f"{topic}-copy".encode())
    assert printed.count(b"\n") == len(contents)


def test_partitions_are_kept_only_when_told_so(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic, "--partitions", "5")
    lines = "".join(json.dumps({"key": "k", "value": "v", "partition": number}) + "\n" for number in range(5))
    tell("produce", topic, "--from-json", "--keep-partitions", stdin=lines)
    read = ("consume", topic, "-e", "-f", "%p ", "--from", "beginning")
    assert sorted(tell(*read).out.split()) == ["0", "1", "2", "3", "4"]
    tell("produce", topic, "--from-json", stdin=lines)
    assert sorted(Counter(tell(*read).out.split()).values()) == [1, 1, 1, 1, 6]  # all by the key
    assert tell("produce", topic, "--keep-partitions", stdin="a\n").code == 2


def test_what_was_done_is_said_on_stderr(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    assert tell("produce", topic, stdin="a\nb\n") == (0, "", f"wrote 2 records to {topic}\n")
    assert tell("produce", topic) == (0, "", f"nothing was written to {topic}: the input has no lines\n")
    assert tell("consume", topic, "--from", "-1", "-e") == (0, "b\n", "read 1 record\n")
    empty = tell("consume", topic, "-e")
    assert empty == (0, "", f"no records in {topic}; --from beginning reads those that are stored\n")


def test_a_line_for_a_partition_that_is_not_there_is_told_with_what_was_written(
    tell: Tell, topic: str
) -> None:
    tell("topics", "create", topic)
    lines = "".join(json.dumps({"value": "v", "partition": partition}) + "\n" for partition in (0, 0, 7))
    refused = tell("produce", topic, "--from-json", "--keep-partitions", stdin=lines)
    assert refused.code == 1
    assert f"line 3: topic '{topic}' has no partition 7; the 2 lines before it were written" in refused.err
    assert tell("consume", topic, "--from-beginning", "--exit-eof").out == "v\nv\n"


def test_the_help_has_no_control_characters_or_their_names(tell: Tell) -> None:
    told = tell("consume", "--help").out
    assert "\b" not in told
    assert "\\b" not in told
    assert "FORMAT  %t topic   %p partition   %o offset   %T timestamp in ms   %h headers\n" in told
    assert r"%% percent   \n \r \t \0 \xHH" in told


def test_an_empty_value_is_a_tombstone_when_told_so(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    tell("produce", topic, "-K", ":", "-Z", stdin="k:\n:v\n")
    tell("produce", topic, "-K", ":", stdin="k:\n")
    assert tell("consume", topic, "--from-beginning", "-e", "-f", r"%K %S\n").out == "1 -1\n-1 1\n1 0\n"


def test_delimiters_may_be_any_bytes(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    tell("produce", topic, "-D", r"\0", stdin=b"a\nb\0c\0d")
    assert tell("consume", topic, "--from-beginning", "-e", "-D", "|").out == "a\nb|c|d|"


def test_files_are_read_line_by_line_or_whole(tell: Tell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    tell("topics", "create", topic)
    assert tell("produce", topic, str(file), "--json").json["records"] == 2
    assert tell("produce", topic, "--whole-files", str(file), str(file), "--json").json["records"] == 2
    assert (
        tell("consume", topic, "--from-beginning", "-e", "-f", "%s|").out == "one|two|one\ntwo\n|one\ntwo\n|"
    )
    assert tell("produce", topic, str(tmp_path / "absent")).code == 2


@pytest.mark.parametrize(
    ("position", "found"),
    [
        ("beginning", "1 2 3 4 5 "),
        ("end", ""),
        ("2", "3 4 5 "),
        ("99", ""),
        ("-2", "4 5 "),
        ("-99", "1 2 3 4 5 "),
        ("s@3000", "3 4 5 "),
        ("1970-01-01T00:00:04", "4 5 "),
        ("-10m", ""),
    ],
)
def test_reading_begins_where_it_is_told_to(tell: Tell, topic: str, position: str, found: str) -> None:
    tell("topics", "create", topic)
    lines = "".join(
        json.dumps({"value": str(number), "timestamp_ms": number * 1000}) + "\n" for number in range(1, 6)
    )
    tell("produce", topic, "--from-json", stdin=lines)
    assert tell("consume", topic, "--from", position, "-e", "-f", "%s ").out == found


def test_several_topics_are_read_together(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic, f"{topic}-b")
    tell("produce", topic, stdin="a\n")
    tell("produce", f"{topic}-b", stdin="b\n")
    assert sorted(tell("consume", topic, f"{topic}-b", "--from-beginning", "-e").out.splitlines()) == [
        "a",
        "b",
    ]


def test_records_that_no_transaction_holds_back_are_read_committed(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    tell("produce", topic, stdin="a\n")
    assert tell("consume", topic, "--from-beginning", "-e", "--isolation", "read_committed").out == "a\n"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_where_it_stopped(tell: Tell, topic: str, group: str, protocol: str) -> None:
    tell("topics", "create", topic)
    tell("produce", topic, stdin="1\n2\n3\n4\n")
    more = ("-G", group, "-X", f"group.protocol={protocol}", "--timeout-ms", "5000")
    assert tell("consume", topic, *more, "--from", "beginning", "-c", "3").out == "1\n2\n3\n"
    assert tell("consume", topic, *more, "-c", "1").out == "4\n"
    assert tell("groups", "describe", group).rows == [[group, topic, "0", "4", "4", "0", "", "", ""]]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from-beginning", "--from", "end"],
        ["--from", "yesterday"],
        ["-f", "%q"],
        ["-f", "%s", "--json"],
        ["-G", "g", "-e"],
        ["-G", "g", "--from", "5"],
        ["-D", r"\q"],
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_read(tell: Tell, arguments: list[str]) -> None:
    refused = tell("consume", "t", *arguments)
    assert (refused.code, refused.out) == (2, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-k", "a", "-K", ":"],
        ["-H", "=v"],
        ["-z", "brotli"],
        ["--from-json", "--whole-files"],
        ["-D", ""],
        ["-T", "-1"],
        ["-X", "acks=7"],
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    tell: Tell, topic: str, arguments: list[str]
) -> None:
    tell("topics", "create", topic)
    assert tell("produce", topic, *arguments, stdin="a\n").code == 2
    assert tell("consume", topic, "--from-beginning", "-e").out == ""


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{}",
        '{"value": 1}',
        '{"value": "a", "partition": -1}',
        "{",
        '{"value": "a", "headers": [["a"]]}',
    ],
)
def test_a_line_that_is_no_record_is_told_by_number(tell: Tell, topic: str, line: str) -> None:
    tell("topics", "create", topic)
    failed = tell("produce", topic, "--from-json", stdin='{"value": "first"}\n' + line + "\n")
    assert (failed.code, "line 2" in failed.err) == (1, True)
    assert tell("consume", topic, "--from-beginning", "-e").out == "first\n"


@pytest.mark.parametrize("more", [(), ("--group", "g-unknown")])
def test_a_topic_that_is_not_there_is_not_created_by_reading_it(
    tell: Tell, topic: str, more: tuple[str, ...]
) -> None:
    tell("topics", "create", f"{topic}-orders")
    told = tell("consume", f"{topic}-order", "--timeout-ms", "2000", *more)
    assert told.code == 1
    assert told.err.startswith(f"Error: there is no topic '{topic}-order'; did you mean '{topic}-orders'")
    assert f"{topic}-order" not in tell("topics", "list").out.splitlines()
