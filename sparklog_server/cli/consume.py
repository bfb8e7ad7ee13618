"""`sparklog consume`: records become lines of standard output, as text, by a format, or as JSON."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic, time
from typing import NamedTuple

import click
from msgspec.structs import replace

from sparklog.client.consumer.consumer import Consumer, ConsumerRecord
from sparklog.escapes import lines, terminal
from sparklog.model import TopicPartition
from sparklog_server.cli.admin import admin, chosen, matches_names, partitions_named, topic_names
from sparklog_server.cli.formats import compiled, unescaped
from sparklog_server.cli.option_values import Position, duration_option, offsets_at, position
from sparklog_server.cli.options import client_settings, reaches_cluster
from sparklog_server.cli.printing import as_json, listed, report, say
from sparklog_server.cli.reach import Reach
from sparklog_server.cli.value_formats import FORMATS, REGISTRY, Values, values_of
from sparklog_server.operations.json_records import RECORD_FIELDS, json_text

POLL_MS = 500
POLL_RECORDS_MAX = 10_000
AWAY_MS_MAX = 30_000
"""How long a read up to the end waits for a broker to return."""
_CREATES_NOTHING = {"allow_auto_create_topics": "false"}


class Limits(NamedTuple):
    """When to stop: after so many records, after so long without one."""

    records_max: int | None
    timeout_ms: int | None


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=topic_names)
@matches_names
@click.option(
    "-o",
    "--from",
    "start",
    metavar="POSITION",
    help="Start at: beginning, end, an offset, -N (the last N of each partition), -10m (10 minutes ago), "
    "s@MS or a time in ISO 8601. [default: end; with --group: its committed offsets]",
)
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record.")
@click.option(
    "-f",
    "--format",
    "text",
    metavar="FORMAT",
    help=r"Format each record as kcat does: '%t/%p@%o %k: %s\n'; see below.",
)
@click.option("-c", "--max", "records_max", metavar="N", type=click.IntRange(0), help="Stop after N records.")
@click.option("-e", "--exit-eof", is_flag=True, help="Exit at the end offsets recorded at startup.")
@click.option(
    "--timeout",
    metavar="DURATION",
    callback=duration_option,
    help="Exit after this long without a record: 10s, 500ms; with 1 if no broker is reachable by then. "
    "[default: none; 30s without a broker for --exit-eof]",
)
@click.option("--timeout-ms", metavar="MS", type=click.IntRange(0), help="As --timeout, in ms.")
@click.option(
    "-K", "--key-separator", metavar="TEXT", help="Print the key too, with TEXT between key and value."
)
@click.option(
    "-D",
    "--delimiter",
    metavar="TEXT",
    default="\\n",
    show_default=True,
    help="Print TEXT after each record.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    metavar="N",
    type=click.IntRange(0),
    multiple=True,
    help="Read only this partition. Repeatable.",
)
@click.option(
    "-G",
    "--group",
    metavar="GROUP",
    help="Read as a member of this group, which assigns the partitions, and commit.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Set whether to read records of open and aborted transactions. [default: read_uncommitted]",
)
@click.option(
    "--value-format",
    type=click.Choice(FORMATS),
    help="Decode values and print them as JSON. A value that cannot be decoded is printed unchanged, and the "
    "exit code is 1.",
)
@click.option(
    "--schema",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Read the schema of values: Avro's in JSON, or a descriptor set of Protobuf (protoc "
    "--include_imports --descriptor_set_out).",
)
@click.option("--message", metavar="NAME", help="Select the message of the descriptor set by its full name.")
@click.option(
    "--schema-registry",
    metavar="URL",
    help="Decode each value by the schema that this registry has for its schema id. [default: "
    f"{REGISTRY} where there is no --schema]",
)
@reaches_cluster
@as_json
def consume(
    topics: tuple[str, ...],
    is_regex: bool,
    start: str | None,
    from_beginning: bool,
    text: str | None,
    records_max: int | None,
    exit_eof: bool,
    timeout: int | None,
    timeout_ms: int | None,
    key_separator: str | None,
    delimiter: str,
    partitions: tuple[int, ...],
    group: str | None,
    isolation: str | None,
    value_format: str | None,
    schema: str | None,
    message: str | None,
    schema_registry: str | None,
    is_json: bool,
) -> int:
    """Print the records of TOPICs, one line each, until Ctrl-C.

    \b
    FORMAT  %t topic   %p partition   %o offset   %T timestamp in ms   %h headers
            %k key     %K its length  %s value    %S its length        %R its length as 4 bytes
            %% percent   \\n \\r \\t \\0 \\xHH
    """
    begin = _start(
        start, from_beginning=from_beginning, is_group=group is not None, now_ms=int(time() * 1000)
    )
    values = values_of(value_format, schema, message, schema_registry)
    print_all = _printer(text, key_separator, delimiter, values, is_json=is_json)
    if timeout is not None:
        timeout_ms = timeout
    limits = Limits(records_max, timeout_ms)
    more = _CREATES_NOTHING if isolation is None else {**_CREATES_NOTHING, "isolation_level": isolation}
    if group is not None:
        if partitions or exit_eof:
            raise click.UsageError("--group assigns the partitions: leave --partition and --exit-eof out")
        _consume_as_member(topics, group, more, begin, limits, print_all, is_regex=is_regex)
        return _exit_code(values)
    begin = begin or Position("latest")
    settings = client_settings(wait_ms=timeout_ms, **more)
    with Reach(settings.bootstrap_servers) as reach, Consumer.from_settings(settings) as consumer:
        assigned = _assign(consumer, topics, partitions, begin, is_regex=is_regex)
        ends = consumer.end_offsets(assigned) if exit_eof else None
        if ends is None and begin.kind == "latest":
            say(f"waiting for records at the end of {listed(topics)}; Ctrl-C ends")
        count = _read(consumer, reach, print_all, limits, ends)
    _report(count, topics, is_from_end=begin.kind == "latest")
    return _exit_code(values)


def _start(text: str | None, *, from_beginning: bool, is_group: bool, now_ms: int) -> Position | None:
    """The start position; None for the group's committed offsets, or the end without a group."""
    if from_beginning and text is not None:
        raise click.UsageError("--from-beginning and --from exclude each other")
    if from_beginning:
        return Position("earliest")
    if text is None:
        return None
    begin = position(text, "--from", now_ms)
    if is_group and begin.kind not in ("earliest", "latest"):
        raise click.UsageError(
            "a group starts at its committed offsets, and takes only beginning or end for --from; "
            "`sparklog groups reset-offsets` moves the committed offsets"
        )
    return begin


