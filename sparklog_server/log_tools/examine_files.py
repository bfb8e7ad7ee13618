"""Readers of the small files of a log directory: their rows, and the first invalid byte.

The text files have no checksum. A line that parses is accepted here; `examine_directory` compares it with the
other files.
"""

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_lines, parse_properties
from sparklog_server.log.directory.checkpoints import HIGH_WATERMARK_FILE, LOG_START_FILE
from sparklog_server.log.directory.identity import META_KEYS
from sparklog_server.log.directory.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    META_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    decode_uuid,
)
from sparklog_server.log.producers.producer_state import ProducerState, SnapshotCorrupt
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE, LeaderEpochCache
from sparklog_server.log.segment.offset_index import OffsetIndex
from sparklog_server.log.segment.segment import INDEX_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, offset_of
from sparklog_server.log.segment.sound_batches import altered_byte
from sparklog_server.log.segment.time_index import TimeIndex
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX, TxnIndexCorrupt, parse

from .examine_indexes import written_entries
from .finding import Finding

CLEANER_FILE = "cleaner-offset-checkpoint"
OFFSET_FILES = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, CLEANER_FILE)
REBUILT = "remove the file while the broker is stopped: the next start rebuilds it from the log"
CORRECT = (
    "correct the line, restore the file from a copy, or run `sparklog log repair`, which keeps the readable "
    "lines"
)
_CRC_END = 6

Row = Mapping[str, object]
Reader = Callable[[bytes, str], "Contents"]


class Contents(NamedTuple):
    """The rows of a file, and its fault."""

    kind: str
    rows: list[Row]
    findings: list[Finding]


def offset_index(content: bytes, path: str) -> Contents:
    """The entries of a `.index`, with offsets relative to the segment's base offset."""
    index = OffsetIndex(written_entries(content, 8)[0])
    base = _base_offset(path, INDEX_SUFFIX)
    return Contents(
        "offset-index",
        [
            {"offset": base + offset, "position": position}
            for offset, position in zip(index.offsets, index.positions, strict=True)
        ],
        _first_fall(path, 8, list(zip(index.offsets, index.positions, strict=True)), is_strict=(True, True)),
    )


def time_index(content: bytes, path: str) -> Contents:
    """The entries of a `.timeindex`."""
    index = TimeIndex(written_entries(content, 12)[0])
    base = _base_offset(path, TIME_INDEX_SUFFIX)
    return Contents(
        "time-index",
        [
            {"timestamp": timestamp, "offset": base + offset}
            for timestamp, offset in zip(index.timestamps, index.offsets, strict=True)
        ],
        _first_fall(
            path, 12, list(zip(index.timestamps, index.offsets, strict=True)), is_strict=(True, False)
        ),
    )


def _first_fall(
    path: str, entry_size: int, entries: list[tuple[int, int]], *, is_strict: tuple[bool, bool]
) -> list[Finding]:
    """A finding for the first entry that is not greater than the one before it."""
    before = (-1, -1)
    for number, entry in enumerate(entries):
        for column in (0, 1):
            if entry[column] < before[column] or (is_strict[column] and entry[column] == before[column]):
                at = number * entry_size + (entry_size - 4) * column
                return [
                    Finding(
                        path,
                        at,
                        f"entry {number} goes back: {entry[column]} behind {before[column]}",
                        REBUILT,
                    )
                ]
        before = entry
    return []


def _base_offset(path: str, suffix: str) -> int:
    return offset_of(path.rpartition("/")[2], suffix) or 0


def txn_index(content: bytes, path: str) -> Contents:
    """The aborted transactions of a `.txnindex`."""
    rows: list[Row] = []
    try:
        for aborted in parse(
            content[: len(content) - len(content) % 34], _base_offset(path, TXN_INDEX_SUFFIX)
        ):
            rows.append(aborted._asdict())
    except TxnIndexCorrupt as error:
        return Contents(
            "transaction-index",
            rows,
            [Finding(path, len(rows) * 34, str(error), "restore the file from a copy")],
        )
    return Contents("transaction-index", rows, [])


