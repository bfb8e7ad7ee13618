"""The lines of the log: their two forms, their levels, and their bounds."""

import io
import json
from datetime import datetime

import pytest

from sparklog import escapes
from sparklog_server.daemon.line_bounds import BURST, REMEMBERED_MAX, REPEAT_NS, Line, LineBounds
from sparklog_server.daemon.logs import VALUE_CHARS_MAX, TraceLog
from sparklog_server.loggers import DEBUG, ERROR, EVENTS, TRACE

SECOND_NS = 1_000_000_000
HOSTILE = (
    "\x1b[2Jgone",
    "a\nready node=9",
    "\u202egnp.exe",
    "nul\x00",
    "\x9b31m",
    "\u2028",
    "\ud800",
    "a b",
    "'\"=",
)


class Written:
    """A log, its clock, and its lines without their times."""

    def __init__(self, *, is_json: bool = False, prefix: str = "") -> None:
        self.now_ns = 0
        self._stream = io.StringIO()
        self.log = TraceLog(self._stream, prefix, is_json=is_json, clock_ns=lambda: self.now_ns)

    @property
    def raw(self) -> list[str]:
        return self._stream.getvalue().split("\n")[:-1]

    @property
    def lines(self) -> list[str]:
        return [line.partition("Z ")[2] for line in self.raw]


def test_a_text_line_tells_its_level_unless_it_is_info() -> None:
    written = Written()
    written.log.trace("ready", node=1)
    written.log.trace("session-closed", peer="127.0.0.1:1", reason="it is full")
    written.log.trace("disk-full", path="/d")
    assert written.lines == [
        "ready node=1",
        "session-closed peer=127.0.0.1:1 reason='it is full' level=WARN",
        "disk-full path=/d level=ERROR",
    ]


def test_a_json_line_is_one_object_with_time_level_logger_and_message() -> None:
    written = Written(is_json=True, prefix="node-1 ")
    written.log.trace("feature-level-lowered", feature="f", level=2, is_given=True, of=None)
    (told,) = [json.loads(line) for line in written.raw]
    assert datetime.fromisoformat(told.pop("time")).microsecond % 1000 == 0
    assert told == {
        "level": "WARN",
        "logger": "sparklog.broker",
        "message": "feature-level-lowered",
        "process": "node-1",
        "feature": "f",
        "level_": 2,
        "is_given": True,
        "of": None,
    }


@pytest.mark.parametrize("value", [*HOSTILE, "x" * 100_000, "\U0010ffff" * 100_000])
@pytest.mark.parametrize("is_json", [False, True])
def test_what_a_peer_sent_is_one_line_of_printable_characters_and_of_bounded_length(
    value: str, *, is_json: bool
) -> None:
    written = Written(is_json=is_json)
    for event in ("session-closed", "audit"):
        written.log.trace(event, reason=value)
    first, audit = written.raw
    assert first.isprintable()
    assert audit.isprintable()
    first.encode()
    assert len(first) < 13 * VALUE_CHARS_MAX
    told = json.loads(first if is_json else audit)["reason"]
    assert told == value or (told.startswith(value[:VALUE_CHARS_MAX]) and len(value) > VALUE_CHARS_MAX)


@pytest.mark.parametrize("is_json", [False, True])
def test_every_event_shows_hostile_names_on_one_line(*, is_json: bool) -> None:
    hostile = "a\nforged event=x\x1b]0;owned\x07\x9b2J\u202egnp\u200b\u3164\u034f\U000e0041\ud800"
    for event in EVENTS:
        written = Written(is_json=is_json)
        written.log.loggers.set("root", TRACE)
        written.log.trace(event, name=hostile, reason=hostile)
        line, *more = written.raw
        assert more == []
        assert escapes.terminal(line) == line
        assert not is_json or json.loads(line)["reason"] == hostile


def test_a_level_keeps_lines_out_and_lets_others_in() -> None:
    written = Written()
    written.log.trace("connection-opened", peer="a")
    written.log.loggers.set("sparklog.network", DEBUG)
    written.log.trace("connection-opened", peer="a")
    written.log.loggers.set("root", ERROR)
    written.log.trace("ready", node=1)
    written.log.trace("disk-full", path="/d")
    written.log.loggers.set("sparklog.network", None)
    written.log.trace("connection-opened", peer="b")
    assert written.lines == ["connection-opened peer=a level=DEBUG", "disk-full path=/d level=ERROR"]