def _consume_as_member(
    topics: Sequence[str],
    group: str,
    more: Mapping[str, str],
    begin: Position | None,
    limits: Limits,
    print_all: Callable[[list[ConsumerRecord]], None],
    *,
    is_regex: bool,
) -> None:
    """Read the partitions that the group assigns; offsets of printed records are committed
    periodically and at exit."""
    reset = {} if begin is None else {"auto_offset_reset": begin.kind}
    settings = client_settings(wait_ms=limits.timeout_ms, group_id=group, **reset, **more)
    with admin() as cluster:
        chosen(cluster, topics, is_regex=is_regex)
    with Reach(settings.bootstrap_servers) as reach, Consumer.from_settings(settings) as consumer:
        if is_regex:
            # Topics that are created later are read too.
            consumer.subscribe(pattern="|".join(f"(?:{topic})" for topic in topics))
        else:
            consumer.subscribe(topics)
        count = _read(consumer, reach, print_all, limits, None)
    _report(count, topics, is_from_end=False)


def _assign(
    consumer: Consumer,
    topics: Sequence[str],
    partitions: tuple[int, ...],
    begin: Position,
    *,
    is_regex: bool,
) -> list[TopicPartition]:
    numbers = "" if not partitions else ":" + ",".join(map(str, partitions))
    with admin() as cluster:
        if is_regex:
            topics = list(chosen(cluster, topics, is_regex=True))
        assigned = partitions_named(cluster, [topic + numbers for topic in topics])
        offsets = offsets_at(cluster, assigned, begin)
    consumer.assign(assigned)
    for partition, offset in offsets.items():
        consumer.seek(partition, offset)
    return assigned


