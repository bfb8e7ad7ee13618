"""`sparklog groups reset-offsets`: shows where a group would stand; moves it there only with `--execute`."""

from time import time
from typing import IO

import click

from sparklog.client.admin.groups import GroupOffset
from sparklog.model import TopicPartition
from sparklog_server.cli.admin import PARTITION_NUMBER_MAX, admin, group_names, partitions_named, topic_names
from sparklog_server.cli.option_values import INT64_MAX, Position, duration_ms, offsets_at, time_ms
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, print_table, report
from sparklog_server.operations.refused import OperationRefused
from sparklog_server.operations.resets import relative, require_idle, within_logs
from sparklog_server.operations.similar_names import absent

LINES_MAX = 1_000_000


@click.command(name="reset-offsets")
@click.argument("group", shell_complete=group_names)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1]",
    multiple=True,
    help="Select partitions. Repeatable.",
    shell_complete=topic_names,
)
@click.option("--all-topics", is_flag=True, help="Select every partition with a committed offset.")
@click.option("--to-earliest", is_flag=True, help="Move to the first record.")
@click.option("--to-latest", is_flag=True, help="Move to the end, after the last record.")
@click.option(
    "--to-current",
    is_flag=True,
    help="Keep the committed offset; without one, move to the end.",
)
@click.option(
    "--to-offset",
    metavar="OFFSET",
    type=click.IntRange(0, INT64_MAX),
    help="Move to this offset, or the nearest in the log.",
)
@click.option(
    "--shift-by",
    metavar="N",
    type=click.IntRange(-INT64_MAX, INT64_MAX),
    help="Move N offsets forward from the committed offset; back if negative.",
)
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="Move to the first record at or after 2026-01-31T12:00:00 (UTC unless a zone is given).",
)
@click.option(
    "--by-duration", metavar="DURATION", help="Move to the first record of the last 10m, 2d, PT1H30M …"
)
@click.option(
    "--from-file",
    type=click.File("r", encoding="utf-8-sig"),
    help="Move to the offsets in a CSV file: topic,partition,offset, the output format of this command.",
)
@click.option("--dry-run", is_flag=True, help="Show the new offsets only. This is the default.")
@click.option("--execute", is_flag=True, help="Commit the new offsets. The group must have no members.")
@reaches_cluster
@as_json
def reset_offsets(
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: IO[str] | None,
    dry_run: bool,
    execute: bool,
    is_json: bool,
) -> None:
    """Show the new offsets of GROUP, and with --execute commit them.

    Columns: topic, partition, new offset, and the current committed offset.
    """
    ways = {
        "--to-earliest": Position("earliest") if to_earliest else None,
        "--to-latest": Position("latest") if to_latest else None,
        "--to-current": to_current or None,
        "--to-offset": None if to_offset is None else Position("offset", to_offset),
        "--shift-by": shift_by,
        "--to-datetime": None
        if to_datetime is None
        else Position("time", time_ms(to_datetime, "--to-datetime")),
        "--by-duration": None
        if by_duration is None
        else Position("time", max(0, int(time() * 1000) - duration_ms(by_duration, "--by-duration"))),
        "--from-file": from_file,
    }
    given = [name for name, way in ways.items() if way is not None]
    if len(given) != 1:
        raise click.UsageError(
            f"give one of {', '.join(ways)}"
            + (f"; {' and '.join(given)} exclude each other" if given else "")
        )
    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute exclude each other")
    if from_file is None and bool(topics) == all_topics:
        raise click.UsageError("select partitions with either --topic or --all-topics")
    if from_file is not None and (topics or all_topics):
        raise click.UsageError("--from-file names the partitions: leave --topic and --all-topics out")
    in_file = None if from_file is None else _offsets_in(from_file)

    with admin() as cluster:
        committed = cluster.list_group_offsets([group])[group]
        existing = [group] if committed else [one.group_id for one in cluster.list_groups()]
        if in_file is not None:
            wanted = within_logs(cluster, in_file)
        else:
            partitions = list(committed) if all_topics else partitions_named(cluster, topics)
            if not partitions:
                if group not in existing:
                    raise click.ClickException(absent("group", group, existing, "--topic starts a new one"))
                raise click.ClickException(
                    f"group {group!r} has committed nothing; name the partitions with --topic"
                )
            way = ways[given[0]]
            if isinstance(way, Position):
                wanted = offsets_at(cluster, partitions, way)
            else:
                wanted = relative(cluster, committed, partitions, shift_by or 0)
        if execute:
            try:
                require_idle(cluster, group)
            except OperationRefused as error:
                raise click.ClickException(str(error)) from None
            cluster.alter_group_offsets(group, wanted)
    _print(wanted, committed, group, is_done=execute, is_json=is_json)
    if group not in existing:
        report(absent("group", group, existing, "it was created" if execute else "--execute creates it"))


def _offsets_in(file: IO[str]) -> dict[TopicPartition, int]:
    """Lines `topic,partition,offset`, or with tabs, or `group,topic,partition,offset` as in Kafka's tool for
    several groups.
    """
    found: dict[TopicPartition, int] = {}
    for number, line in enumerate(file, start=1):
        fields = [field.strip().strip('"') for field in line.replace("\t", ",").split(",")]
        if fields == [""]:
            continue
        # A fourth field is the group in front, or the last column of `describe`: the current committed
        # offset.
        topic, partition, offset = (
            fields[:3]
            if len(fields) == 3 or (len(fields) == 4 and fields[1].isdecimal())
            else (fields[1:4] + [""] * 3)[:3]
        )
        if not topic or not (partition.isdecimal() and offset.isdecimal()):
            raise click.BadParameter(
                f"line {number} is {line.strip()!r}, not topic,partition,offset", param_hint="--from-file"
            )
        if int(partition) > PARTITION_NUMBER_MAX or int(offset) > INT64_MAX or number > LINES_MAX:
            raise click.BadParameter(
                f"line {number} has a partition or offset out of range: {line.strip()!r}",
                param_hint="--from-file",
            )
        if TopicPartition(topic, int(partition)) in found:
            raise click.BadParameter(
                f"line {number} names {topic}-{partition} a second time", param_hint="--from-file"
            )
        found[TopicPartition(topic, int(partition))] = int(offset)
    if not found:
        raise click.BadParameter("no partition is named", param_hint="--from-file")
    return found


def _print(
    wanted: dict[TopicPartition, int],
    committed: dict[TopicPartition, GroupOffset],
    group: str,
    *,
    is_done: bool,
    is_json: bool,
) -> None:
    rows = [
        (at.topic, at.partition, wanted[at], committed[at].offset if at in committed else None)
        for at in sorted(wanted)
    ]
    if is_json:
        offsets = [
            {"topic": topic, "partition": number, "offset": new, "committed": old}
            for topic, number, new, old in rows
        ]
        print_json({"group": group, "is_executed": is_done, "offsets": offsets})
        return
    print_table(["topic", "partition", "new offset", "committed"], rows)
    report(f"moved group {group}" if is_done else "nothing was changed; --execute moves the group")
