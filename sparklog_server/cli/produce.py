"""`sparklog produce`: writes lines, whole files or JSON as records."""

import sys
from collections.abc import Iterator
from os import fsencode
from typing import IO, Any, NamedTuple

import click
import msgspec

from sparklog.client.admin.admin import Admin, ItemsFailed, NewTopic
from sparklog.client.failures import UnknownTopic
from sparklog.client.producer.producer import Producer, RecordMetadata
from sparklog.client.settings import ClientSettings
from sparklog.errors import ErrorCode, RequestTimeout
from sparklog_server.cli.admin import topic_names
from sparklog_server.cli.formats import unescaped
from sparklog_server.cli.option_values import duration_option
from sparklog_server.cli.options import client_map, client_settings, reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, report
from sparklog_server.cli.reach import Reach
from sparklog_server.operations.json_records import JsonRecord, content_of, value_of
from sparklog_server.operations.similar_names import absent

TIMEOUT_MS = 30_000
TOLD_EVERY_MS = 5_000
_DELIVERY = {"delivery.timeout.ms", "request.timeout.ms", "linger.ms"}
READ_BYTES = 1 << 16
PIECE_BYTES_MAX = 64 << 20
INT64_MAX = (1 << 63) - 1


class NewRecord(NamedTuple):
    """A record to write; the producer chooses a partition or timestamp of None."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument(
    "files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False, allow_dash=True)
)
@click.option(
    "-K",
    "--key-separator",
    metavar="TEXT",
    help="Split each line into key and value at TEXT; without it, lines are values.",
)
@click.option(
    "-D", "--delimiter", metavar="TEXT", default="\\n", show_default=True, help="Split records at TEXT."
)
@click.option("-k", "--key", help="Set the key of every record.")
@click.option(
    "-H",
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="Add a header to every record. Repeatable.",
)
@click.option("-p", "--partition", type=click.IntRange(0), help="Write to this partition only.")
@click.option(
    "-T",
    "--timestamp",
    metavar="MS",
    type=click.IntRange(0, INT64_MAX),
    help="Set the timestamp of every record, in ms of Unix time.",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Set the compression codec.",
)
@click.option(
    "-a",
    "--acks",
    type=click.Choice(["all", "1", "0", "-1"]),
    help="Set the acknowledgements that each record needs.",
)
@click.option(
    "-Z",
    "--null",
    is_flag=True,
    help="Write an empty value or key as null: a tombstone in a compacted topic.",
)
@click.option("--whole-files", is_flag=True, help="Write each FILE as the value of one record.")
@click.option(
    "--from-json",
    is_flag=True,
    help="Read each line as an object in the format of `consume --json`; its topic and offset are ignored, "
    "and so is its partition without --keep-partitions.",
)
@click.option(
    "--keep-partitions",
    is_flag=True,
    help="With --from-json, write each record to the partition that its line names.",
)
@click.option(
    "--create",
    "is_created",
    is_flag=True,
    help="Create TOPIC with the broker's defaults if it does not exist. [default: ask on a terminal, fail "
    "elsewhere]",
)
@click.option(
    "--timeout",
    "timeout_ms",
    metavar="DURATION",
    callback=duration_option,
    help="Fail when a record is not acknowledged after this long: 10s, 500ms. If given, wait as long for "
    "a broker to become reachable. [default: 30s]",
)
@reaches_cluster
@as_json
def produce(
    topic: str,
    files: tuple[str, ...],
    key_separator: str | None,
    delimiter: str,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    timestamp: int | None,
    compression: str | None,
    acks: str | None,
    null: bool,
    whole_files: bool,
    from_json: bool,
    keep_partitions: bool,
    is_created: bool,
    timeout_ms: int | None,
    is_json: bool,
) -> None:
    """Write each line of FILEs, or of standard input, to TOPIC as one record.

    Exits 0 when every record is acknowledged. --json prints their number.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key gives every record the same key: leave --key-separator out")
    if from_json and whole_files:
        raise click.UsageError("--from-json reads lines: leave --whole-files out")
    if keep_partitions and (not from_json or partition is not None):
        raise click.UsageError(
            "--keep-partitions takes the partitions from the lines of --from-json: leave --partition out"
        )
    separator = None if key_separator is None else unescaped(key_separator, "--key-separator")
    pieces = _whole(files) if whole_files else _lines(files, unescaped(delimiter, "--delimiter"))
    common = NewRecord(None if key is None else fsencode(key), b"", _headers(headers), partition, timestamp)
    more = {
        name: value
        for name, value in (("compression_type", compression), ("acks", acks))
        if value is not None
    }
    failures: list[BaseException] = []
    count = 0

    def delivered(_metadata: RecordMetadata | None, error: BaseException | None) -> None:
        if error is not None:
            failures.append(error)

    settings = client_settings(wait_ms=timeout_ms, **_patience(timeout_ms), **more)
    _require_topic(settings, topic, is_created=is_created)
    with Reach(settings.bootstrap_servers), Producer.from_settings(settings) as producer:
        producer.partitions_for(topic)  # so that a line with a partition that the topic lacks is refused here
        for number, piece in enumerate(pieces, start=1):
            if from_json:
                record = new_record(piece, number, common, keeps_partition=keep_partitions)
            else:
                record = _record(piece, separator, number, common, is_empty_null=null)
            try:
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    on_delivery=delivered,
                )
            except UnknownTopic as error:
                if not keep_partitions or record.partition is None:
                    raise
                raise click.ClickException(
                    f"line {number}: {error}; the {count} lines before it were written. Give the topic as "
                    "many partitions (`sparklog topics add-partitions`), or leave --keep-partitions out"
                ) from None
            count = number
            if failures:
                break
        _flush(producer)
    if failures:
        raise click.ClickException(str(failures[0]))
    if is_json:
        print_json({"topic": topic, "records": count})
    elif count:
        report(f"wrote {count} record{'s' * (count != 1)} to {topic}")
    else:
        report(f"nothing was written to {topic}: the input has no lines")


