"""Records as a file: JSON lines as `sparklog consume --json` prints them, and CSV."""

import csv
import io
from collections.abc import Sequence
from typing import Final

from sparklog.client.consumer.records import ConsumerRecord
from sparklog_server.operations.json_records import RECORD_FIELDS, json_text

_COLUMNS: Final = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def as_json_lines(records: Sequence[ConsumerRecord]) -> str:
    """An object for each record, which `sparklog produce --from-json` reads."""
    return "".join(json_text({name: getattr(record, name) for name in RECORD_FIELDS}) for record in records)


def as_csv(records: Sequence[ConsumerRecord]) -> str:
    """A row for each record, below one of names. Null is an empty field, bytes that are not UTF-8 are `0x`
    and hexadecimal digits, headers are a list of JSON. An apostrophe stands before text that a spreadsheet
    would take for a formula.
    """
    file = io.StringIO()
    rows = csv.writer(file)
    rows.writerow(_COLUMNS)
    for one in records:
        headers = json_text(one.headers).rstrip() if one.headers else ""
        place = (one.topic, one.partition, one.offset, one.timestamp_ms)
        rows.writerow((*place, _cell(one.key), _cell(one.value), headers))
    return file.getvalue()


def _cell(content: bytes | None) -> str:
    if content is None:
        return ""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
