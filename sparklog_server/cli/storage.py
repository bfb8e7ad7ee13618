"""`sparklog log-dirs` and `sparklog producers`: replicas on disks, and the producers of partitions."""

from collections.abc import Collection

import click

from sparklog.client.admin.admin import Admin
from sparklog.model import TopicPartition
from sparklog_server.cli.admin import admin, partitions_named, topic_names
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import (
    as_json,
    bytes_text,
    listed,
    print_json,
    print_line,
    print_table,
    report,
    tell_missing,
)
from sparklog_server.cli.watching import can_watch
from sparklog_server.operations.surveys import described_by_all


@click.group(name="log-dirs")
def log_dirs() -> None:
    """Show the log directories of brokers, and move replicas between them."""


@log_dirs.command()
@click.option(
    "--broker", "nodes", metavar="ID", type=int, multiple=True, help="Show only this broker. Repeatable."
)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1]",
    multiple=True,
    help="Show only these partitions. Repeatable.",
    shell_complete=topic_names,
)
@reaches_cluster
@as_json
@can_watch
def describe(nodes: tuple[int, ...], topics: tuple[str, ...], is_json: bool) -> int:
    """Show directories with their space, and the size of every replica in them.

    Exits with 1 if a directory is offline, or a broker does not answer: those of the others are shown.
    """
    with admin(awaits_silent=False) as cluster:
        wanted = partitions_named(cluster, topics) if topics else None
        described, missing = described_by_all(
            lambda: cluster.describe_log_dirs(nodes or None, partitions=wanted)
        )
    dirs = [one for own in described.values() for one in own]
    if is_json:
        print_json(
            [
                {
                    "broker": one.node_id,
                    "path": one.path,
                    "error": None if one.error is None else str(one.error),
                }
                | {"total_bytes": one.total_bytes, "usable_bytes": one.usable_bytes}
                | {
                    "replicas": [
                        {
                            "topic": at.topic,
                            "partition": at.partition,
                            "size_bytes": r.size_bytes,
                            "offset_lag": r.offset_lag,
                        }
                        | {"is_future": r.is_future}
                        for at, r in one.replicas.items()
                    ]
                }
                for one in dirs
            ]
        )
        return tell_missing(missing) or (1 if any(one.error for one in dirs) else 0)
    for one in dirs:
        space = (
            ()
            if one.total_bytes < 0
            else (f"usable={bytes_text(one.usable_bytes)}", f"total={bytes_text(one.total_bytes)}")
        )
        print_line(f"broker={one.node_id}", one.path, one.error or "online", *space)
        rows = [
            [
                at.topic,
                at.partition,
                bytes_text(r.size_bytes),
                r.offset_lag,
                "moving in" if r.is_future else "",
            ]
            for at, r in one.replicas.items()
        ]
        print_table(["topic", "partition", "size", "lag", "state"], rows)
    return tell_missing(missing) or (1 if any(one.error for one in dirs) else 0)


@log_dirs.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC[:0,1]]...", shell_complete=topic_names)
@click.option(
    "--offline",
    "is_offline",
    is_flag=True,
    help="Move only replicas that are offline there: of all topics if none is named.",
)
@click.option(
    "--to",
    "path",
    metavar="DIR",
    required=True,
    help="Move to this log directory of the broker, as `log-dirs describe` prints it.",
)
@click.option(
    "--broker", "node", metavar="ID", type=int, required=True, help="Select the broker whose replicas move."
)
@reaches_cluster
def move(topics: tuple[str, ...], path: str, node: int, is_offline: bool) -> None:
    """Move replicas to another log directory of their broker; `describe` shows the progress.

    A replica whose directory is offline begins empty in the other one and fetches what its leader has; it is
    refused while no other replica leads.
    """
    if not topics and not is_offline:
        raise click.UsageError("name topics, or select the replicas that are offline with --offline")
    with admin() as cluster:
        partitions = partitions_named(cluster, topics) if topics else []
        if is_offline:
            partitions = _offline(cluster, node, partitions if topics else None)
            if not partitions:
                report(f"no replica of broker {node} is offline")
                return
        cluster.alter_replica_log_dirs(node, dict.fromkeys(partitions, path))
    report(f"{listed(partitions)} move to {path} on broker {node}")


def _offline(cluster: Admin, node: int, among: Collection[TopicPartition] | None) -> list[TopicPartition]:
    """The partitions whose replica on a broker is offline; of all if `among` is None."""
    return [
        at
        for name, topic in cluster.list_topics(include_internal=True).items()
        for one in topic.partitions
        for at in [TopicPartition(name, one.partition)]
        if node in one.offline_replicas and (among is None or at in among)
    ]


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:0,1]...", shell_complete=topic_names)
@reaches_cluster
@as_json
@can_watch
def producers(topics: tuple[str, ...], is_json: bool) -> None:
    """Show the producers of partitions; a hanging transaction has an old time and a first offset."""
    with admin() as cluster:
        described = cluster.describe_producers(partitions_named(cluster, topics))
    active = [(at, producer) for at, own in described.items() for producer in own]
    if is_json:
        print_json(
            [
                {
                    "topic": at.topic,
                    "partition": at.partition,
                    "producer_id": p.producer_id,
                    "producer_epoch": p.producer_epoch,
                }
                | {"last_sequence": p.last_sequence, "last_timestamp_ms": p.last_timestamp_ms}
                | {
                    "coordinator_epoch": p.coordinator_epoch,
                    "transaction_start_offset": p.transaction_start_offset,
                }
                for at, p in active
            ]
        )
        return
    columns = [
        "topic",
        "partition",
        "producer id",
        "epoch",
        "last sequence",
        "last time ms",
        "transaction since",
    ]
    rows = [
        [at.topic, at.partition, p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp_ms, since]
        for at, p in active
        for since in [None if p.transaction_start_offset < 0 else p.transaction_start_offset]
    ]
    print_table(columns, rows, empty="no producer is known there")