def producer_snapshot(content: bytes, path: str) -> Contents:
    """The producers of a `.snapshot`."""
    try:
        state = ProducerState.parse(content)
    except SnapshotCorrupt as error:
        return Contents(
            "producer-snapshot", [], [Finding(path, _snapshot_byte(content), str(error), REBUILT)]
        )
    rows: list[Row] = []
    for producer_id, producer in sorted(state.producers.items()):
        last = producer.batches[-1] if producer.batches else None
        rows.append(
            {
                "producer_id": producer_id,
                "epoch": producer.epoch,
                "last_sequence": -1 if last is None else last[1],
                "last_offset": -1 if last is None else last[3],
                "timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "transaction_start": producer.transaction_start,
            }
        )
    return Contents("producer-snapshot", rows, [])


def _snapshot_byte(content: bytes) -> int:
    """The first byte of a snapshot that cannot be valid, as far as it can be determined."""
    if len(content) < _CRC_END or content[0]:
        return 0
    if content[1] != 1:
        return 1
    index = altered_byte(content[_CRC_END:], int.from_bytes(content[2:_CRC_END], "big"))
    if index is not None:
        return _CRC_END + index
    return len(content) if (len(content) - 10) % 46 else 2


# -- text


def epochs(content: bytes, path: str) -> Contents:
    """The entries of `leader-epoch-checkpoint`."""
    rows, findings = _lines(content, path, ("epoch", "start_offset"), REBUILT)
    if content and not findings:
        try:
            LeaderEpochCache.parse(content)
        except CheckpointCorrupt as error:
            at = next((n for n in range(1, len(rows) + 1) if not _is_epochs(rows[:n])), len(rows))
            findings.append(Finding(path, _line_start(content, at + 1), str(error), REBUILT))
    return Contents("leader-epochs", rows, findings)


def _is_epochs(rows: list[Row]) -> bool:
    try:
        LeaderEpochCache.parse(
            "".join(
                ["0\n", f"{len(rows)}\n", *(f"{row['epoch']} {row['start_offset']}\n" for row in rows)]
            ).encode()
        )
    except CheckpointCorrupt:
        return False
    return True


def offsets(content: bytes, path: str) -> Contents:
    """`topic partition offset` of one of the checkpoints of a directory."""
    rows, findings = _lines(content, path, ("topic", "partition", "offset"), REBUILT)
    return Contents("offsets", rows, findings)


def _lines(
    content: bytes, path: str, columns: tuple[str, ...], remedy: str
) -> tuple[list[Row], list[Finding]]:
    """The entries of a checkpoint as rows: all that parse before the first that does not."""
    rows: list[Row] = []
    if not content:
        return rows, []  # the content of a new file, before Kafka writes the first entry
    lines = content.decode(errors="replace").splitlines()
    for number, line in enumerate(lines[2:], 2):
        words = line.split()
        names = [name for name in columns if name != "topic"]
        numbers = words[len(words) - len(names) :]
        if len(words) != len(columns) or not all(_is_number(word) for word in numbers):
            return rows, [
                Finding(
                    path, _line_start(content, number), f"{line[:100]!r} is not `{' '.join(columns)}`", remedy
                )
            ]
        rows.append(dict(zip(columns, [*words[: len(words) - len(names)], *map(int, numbers)], strict=True)))
    try:
        parse_lines(content)
    except CheckpointCorrupt as error:
        at = 0 if not lines or lines[0].strip() != "0" else _line_start(content, 1)
        return rows, [Finding(path, at, str(error), remedy)]
    return rows, []


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) <= 19


def _line_start(content: bytes, number: int) -> int:
    """The byte at which line `number` begins, counted from 0."""
    return sum(map(len, content.splitlines(keepends=True)[:number]))