def test_a_repeated_line_is_written_once_and_then_counted() -> None:
    written = Written()
    for _ in range(1_000):
        written.log.trace("settings-changed", keys="a")
    written.log.trace("settings-changed", keys="b")
    assert written.lines == ["settings-changed keys=a", "settings-changed keys=b"]
    written.now_ns = REPEAT_NS - 1
    written.log.flush()
    assert len(written.lines) == 2
    written.now_ns = REPEAT_NS
    written.log.flush()
    assert written.lines[2:] == ["settings-changed keys=a repeated=999"]
    written.log.trace("settings-changed", keys="a")
    assert written.lines[3:] == ["settings-changed keys=a"]


def test_the_last_count_is_told_at_the_end() -> None:
    written = Written(is_json=True)
    written.log.trace("ready", node=1)
    written.log.trace("ready", node=1)
    written.log.flush(is_end=True)
    assert [json.loads(line).get("repeated") for line in written.raw] == [None, 1]


def test_a_flood_of_lines_that_differ_is_bounded_and_hides_no_other_logger() -> None:
    written = Written()
    for number in range(100_000):
        written.log.trace("session-closed", peer=number)
    assert len(written.raw) <= BURST + 2
    written.log.trace("ready", node=1)
    assert "ready node=1" in written.lines[-2:]
    written.now_ns = 10 * SECOND_NS
    written.log.trace("ready", node=2)
    dropped = [line for line in written.lines if line.startswith("lines-dropped ")]
    assert sum(int(line.split("count=")[1].split()[0]) for line in dropped) == 100_000 - BURST
    assert all(line.startswith("lines-dropped of=sparklog.network count=") for line in dropped)


def test_a_flood_that_lasts_writes_a_tenth_of_its_burst_each_second() -> None:
    written = Written()
    for second in range(60):
        written.now_ns = second * SECOND_NS
        for number in range(5_000):
            written.log.trace("session-closed", peer=(second, number))
    told = [line for line in written.lines if line.startswith("session-closed")]
    assert BURST < len(told) <= BURST + 60 * BURST // 10


def test_all_loggers_together_are_bounded_too() -> None:
    written = Written()
    events = {declared.logger: name for name, declared in EVENTS.items() if name not in ("audit", "halt")}
    written.log.loggers.set("root", DEBUG)
    for event in events.values():
        for number in range(2 * BURST):
            written.log.trace(event, number=number)
    assert len([line for line in written.lines if " number=" in line]) == 4 * BURST < len(events) * BURST


def test_a_flood_of_pairs_keeps_a_bounded_number_of_lines_in_memory() -> None:
    bounds, told = LineBounds(), 0
    for number in range(10_000):
        now_ns = number * SECOND_NS // 20
        told += sum(1 for _ in bounds.repeated(now_ns))
        line = Line("session-closed", f"session-closed peer={number}", {})
        assert bounds.admits("sparklog.network", line, now_ns)
        assert not bounds.admits("sparklog.network", line, now_ns)
    assert 10_000 - told <= REMEMBERED_MAX


def test_the_audit_log_has_bounds_of_its_own() -> None:
    written = Written()
    for _ in range(2 * BURST):
        written.log.trace("audit", principal="User:a")
    assert len(written.raw) == 2 * BURST


@pytest.mark.parametrize("is_json", [False, True])
def test_a_halt_tells_the_lines_before_it(*, is_json: bool) -> None:
    written = Written(is_json=is_json, prefix="node-2 ")
    written.log.trace("ready", node=2)
    written.log.halt("a bug:\nTraceback")
    if is_json:
        halt = json.loads(written.raw[-1])
        assert (halt["level"], halt["message"], halt["reason"]) == ("FATAL", "halt", "a bug:\nTraceback")
        assert [json.loads(line)["message"] for line in halt["last"]] == ["ready"]
    else:
        assert written.lines[1] == r"halt reason='a bug:\nTraceback' level=FATAL"
        assert written.raw[2] == "node-2 the last 1 lines before it:"
        assert written.raw[3].startswith("node-2   20")
