"""`sparklog topics delete-records`."""

from json import loads
from typing import IO

import click

from sparklog.client.admin.admin import ItemsFailed
from sparklog.errors import BrokerError
from sparklog.model import TopicPartition
from sparklog_server.cli.admin import admin, topic_names
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, print_line, print_table

EXIT_FAILURE = 1


@click.command(name="delete-records")
@click.argument("topic", required=False, metavar="[TOPIC]", shell_complete=topic_names)
@click.option(
    "--partition",
    "partitions",
    metavar="N",
    type=click.IntRange(0),
    multiple=True,
    help="Select a partition of TOPIC. Repeatable.",
)
@click.option(
    "--before",
    metavar="OFFSET",
    type=click.IntRange(-1),
    help="Delete the records below this offset; -1 deletes all committed records.",
)
@click.option(
    "--offset-json-file",
    type=click.File("r", encoding="utf-8-sig"),
    help="Read partitions and offsets from JSON, in the format of Kafka's tool: "
    '{"partitions": [{"topic": "t", "partition": 0, "offset": 100}], "version": 1}.',
)
@reaches_cluster
@as_json
def delete_records(
    topic: str | None,
    partitions: tuple[int, ...],
    before: int | None,
    offset_json_file: IO[str] | None,
    is_json: bool,
) -> int:
    """Delete the oldest records of partitions, permanently, and print the new log start offsets."""
    if offset_json_file is not None:
        if topic is not None or partitions or before is not None:
            raise click.UsageError(
                "--offset-json-file names topics, partitions and offsets: leave TOPIC, --partition and "
                "--before out"
            )
        offsets = _offsets_in(offset_json_file.read())
    else:
        if topic is None or not partitions or before is None:
            raise click.UsageError("give TOPIC with --partition and --before, or --offset-json-file")

        offsets = {TopicPartition(topic, partition): before for partition in partitions}
    errors: dict[TopicPartition, BrokerError] = {}
    with admin() as cluster:
        try:
            begins = cluster.delete_records(offsets)
        except ItemsFailed as failed:
            begins, errors = failed.results, failed.errors
    if is_json:
        print_json(
            [
                {
                    "topic": at.topic,
                    "partition": at.partition,
                    "low_watermark": begins.get(at, -1),
                    "error": str(errors[at]) if at in errors else None,
                }
                for at in offsets
            ]
        )
        return EXIT_FAILURE if errors else 0
    print_table(
        ["topic", "partition", "begins at"],
        [[at.topic, at.partition, offset] for at, offset in begins.items()],
    )
    for error in errors.values():
        print_line(f"sparklog: {error}", is_error=True)
    return EXIT_FAILURE if errors else 0


def _offsets_in(text: str) -> dict[TopicPartition, int]:
    """The offsets in Kafka's JSON. An error names the invalid entry."""
    hint = "--offset-json-file"
    try:
        content = loads(text)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint=hint) from error
    version = content.get("version", 1) if isinstance(content, dict) else None
    if version != 1 or not isinstance(content.get("partitions"), list):
        raise click.BadParameter('expected {"partitions": [...], "version": 1}', param_hint=hint)
    offsets: dict[TopicPartition, int] = {}
    for entry in content["partitions"]:
        fields = entry if isinstance(entry, dict) else {}
        topic, number, offset = (fields.get(name) for name in ("topic", "partition", "offset"))
        # In Python, bool is an int; in Kafka's JSON it is not.
        if (
            type(topic) is not str
            or type(number) is not int
            or type(offset) is not int
            or number < 0
            or offset < -1
        ):
            raise click.BadParameter(
                f"{entry} needs topic, partition (0 or more) and offset (-1 or more)", param_hint=hint
            )
        partition = TopicPartition(topic, number)
        if partition in offsets:
            raise click.BadParameter(f"{partition} stands there twice", param_hint=hint)
        offsets[partition] = offset
    if not offsets:
        raise click.BadParameter("no partition is named", param_hint=hint)
    return offsets
