"""`sparklog inspect`: the content of a broker's files, and their first invalid byte."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from json import dumps
from pathlib import Path

import click

from sparklog import escapes
from sparklog.errors import DecodeError
from sparklog.model import Uuid
from sparklog.record.batch import BatchHeader, Record
from sparklog.record.compression import Codec
from sparklog.record.control import Marker, control_type, parse_control
from sparklog.wire.schema import Message
from sparklog_server.cli.printing import as_json, print_json, print_table
from sparklog_server.disk.door import Disk, DiskFile, StorageError
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.directory.log_dir import encode_uuid
from sparklog_server.log.segment.segment import offset_of
from sparklog_server.log.segment.sound_batches import Unsound, sound_batches
from sparklog_server.log_tools.examine_directory import METADATA_POINT_FILE
from sparklog_server.log_tools.examine_files import Contents, Reader, offsets, reader_of
from sparklog_server.log_tools.examine_segment import (
    SegmentCheck,
    check_segment,
    read_bounded,
    records_flaw,
    records_in,
    with_indexes,
)
from sparklog_server.log_tools.finding import Finding
from sparklog_server.metadata.records import decode_value
from sparklog_server.raft.clean_stop import FILE_NAME as CLEAN_STOP_FILE
from sparklog_server.raft.election_state import FILE_NAME, ElectionStateCorrupt, parse

EXIT_FAILURE = 1
TABLE_ROWS_MAX = 500
FINDING_COLUMNS = ("file", "position", "what", "remedy")


class Printer:
    """Prints rows: JSON objects line by line, lines with tabs that begin with the row's kind, or tables on a
    terminal.
    """

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self._is_table = not is_json and sys.stdout.isatty()
        self._kind = ""
        self._columns: tuple[str, ...] = ()
        self._rows: list[list[str]] = []

    def row(self, kind: str, row: Mapping[str, object], *, path: str | None = None) -> None:
        """Print one row; `path` appears only in JSON, where each line must be complete."""
        if self._is_json:
            print_json({"kind": kind} | ({} if path is None else {"file": path}) | dict(row))
            return
        texts = [one_line(value) for value in row.values()]
        if not self._is_table:
            sys.stdout.write("\t".join([kind, *texts]) + "\n")
            return
        if (kind, tuple(row)) != (self._kind, self._columns) or len(self._rows) >= TABLE_ROWS_MAX:
            self.flush()
            self._kind, self._columns = kind, tuple(row)
        self._rows.append(texts)

    def findings(self, findings: Iterable[Finding], more: int = 0) -> None:
        """Print the findings, `damage` or `note` each."""
        for finding in findings:
            kind = "damage" if finding.is_damage else "note"
            self.row(kind, dict(zip(FINDING_COLUMNS, finding[: len(FINDING_COLUMNS)], strict=True)))
        if more:
            self.row("note", {"more": f"{more} findings more are not shown"})

    def flush(self) -> None:
        """Print the rows collected for a table."""
        if self._rows:
            print_table(
                [
                    self._columns[0] if self._kind == "file" else f"{self._kind}: {self._columns[0]}",
                    *self._columns[1:],
                ],
                self._rows,
            )
            self._rows = []
        sys.stdout.flush()


def one_line(value: object) -> str:
    """A value as text without line breaks, tabs and other control characters; None is empty, lists and dicts
    are JSON.
    """
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return escapes.json_text(dumps(value, ensure_ascii=False, separators=(",", ":")))
    return escapes.cell(value.decode(errors="backslashreplace") if isinstance(value, bytes) else value)


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(exists=True))
@click.option(
    "--deep",
    "is_deep",
    is_flag=True,
    help="Include the records of each batch; for a directory, also the content of each file.",
)
@as_json
def inspect(paths: tuple[str, ...], is_deep: bool, is_json: bool) -> int:
    """Show and check files of a broker: segments, indexes, snapshots, checkpoints, metadata.

    Reads only; a broker may be running. Each problem lists file, byte, cause and remedy; the
    exit code is 1 if there is damage.
    """
    inspection = Inspection(OsDisk(is_read_only=True), Printer(is_json=is_json), is_deep=is_deep)
    try:
        for path in paths:
            if Path(path).is_dir():
                inspection.directory(path)
            else:
                inspection.file(path, is_summary=False)
    except StorageError as error:
        raise click.ClickException(error.with_remedy) from error
    finally:
        inspection.printer.flush()
    return EXIT_FAILURE if inspection.is_damaged else 0


class Inspection:
    """One run over some files."""

    def __init__(self, disk: Disk, printer: Printer, *, is_deep: bool) -> None:
        self.printer = printer
        self.is_damaged = False
        self._disk = disk
        self._is_deep = is_deep

    def directory(self, path: str) -> None:
        """Inspect each file in the directory and below. Raises StorageError."""
        for name in self._disk.list(path):
            at = f"{path.rstrip('/')}/{name}"
            if Path(at).is_dir():
                self.directory(at)
            elif Path(at).is_file():
                self.file(at, is_summary=True)

    def file(self, path: str, *, is_summary: bool) -> None:
        """Inspect one file: a line about it, and its content unless only the line is wanted. Raises
        StorageError.
        """
        name = path.rpartition("/")[2]
        if name.endswith((".log", ".checkpoint")):
            self._batches(path, is_shown=not is_summary or self._is_deep)
            return
        reader = reader_of(name, other_readers())
        if reader is None:
            self._summary(path, "unknown", self._disk.open(path).size)
            return
        self._small(path, reader, is_summary=is_summary)

    def _summary(self, path: str, kind: str, size: int, **more: object) -> None:
        facts: dict[str, object] = {
            "path": path,
            "type": kind,
            "bytes": size,
            "entries": None,
            "first_offset": None,
            "last_offset": None,
        }
        self.printer.row("file", facts | more)

    def _told(self, findings: Sequence[Finding], more: int = 0) -> None:
        self.is_damaged |= any(finding.is_damage for finding in findings)
        self.printer.findings(findings, more)

    def _small(self, path: str, reader: Reader, *, is_summary: bool) -> None:
        content = read_bounded(self._disk, path)
        contents: Contents = reader(content, path)
        if not is_summary or self._is_deep:
            for row in contents.rows:
                self.printer.row(contents.kind, row, path=path)
        self._summary(path, contents.kind, len(content), entries=len(contents.rows))
        log_path = f"{path.rpartition('.')[0]}.log"
        if not path.endswith("index") or not Path(log_path).is_file():
            self._told(contents.findings)
        elif not is_summary:
            # The log has more information than its index; in a directory the index is shown with the log.
            checked = [finding for finding in self._check(log_path).all_findings if finding.path == path]
            self._told(checked or contents.findings)

    # -- batches

    def _check(self, path: str) -> SegmentCheck:
        """A check of the log at `path`, with the indexes beside it."""
        return check_segment(self._new_check(path), self._disk.open(path))

    def _new_check(self, path: str) -> SegmentCheck:
        directory, _, name = path.rpartition("/")
        base_offset = offset_of(name, ".log")
        check = SegmentCheck(path, base_offset or 0)
        if base_offset is None:
            return check  # a snapshot of the metadata, or a log under another name
        return with_indexes(
            check, self._disk, directory or ".", frozenset(self._disk.list(directory or ".")), {}
        )

    def _batches(self, path: str, *, is_shown: bool) -> None:
        log = self._disk.open(path)
        check = self._new_check(path)
        for found in sound_batches(log):
            if isinstance(found, Unsound):
                check.missed(found)
                if is_shown:
                    self.printer.row("unsound", found._asdict(), path=path)
                continue
            check.saw(found)
            for position, header in found if is_shown or self._is_deep else ():
                if is_shown:
                    self.printer.row("batch", batch_row(position, header), path=path)
                flaw = records_flaw(log, position, header) if self._is_deep else None
                if flaw is not None:
                    check.found(*flaw)
                elif self._is_deep and is_shown:
                    self._records(path, log, position, header)
        check.finish(log)
        kind = "metadata-snapshot" if path.endswith(".checkpoint") else "segment"
        self._summary(
            path,
            kind,
            log.size,
            entries=check.batches,
            first_offset=check.first_offset,
            last_offset=check.end_offset - 1,
        )
        self._told(check.all_findings, check.more)

    def _records(self, path: str, log: DiskFile, position: int, header: BatchHeader) -> None:
        is_control = bool(header.attributes & 0x20)
        is_metadata = path.endswith(".checkpoint") or "__cluster_metadata-0" in Path(path).absolute().parts
        for record in records_in(log, position, header):
            place: dict[str, object] = {"offset": record.offset, "timestamp": record.timestamp}
            if not is_control and not is_metadata:
                row = place | {"key": record.key, "value": record.value, "headers": headers_text(record)}
                self.printer.row("record", row, path=path)
                continue
            try:
                name, fields = control_fields(record) if is_control else metadata_fields(record)
            except DecodeError as error:
                name, fields = "unreadable", {"error": str(error)}
            self.printer.row(
                "control" if is_control else "metadata", place | {"name": name, "fields": fields}, path=path
            )


def batch_row(position: int, batch: BatchHeader) -> dict[str, object]:
    """A batch's header as fields of a row."""
    codec = batch.attributes & 0x07
    said = {
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "delete-horizon": batch.has_delete_horizon,
    }
    return {
        "position": position,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "bytes": batch.size,
        "leader_epoch": batch.leader_epoch,
        "codec": Codec(codec).name.lower() if codec <= max(Codec) else f"unknown-{codec}",
        "timestamp_type": "LogAppendTime" if batch.timestamp_type else "CreateTime",
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "attributes": ",".join(name for name, is_so in said.items() if is_so),
        "crc": batch.crc,
    }