def properties(content: bytes, path: str) -> Contents:
    """`meta.properties`."""
    try:
        found = parse_properties(content)
    except CheckpointCorrupt as error:
        return Contents("properties", [], [Finding(path, 0, str(error), CORRECT)])
    findings = [
        Finding(path, None, f"{key} is missing", CORRECT)
        for key in ("version", "cluster.id", "node.id")
        if not found.get(key)
    ]
    strange = sorted(found.keys() - META_KEYS)
    if "directory.id" not in found and strange:
        at = content.find(strange[0].encode())
        findings.append(Finding(path, at, f"directory.id is missing, but there is {strange[0]!r}", CORRECT))
    if "directory.id" in found and not _is_uuid(found["directory.id"]):
        at = content.find(b"directory.id")
        findings.append(
            Finding(
                path, at, f"directory.id is {found['directory.id']!r}, which is no UUID in base64", CORRECT
            )
        )
    if found.get("version", "1") != "1":
        findings.append(
            Finding(path, content.find(b"version"), f"version is {found['version']}, but 1 is known", CORRECT)
        )
    if "node.id" in found and not _is_number(found["node.id"]):
        findings.append(Finding(path, content.find(b"node.id"), f"node.id is {found['node.id']!r}", CORRECT))
    return Contents("properties", [{"key": key, "value": value} for key, value in found.items()], findings)


def partition_metadata(content: bytes, path: str) -> Contents:
    """`partition.metadata`: the id of the topic."""
    found: dict[str, str] = {}
    for line in content.decode(errors="replace").splitlines():
        key, colon, value = line.partition(":")
        if colon and ":" not in value:
            found[key.strip()] = value.strip()
    findings = []
    if found.get("version") != "0":
        findings.append(Finding(path, 0, f"version is {found.get('version')}, but 0 is known", CORRECT))
    if not _is_uuid(found.get("topic_id", "")):
        at = max(content.find(b"topic_id"), 0)
        findings.append(
            Finding(path, at, f"topic_id is {found.get('topic_id')!r}, which is no UUID in base64", CORRECT)
        )
    return Contents(
        "partition-metadata", [{"key": key, "value": value} for key, value in found.items()], findings
    )


def clean_shutdown(content: bytes, path: str) -> Contents:
    """`.kafka_cleanshutdown`: the mark of a clean stop."""
    try:
        found = json.loads(content)
    except ValueError as error:
        at = error.pos if isinstance(error, json.JSONDecodeError) else 0
        return Contents(
            "clean-shutdown",
            [],
            [Finding(path, at, f"not JSON: {error}", "remove the file: the logs are recovered then")],
        )
    rows: list[Row] = (
        [{"key": key, "value": value} for key, value in found.items()] if isinstance(found, dict) else []
    )
    return Contents("clean-shutdown", rows, [])


def _is_uuid(text: str) -> bool:
    try:
        return len(text) == 22 and len(decode_uuid(text)) == 16
    except ValueError:
        return False


READERS: Mapping[str, Reader] = {
    EPOCH_FILE: epochs,
    META_FILE: properties,
    PARTITION_METADATA_FILE: partition_metadata,
    CLEAN_SHUTDOWN_FILE: clean_shutdown,
    **dict.fromkeys(OFFSET_FILES, offsets),
    INDEX_SUFFIX: offset_index,
    TIME_INDEX_SUFFIX: time_index,
    TXN_INDEX_SUFFIX: txn_index,
    SNAPSHOT_SUFFIX: producer_snapshot,
}
"""Readers by file name, or by the suffix of a name that is an offset."""


def reader_of(name: str, also: Mapping[str, Reader]) -> Reader | None:
    """The reader for a file name; `also` has readers of files outside the log."""
    known = {**READERS, **also}
    if name in known:
        return known[name]
    suffix = name[name.rfind(".") :] if "." in name else ""
    return known.get(suffix) if offset_of(name, suffix) is not None else None
