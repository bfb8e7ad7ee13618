"""`sparklog consume`: records become lines of standard output."""

import sys
from typing import TYPE_CHECKING

import click

from sparklog_server.cli.options import as_json, bootstrap_server, client_setting, client_settings, print_json

if TYPE_CHECKING:
    from sparklog.client.consumer import Consumer, ConsumerRecord

POLL_MS = 500
FIELDS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")


@click.command()
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest record. Without it: with what arrives from now on.")
@click.option("--max", "records_max", metavar="N", type=click.IntRange(0), help="Stop after N records.")
@click.option("--timeout-ms", metavar="MS", type=click.IntRange(0), help="Stop when nothing has arrived for so long.")
@click.option("--key-separator", metavar="TEXT", help="Print the key too, with this between it and the value.")
@click.option("--partition", "partitions", metavar="N", type=click.IntRange(0), multiple=True, help="Read only this partition. Repeatable.")
@bootstrap_server
@client_setting
@as_json
def consume(
    topic: str,
    from_beginning: bool,
    records_max: int | None,
    timeout_ms: int | None,
    key_separator: str | None,
    partitions: tuple[int, ...],
    bootstrap_server: str,
    assignments: tuple[str, ...],
    is_json: bool,
) -> None:
    """Print the records of TOPIC, one line each, until Ctrl-C."""
    from time import monotonic

    from sparklog.client.consumer import Consumer

    separator = None if key_separator is None else key_separator.encode()
    left = sys.maxsize if records_max is None else records_max
    with Consumer.from_settings(client_settings(bootstrap_server, assignments)) as consumer:
        _assign(consumer, topic, partitions, from_beginning=from_beginning)
        quiet_since_s = monotonic()
        while left > 0 and (timeout_ms is None or (monotonic() - quiet_since_s) * 1000 < timeout_ms):
            records = consumer.poll(POLL_MS if timeout_ms is None else min(POLL_MS, timeout_ms), min(left, 10_000))
            if records:
                quiet_since_s = monotonic()
                left -= len(records)
                _print(records, separator, is_json=is_json)


def _assign(consumer: "Consumer", topic: str, partitions: tuple[int, ...], *, from_beginning: bool) -> None:
    from sparklog.model import TopicPartition

    existing = consumer.partitions_for(topic)
    absent = sorted(set(partitions).difference(existing))
    if absent or not existing:
        raise click.ClickException(f"topic {topic} has no partition {absent[0]}" if absent and existing else f"there is no topic {topic}")
    assigned = [TopicPartition(topic, partition) for partition in (partitions or existing)]
    consumer.assign(assigned)
    if from_beginning:
        consumer.seek_to_beginning(assigned)
    else:
        consumer.seek_to_end(assigned)


def _print(records: "list[ConsumerRecord]", separator: bytes | None, *, is_json: bool) -> None:
    """Keys and values as the bytes they are; a missing one is empty, and null in JSON."""
    if is_json:
        for record in records:
            print_json({name: getattr(record, name) for name in FIELDS})
        sys.stdout.flush()
        return
    lines = bytearray()
    for record in records:
        if separator is not None:
            lines += (record.key or b"") + separator
        lines += (record.value or b"") + b"\n"
    sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()