def headers_text(record: Record) -> object:
    """The headers of a record as pairs, because a key may occur twice."""
    return [
        [name, None if value is None else value.decode(errors="backslashreplace")]
        for name, value in record.headers
    ]


def metadata_fields(record: Record) -> tuple[str, dict[str, object]]:
    """The name and fields of a record of the metadata log. Raises DecodeError."""
    message = decode_value(record.value)
    return type(message).__name__, fields_of(message)


def control_fields(record: Record) -> tuple[str, dict[str, object]]:
    """The name and fields of a control record. Raises DecodeError."""
    kind, message = control_type(record.key), parse_control(record)
    if kind is None or message is None:
        return "unknown", {"key": (record.key or b"").hex()}
    return kind.name, {"coordinator_epoch": message.coordinator_epoch} if isinstance(
        message, Marker
    ) else fields_of(message)


def fields_of(message: Message) -> dict[str, object]:
    """The fields of a message by name; sixteen bytes appear as Kafka writes a UUID, others in hexadecimal."""
    return {name: plain(getattr(message, name)) for name in message.__struct_fields__}


def plain(value: object) -> object:
    if isinstance(value, bytes):
        return encode_uuid(Uuid(value)) if len(value) == 16 else value.hex()
    if isinstance(value, Message):
        return fields_of(value)
    return [plain(one) for one in value] if isinstance(value, list) else value


def other_readers() -> Mapping[str, Reader]:
    """The readers of files in a log directory that do not belong to a log."""

    def election_state(content: bytes, path: str) -> Contents:
        try:
            parse(content, path)
            found = json.loads(content)
        except ElectionStateCorrupt as error:
            position = getattr(error.__cause__, "pos", 0)
            return Contents("quorum-state", [], [Finding(path, position, error.reason, error.remedy)])
        return Contents("quorum-state", [{"key": key, "value": value} for key, value in found.items()], [])

    return {FILE_NAME: election_state, CLEAN_STOP_FILE: offsets, METADATA_POINT_FILE: offsets}