def _read(
    consumer: Consumer,
    reach: Reach,
    print_all: Callable[[list[ConsumerRecord]], None],
    limits: Limits,
    ends: Mapping[TopicPartition, int] | None,
) -> int:
    """Print until a limit or the end of every partition is reached; returns the number of records.

    ClickException if no broker has been reachable for the timeout.
    """
    left = sys.maxsize if limits.records_max is None else limits.records_max
    timeout_ms, count = limits.timeout_ms, 0
    away_ms_max = AWAY_MS_MAX if timeout_ms is None and ends is not None else timeout_ms
    quiet_since_s = monotonic()
    while count < left:
        if ends is not None and all(consumer.position(partition) >= end for partition, end in ends.items()):
            break
        records = consumer.poll(
            POLL_MS if timeout_ms is None else min(POLL_MS, timeout_ms), min(left - count, POLL_RECORDS_MAX)
        )
        if records:
            quiet_since_s = monotonic()
            reach.heard()
            count += len(records)
            print_all(records)
            continue
        quiet_ms = (monotonic() - quiet_since_s) * 1000
        if away_ms_max is not None and quiet_ms >= away_ms_max:
            reach.raise_if_lost(away_ms_max)
        if timeout_ms is not None and quiet_ms >= timeout_ms:
            break
    return count


def _report(count: int, topics: Sequence[str], *, is_from_end: bool) -> None:
    if count:
        report(f"read {count} record{'s' * (count != 1)}")
        return
    hint = "; --from beginning reads those that are stored" if is_from_end else ""
    report(f"no records in {listed(topics)}{hint}")


def _exit_code(values: Values | None) -> int:
    if values is None or not values.refused:
        return 0
    report(f"sparklog: {values.refused} values could not be decoded")
    return 1


def _printer(
    text: str | None, key_separator: str | None, delimiter: str, values: Values | None, *, is_json: bool
) -> Callable[[list[ConsumerRecord]], None]:
    """The function that prints records. Raises UsageError for options that exclude each other."""
    if text is not None and (is_json or key_separator is not None):
        raise click.UsageError("--format excludes --json and --key-separator")
    if is_json:
        return partial(_print_json, values)
    if text is not None:
        render = compiled(text)
    else:
        end = unescaped(delimiter, "--delimiter")
        separator = None if key_separator is None else unescaped(key_separator, "--key-separator")

        def render(record: ConsumerRecord) -> bytes:
            # Keys and values as raw bytes; a missing one is empty.
            head = b"" if separator is None else (record.key or b"") + separator
            return head + (record.value or b"") + end

    def write(records: list[ConsumerRecord]) -> None:
        if values is not None:
            records = [replace(record, value=values.text(record)) for record in records]
        if sys.stdout.isatty():
            records = [_for_terminal(record) for record in records]
        sys.stdout.buffer.write(b"".join([render(record) for record in records]))
        sys.stdout.buffer.flush()

    return write


def _for_terminal(record: ConsumerRecord) -> ConsumerRecord:
    """The record with texts that do not act on a terminal; lines stay. A pipe gets the bytes as they are."""

    def shown(content: bytes | None) -> bytes | None:
        return None if content is None else lines(content.decode(errors="backslashreplace")).encode()

    headers = [(terminal(name), shown(content)) for name, content in record.headers]
    return replace(record, key=shown(record.key), value=shown(record.value), headers=headers)


def _print_json(values: Values | None, records: list[ConsumerRecord]) -> None:
    def fields(record: ConsumerRecord) -> dict[str, object]:
        shown: dict[str, object] = {name: getattr(record, name) for name in RECORD_FIELDS}
        if values is not None:
            shown["value"], reason = values.of(record)
            if reason is not None:
                shown["value_error"] = reason
            elif record.value is not None:
                shown["value_format"] = values.format
        return shown

    # As UTF-8 in every locale, because JSON is.
    lines = [json_text(fields(record)) for record in records]
    sys.stdout.buffer.write("".join(lines).encode())
    sys.stdout.buffer.flush()
