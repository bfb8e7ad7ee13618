"""The log: one line per state transition on stderr, as text, `time event key=value …`, or as JSON, an object.

A line of text whose level is not INFO ends with `level=…`. What a peer has sent is inert in both forms:
quoted where it is not plain, without control characters, and of bounded length. `loggers` declares the
events, `line_bounds` says which lines are written. A line of the audit log is JSON in both forms.

The lines are written straight to the stream: importing the standard library's logging would only lengthen the
start.
"""

import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final, TextIO

from sparklog import escapes
from sparklog_server.daemon.line_bounds import Line, LineBounds
from sparklog_server.loggers import EVENTS, INFO, Event, Loggers

KEPT_LINES: Final = 200
AUDIT_EVENT: Final = "audit"
VALUE_CHARS_MAX: Final = 1_024
_UNDECLARED: Final = Event("sparklog.broker", INFO)
_UNBOUNDED: Final = (AUDIT_EVENT, "halt")
"""Events whose lines are all written: the audit log has bounds of its own."""


class TraceLog:
    """Writes each line at once and keeps the last ones, which `halt` prints. `prefix` begins each line of
    text, and is a field of JSON: the processes of a cluster share one stream. `loggers` are those of the
    broker, once it is open.
    """

    def __init__(
        self,
        stream: TextIO,
        prefix: str = "",
        *,
        is_json: bool = False,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.loggers = Loggers()
        self.is_json = is_json
        self._stream = stream
        self._prefix = prefix
        self._last: deque[str] = deque(maxlen=KEPT_LINES)
        self._events: deque[str] = deque(maxlen=KEPT_LINES)
        self._bounds = LineBounds()
        self._clock_ns = clock_ns
        self._writing = Lock()  # a job may write a line too

    def trace(self, event: str, **fields: object) -> None:
        """Write one line, unless its logger is set to another level or there are too many."""
        declared = EVENTS.get(event, _UNDECLARED)
        if not self.loggers.is_written(declared):
            return
        inert = {key: _inert(value) for key, value in fields.items()}
        line = Line(event, _text_of(event, inert), inert)
        now_ns = self._clock_ns()
        with self._writing:
            self._tell_counts(now_ns)
            if event in _UNBOUNDED or self._bounds.admits(declared.logger, line, now_ns):
                self._tell(line, declared)

    def flush(self, *, is_end: bool = False) -> None:
        """Tell how often lines were repeated, of those whose time is over."""
        with self._writing:
            self._tell_counts(self._clock_ns(), is_end=is_end)

    def events(self) -> list[str]:
        """The last lines, without those of the audit, which are for its readers."""
        with self._writing:
            return list(self._events)

    def halt(self, reason: str) -> None:
        """Log an unexpected end: its cause and the events before it."""
        last = list(self._last)
        if self.is_json:
            self._write(self._json_line("halt", EVENTS["halt"], {"reason": reason, "last": last}))
            return
        self._write(f"{_timestamp()} halt reason={reason!r} level=FATAL")
        self._write("\n".join([f"the last {len(last)} lines before it:", *(f"  {line}" for line in last)]))

    def _tell_counts(self, now_ns: int, *, is_end: bool = False) -> None:
        for written in self._bounds.repeated(now_ns, is_end=is_end):
            fields = {**written.line.fields, "repeated": written.times}
            line = Line(written.line.event, f"{written.line.text} repeated={written.times}", fields)
            self._tell(line, EVENTS.get(line.event, _UNDECLARED))
        if self._bounds.dropped:
            for logger, count in self._bounds.take_dropped(now_ns, is_end=is_end).items():
                fields = {"of": logger, "count": count}
                self._tell(
                    Line("lines-dropped", _text_of("lines-dropped", fields), fields), EVENTS["lines-dropped"]
                )

    def _tell(self, line: Line, declared: Event) -> None:
        fields = {"event": line.event, **line.fields} if line.event == AUDIT_EVENT else line.fields
        if self.is_json:
            text = self._json_line(line.event, declared, fields)
        elif line.event == AUDIT_EVENT:
            text = _json_object({"time": _timestamp(), **fields})
        else:
            level = "" if declared.level is INFO else f" level={declared.level.name}"
            text = f"{_timestamp()} {line.text}{level}"
        self._last.append(text)
        if line.event != AUDIT_EVENT:
            self._events.append(text)
        self._write(text)

    def _json_line(self, event: str, declared: Event, fields: dict[str, object]) -> str:
        own: dict[str, object] = {
            "time": _timestamp(),
            "level": declared.level.name,
            "logger": declared.logger,
            "message": event,
        }
        if self._prefix:
            own["process"] = self._prefix.strip()
        return _json_object(own | {f"{key}_" if key in own else key: value for key, value in fields.items()})

    def _write(self, text: str) -> None:
        if self._prefix and not self.is_json:
            text = self._prefix + text.replace("\n", f"\n{self._prefix}")
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # the reader of the log is gone; the broker continues


def _timestamp() -> str:
    now_ns = time.time_ns()
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ns // 1_000_000_000))
    return f"{seconds}.{now_ns // 1_000_000 % 1000:03}Z"


def _text_of(event: str, fields: dict[str, object]) -> str:
    return " ".join([event, *(f"{key}={_value(value)}" for key, value in fields.items())])


def _value(value: object) -> str:
    """A value of a text line; one with a space, a quote or a character that is not printable is quoted."""
    return _bounded(escapes.log_value(str(value)), 2 * VALUE_CHARS_MAX)


def _inert(value: object) -> object:
    """A value of bounded length that JSON can express."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return _bounded(str(value), VALUE_CHARS_MAX)


def _bounded(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[:chars_max]}…({len(text)} characters)"


def _json_object(fields: dict[str, object]) -> str:
    import json  # most brokers write no such line

    return json.dumps(fields)
