"""A line of the audit log is one JSON object; every other line has the form of the log."""

import io
import json

from sparklog_server.daemon.logs import AUDIT_EVENT, TraceLog
from sparklog_server.security.audit import EVENT


def test_an_audit_line_is_json_and_stays_one_line_whatever_a_client_calls_itself() -> None:
    stream = io.StringIO()
    TraceLog(stream).trace(EVENT, principal='User:"a"\n\u202e', count=2)
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert (told.pop("time")[:2], told) == (
        "20",
        {"event": AUDIT_EVENT, "principal": 'User:"a"\n\u202e', "count": 2},
    )


def test_other_lines_are_as_before() -> None:
    stream = io.StringIO()
    TraceLog(stream).trace("settings-changed", keys="a,b")
    assert stream.getvalue().endswith(" settings-changed keys=a,b\n")
