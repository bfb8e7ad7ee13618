"""`sparklog produce`: the lines of standard input become records."""

import sys

import click

from sparklog_server.cli.options import bootstrap_server, client_setting, client_settings


@click.command()
@click.argument("topic")
@click.option("--key-separator", metavar="TEXT", help="What stands between key and value in each line; without it, lines are values.")
@click.option("--partition", type=click.IntRange(0), help="Write to this partition only.")
@bootstrap_server
@client_setting
def produce(topic: str, key_separator: str | None, partition: int | None, bootstrap_server: str, assignments: tuple[str, ...]) -> int:
    """Write each line of standard input to TOPIC as one record.

    Exits 0 when every record is acknowledged.
    """
    from sparklog.client.producer import Producer, RecordMetadata

    failures: list[BaseException] = []

    def delivered(_metadata: "RecordMetadata | None", error: BaseException | None) -> None:
        if error is not None:
            failures.append(error)

    separator = None if key_separator is None else key_separator.encode()
    with Producer.from_settings(client_settings(bootstrap_server, assignments)) as producer:
        for number, line in enumerate(sys.stdin.buffer, start=1):
            key, value = _split(line.removesuffix(b"\n"), separator, number)
            producer.send(topic, value, key, partition=partition, on_delivery=delivered)
            if failures:
                break
        producer.flush()
    if failures:
        raise click.ClickException(str(failures[0]))
    return 0


def _split(line: bytes, separator: bytes | None, number: int) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise click.ClickException(f"line {number} has no {separator.decode()!r} between key and value; the lines before it were written")
    return key, value
