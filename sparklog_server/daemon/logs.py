"""The log: one line per state transition, `time event key=value …`, on stderr. A line of the audit log is one
JSON object instead, for programs.

The lines have one form, one destination and no levels, so they are written straight to the stream: importing
the standard library's logging would only lengthen the start.
"""

import time
from collections import deque
from typing import Final, TextIO

KEPT_LINES: Final = 200
AUDIT_EVENT: Final = "audit"


class TraceLog:
    """Writes each line at once and keeps the last ones, which `halt` prints. `prefix` begins each line: the
    processes of a cluster share one stream.
    """

    def __init__(self, stream: TextIO, prefix: str = "") -> None:
        self._stream = stream
        self._prefix = prefix
        self._last: deque[str] = deque(maxlen=KEPT_LINES)

    def trace(self, event: str, **fields: object) -> None:
        """Write one line. A value with a space or a quote is quoted, so that the line can be parsed."""
        if event == AUDIT_EVENT:
            text = _json_line({"time": _timestamp(), "event": event, **fields})
        else:
            pairs = (f"{key}={_value(value)}" for key, value in fields.items())
            text = " ".join([_timestamp(), event, *pairs])
        self._last.append(text)
        self._write(text)

    def halt(self, reason: str) -> None:
        """Log an unexpected end: its cause and the events before it."""
        last = list(self._last)
        self.trace("halt", reason=reason)
        self._write("\n".join([f"the last {len(last)} lines before it:", *(f"  {line}" for line in last)]))

    def _write(self, text: str) -> None:
        if self._prefix:
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


def _json_line(fields: dict[str, object]) -> str:
    import json  # a broker without an authorizer writes no such line

    return json.dumps(fields)


def _value(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(character in text for character in " \"'=\n\r\t") else text