def _require_topic(settings: ClientSettings, topic: str, *, is_created: bool) -> None:
    """Create an absent topic if --create or the user says so, and refuse it otherwise: a broker would
    create a topic of a misspelt name.
    """
    with Admin.from_settings(settings) as cluster:
        try:
            cluster.describe_topics([topic])
        except UnknownTopic:
            existing = cluster.list_topics()
        else:
            return
        if not is_created and not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.ClickException(absent("topic", topic, existing, "--create creates it"))
        if not is_created:
            click.confirm(absent("topic", topic, existing, f"Create {topic!r}?"), abort=True, err=True)
        try:
            cluster.create_topics([NewTopic(topic)])
        except ItemsFailed as failed:
            if failed.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def _patience(timeout_ms: int | None) -> dict[str, str]:
    """The settings of a producer that gives up in time; none if files or --set have their own."""
    if timeout_ms is None:
        if _DELIVERY.intersection(client_map()):
            return {}
        timeout_ms = TIMEOUT_MS
    return {
        "delivery_timeout_ms": str(timeout_ms),
        "max_block_ms": str(timeout_ms),
        # A request that a broker leaves unanswered is tried once more within that time.
        "request_timeout_ms": str(max(1, timeout_ms // 2)),
    }


def _flush(producer: Producer[Any, Any]) -> None:
    """Wait until every record is acknowledged or given up, and tell that it takes time."""
    while True:
        try:
            return producer.flush(TOLD_EVERY_MS)
        except RequestTimeout:
            report("sparklog: waiting for acknowledgements, retrying")


def _headers(texts: tuple[str, ...]) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of `name=value` texts; `name` alone is null, and a name may occur twice."""
    parted = [text.partition("=") for text in texts]
    for name, _, _ in parted:
        if not name:
            raise click.BadParameter("a header needs a name: NAME=VALUE", param_hint="--header")
    return tuple((name, fsencode(value) if equals else None) for name, equals, value in parted)


def _record(
    piece: bytes, separator: bytes | None, number: int, common: NewRecord, *, is_empty_null: bool
) -> NewRecord:
    key, value = common.key, piece
    if separator is not None:
        key, found, value = piece.partition(separator)
        if not found:
            raise click.ClickException(
                f"line {number} has no {separator.decode(errors='replace')!r} between key and value; the "
                f"lines before it were written"
            )
    if is_empty_null:
        return common._replace(key=key or None, value=value or None)
    return common._replace(key=key, value=value)


def new_record(piece: bytes, number: int, common: NewRecord, *, keeps_partition: bool) -> NewRecord:
    """The record of a line of `consume --json`; `common` has the values of missing fields."""
    try:
        parsed = msgspec.json.decode(piece, type=JsonRecord)
        value = value_of(parsed)
    except ValueError as error:  # which those of msgspec and of UTF-8 are
        raise click.ClickException(
            f"line {number} is no record in JSON: {error}; the lines before it were written"
        ) from None
    return NewRecord(
        common.key if parsed.key is None else content_of(parsed.key),
        value,
        tuple((name, content_of(value)) for name, value in parsed.headers) + common.headers,
        parsed.partition if keeps_partition else common.partition,
        parsed.timestamp_ms if common.timestamp_ms is None else common.timestamp_ms,
    )


def _whole(files: tuple[str, ...]) -> Iterator[bytes]:
    for file in files or ("-",):
        with click.open_file(file, "rb") as stream:
            content: bytes = stream.read(PIECE_BYTES_MAX + 1)
        if len(content) > PIECE_BYTES_MAX:
            raise click.ClickException(
                f"{file} has more than {PIECE_BYTES_MAX} bytes, which is too much for one record"
            )
        yield content


def _lines(files: tuple[str, ...], delimiter: bytes) -> Iterator[bytes]:
    """The pieces between delimiters; a delimiter at the end starts no piece."""
    for file in files or ("-",):
        with click.open_file(file, "rb") as stream:
            yield from (
                (line.removesuffix(b"\n") for line in stream)
                if delimiter == b"\n"
                else _pieces(stream, delimiter)
            )


def _pieces(stream: IO[bytes], delimiter: bytes) -> Iterator[bytes]:
    if not delimiter:
        raise click.BadParameter("it must not be empty", param_hint="--delimiter")
    rest = b""
    while chunk := stream.read(READ_BYTES):
        *whole, rest = (rest + chunk).split(delimiter)
        yield from whole
        if len(rest) > PIECE_BYTES_MAX:
            raise click.ClickException(
                f"no delimiter in {len(rest)} bytes; set --delimiter to the separator of the records"
            )
    if rest:
        yield rest
