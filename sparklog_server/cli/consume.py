"""`sparklog consume`: records become lines of standard output, as text, by a format, or as JSON."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from sparklog_server.cli.formats import compiled, unescaped
from sparklog_server.cli.options import (
    admin,
    as_json,
    client_settings,
    partitions_named,
    print_json,
    reaches_cluster,
    topic_names,
    topics_named,
)
from sparklog_server.cli.positions import Position, offsets_at, position

if TYPE_CHECKING:
    from sparklog.client.consumer import Consumer, ConsumerRecord
    from sparklog.model import TopicPartition

POLL_MS = 500
POLL_RECORDS_MAX = 10_000
_CREATES_NOTHING = {"allow_auto_create_topics": "false"}
FIELDS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=topic_names)
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
@click.option("--timeout-ms", metavar="MS", type=click.IntRange(0), help="Exit after MS without a record.")
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
    default="read_uncommitted",
    show_default=True,
    help="Set whether to read records of open and aborted transactions.",
)
@reaches_cluster
@as_json
def consume(
    topics: tuple[str, ...],
    start: str | None,
    from_beginning: bool,
    text: str | None,
    records_max: int | None,
    exit_eof: bool,
    timeout_ms: int | None,
    key_separator: str | None,
    delimiter: str,
    partitions: tuple[int, ...],
    group: str | None,
    isolation: str,
    is_json: bool,
) -> None:
    """Print the records of TOPICs, one line each, until Ctrl-C.

    \b
    FORMAT  %t topic   %p partition   %o offset   %T timestamp in ms   %h headers
            %k key     %K its length  %s value    %S its length        %R its length as 4 bytes
            %% percent   \\n \\r \\t \\0 \\xHH
    """
    from time import time

    from sparklog.client.consumer import Consumer

    begin = _start(
        start, from_beginning=from_beginning, is_group=group is not None, now_ms=int(time() * 1000)
    )
    print_all = _printer(text, key_separator, delimiter, is_json=is_json)
    if group is not None:
        if partitions or exit_eof:
            raise click.UsageError("--group shares out the partitions: leave --partition and --exit-eof out")
        _consume_as_member(topics, group, isolation, begin, records_max, timeout_ms, print_all)
        return
    with Consumer.from_settings(client_settings(isolation_level=isolation, **_CREATES_NOTHING)) as consumer:
        assigned = _assign(consumer, topics, partitions, begin or Position("latest"))
        ends = consumer.end_offsets(assigned) if exit_eof else None
        _read(consumer, print_all, records_max, timeout_ms, ends)


def _start(text: str | None, *, from_beginning: bool, is_group: bool, now_ms: int) -> Position | None:
    """The start position; None for the group's committed offsets, or the end without a group."""
    if from_beginning and text is not None:
        raise click.UsageError("--from-beginning and --from both say where to begin: leave one out")
    if from_beginning:
        return Position("earliest")
    if text is None:
        return None
    begin = position(text, "--from", now_ms)
    if is_group and begin.kind not in ("earliest", "latest"):
        raise click.UsageError(
            "a group begins where it committed, or at --from beginning or end; move it by `sparklog groups "
            "reset-offsets`"
        )
    return begin


def _consume_as_member(
    topics: Sequence[str],
    group: str,
    isolation: str,
    begin: Position | None,
    records_max: int | None,
    timeout_ms: int | None,
    print_all: "Callable[[list[ConsumerRecord]], None]",
) -> None:
    """Read the partitions that the group assigns; offsets of printed records are committed
    periodically and at exit."""
    from sparklog.client.consumer import Consumer

    with admin() as cluster:
        topics_named(cluster, topics)
    reset = "latest" if begin is None else begin.kind
    settings = client_settings(
        isolation_level=isolation, group_id=group, auto_offset_reset=reset, **_CREATES_NOTHING
    )
    with Consumer.from_settings(settings) as consumer:
        consumer.subscribe(topics)
        _read(consumer, print_all, records_max, timeout_ms, None)


def _assign(
    consumer: "Consumer", topics: Sequence[str], partitions: tuple[int, ...], begin: Position
) -> "list[TopicPartition]":
    numbers = "" if not partitions else ":" + ",".join(map(str, partitions))
    with admin() as cluster:
        assigned = partitions_named(cluster, [topic + numbers for topic in topics])
        offsets = offsets_at(cluster, assigned, begin)
    consumer.assign(assigned)
    for partition, offset in offsets.items():
        consumer.seek(partition, offset)
    return assigned


def _read(
    consumer: "Consumer",
    print_all: "Callable[[list[ConsumerRecord]], None]",
    records_max: int | None,
    timeout_ms: int | None,
    ends: "Mapping[TopicPartition, int] | None",
) -> None:
    """Print until `records_max` records are printed, `timeout_ms` passes without a record, or every position
    has reached its end.
    """
    from time import monotonic

    left = sys.maxsize if records_max is None else records_max
    quiet_since_s = monotonic()
    while left > 0 and (timeout_ms is None or (monotonic() - quiet_since_s) * 1000 < timeout_ms):
        if ends is not None and all(consumer.position(partition) >= end for partition, end in ends.items()):
            return
        records = consumer.poll(
            POLL_MS if timeout_ms is None else min(POLL_MS, timeout_ms), min(left, POLL_RECORDS_MAX)
        )
        if records:
            quiet_since_s = monotonic()
            left -= len(records)
            print_all(records)


def _printer(
    text: str | None, key_separator: str | None, delimiter: str, *, is_json: bool
) -> "Callable[[list[ConsumerRecord]], None]":
    """The function that prints records. Raises UsageError for options that exclude each other."""
    if text is not None and (is_json or key_separator is not None):
        raise click.UsageError("--format says all there is to print: leave --json and --key-separator out")
    if is_json:
        return _print_json
    if text is not None:
        render = compiled(text)
    else:
        end = unescaped(delimiter, "--delimiter")
        separator = None if key_separator is None else unescaped(key_separator, "--key-separator")

        def render(record: "ConsumerRecord") -> bytes:
            # Keys and values as raw bytes; a missing one is empty.
            head = b"" if separator is None else (record.key or b"") + separator
            return head + (record.value or b"") + end

    def write(records: "list[ConsumerRecord]") -> None:
        sys.stdout.buffer.write(b"".join([render(record) for record in records]))
        sys.stdout.buffer.flush()

    return write


def _print_json(records: "list[ConsumerRecord]") -> None:
    for record in records:
        print_json({name: getattr(record, name) for name in FIELDS})
    sys.stdout.flush()
