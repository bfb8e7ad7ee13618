"""`sparklog topics`: create, list, describe, alter, delete, add partitions, delete records."""

from base64 import urlsafe_b64encode

import click

from sparklog.client.admin.admin import Admin, NewPartitions, NewTopic, Partition, Topic
from sparklog.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource
from sparklog.errors import BrokerError
from sparklog.model import TopicPartition
from sparklog_server.cli.admin import admin, chosen, matches_names, topic_names
from sparklog_server.cli.factors import alter_factor
from sparklog_server.cli.moves import Execution, is_throttled
from sparklog_server.cli.offsets import Extent, extents, led
from sparklog_server.cli.option_values import pairs
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import (
    as_json,
    bytes_text,
    listed,
    print_json,
    print_line,
    print_table,
    report,
)
from sparklog_server.cli.records import delete_records
from sparklog_server.cli.setting_names import topic_keys
from sparklog_server.cli.watching import can_watch
from sparklog_server.operations.surveys import described_by_all

SIZES_ASKED_MAX = 5_000
PARTITION_COLUMNS = ("partition", "leader", "replicas", "in sync", "size", "log start", "log end")


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics, and delete their records."""


topics.add_command(delete_records)


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    show_default="the broker's num.partitions",
    help="Set the number of partitions.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    show_default="the broker's",
    help="Set the number of replicas.",
)
@click.option(
    "--replica-assignment",
    metavar="1:2,2:3",
    help="Assign the brokers of each partition explicitly, with colons between brokers and commas between "
    "partitions.",
)
@click.option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a setting of the topic. Repeatable.",
    shell_complete=topic_keys,
)
@click.option("--if-not-exists", is_flag=True, help="Skip topics that exist.")
@click.option("--validate-only", is_flag=True, help="Validate without applying.")
@reaches_cluster
@as_json
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
    is_json: bool,
) -> None:
    """Create topics."""
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--replica-assignment excludes --partitions and --replication-factor")
    assignment = () if replica_assignment is None else _assignment(replica_assignment)
    own = pairs(configs, "--config")
    with admin() as cluster:
        known = cluster.list_topics(include_internal=True) if if_not_exists else {}
        wanted = [
            NewTopic(name, partitions or -1, replication_factor or -1, own, assignment)
            for name in names
            if name not in known
        ]
        created = cluster.create_topics(wanted, validate_only=validate_only) if wanted else {}
    if not created:
        report("nothing to create: every topic exists")
    elif not is_json:
        texts = (f"{one.name} ({_count(one.partition_count, 'partition')})" for one in created.values())
        report(f"created {', '.join(texts)}", is_trial=validate_only)
    if is_json:
        print_json(
            [
                {
                    "name": topic.name,
                    "partitions": topic.partition_count,
                    "replication_factor": topic.replication_factor,
                }
                for topic in created.values()
            ]
        )


@topics.command(name="list")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@reaches_cluster
@as_json
@can_watch
def list_topics(internal: bool, is_json: bool) -> None:
    """List the topics."""
    with admin() as cluster:
        found = cluster.list_topics(include_internal=internal)
    if is_json:
        print_json([_as_json(topic, {}, {}) for topic in found.values()])
    else:
        print_table(
            ["topic", "partitions", "replicas"],
            [[t.name, len(t.partitions), _replica_count(t)] for t in found.values()],
            empty="there are no topics; `sparklog topics create NAME` creates one",
        )


@topics.command()
@click.argument("names", nargs=-1, metavar="[TOPIC]...", shell_complete=topic_names)
@matches_names
@click.option(
    "--under-replicated", is_flag=True, help="Show only partitions with replicas that are not in sync."
)
@click.option("--unavailable", is_flag=True, help="Show only partitions without a leader.")
@click.option("--internal", is_flag=True, help="Include internal topics if no TOPIC is given.")
@reaches_cluster
@as_json
@can_watch
def describe(
    names: tuple[str, ...],
    is_regex: bool,
    under_replicated: bool,
    unavailable: bool,
    internal: bool,
    is_json: bool,
) -> None:
    """Show partitions with leader, in-sync replicas, size and offsets, and the settings of topics; of all
    topics if no TOPIC is given.
    """
    with admin() as cluster:
        described = chosen(cluster, names, is_regex=is_regex, internal=internal)
        shown = {
            topic.name: _shown(topic, under_replicated=under_replicated, unavailable=unavailable)
            for topic in described.values()
        }
        if under_replicated or unavailable:
            described = {name: topic for name, topic in described.items() if shown[name]}
        configs = cluster.describe_configs(described) if described else {}
        sizes = _sizes(cluster, described)
        ends = extents(cluster, led(described.values()))
    if is_json:
        print_json(
            [
                _as_json(topic, sizes, ends, shown[topic.name])
                | {"configs": _set_on_topic(configs[topic.name])}
                for topic in described.values()
            ]
        )
        return
    for topic in described.values():
        own = " ".join(f"{key}={value}" for key, value in _set_on_topic(configs[topic.name]).items())
        own_cells = [own] if own else []
        print_line(topic.name, f"id={_id_text(topic)}", f"partitions={len(topic.partitions)}", *own_cells)
        rows = [
            [
                p.partition,
                p.leader,
                listed(p.replicas),
                listed(p.isr),
                bytes_text(sizes.get((topic.name, p.partition))),
                *ends.get((topic.name, p.partition), Extent())[:2],
            ]
            for p in shown[topic.name]
        ]
        worry = {
            number: "red"
            for number, p in enumerate(shown[topic.name])
            if p.leader < 0 or p.is_under_replicated
        }
        print_table(PARTITION_COLUMNS, rows, emphasis=worry)
    if not described:
        report("no such partition" if under_replicated or unavailable else "there are no topics")


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", shell_complete=topic_names)
@click.option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a setting. Repeatable.",
    shell_complete=topic_keys,
)
@click.option(
    "--delete-config",
    "deletions",
    metavar="KEY",
    multiple=True,
    help="Delete a setting: its default applies again. Repeatable.",
    shell_complete=topic_keys,
)
@click.option(
    "--replication-factor",
    metavar="N",
    type=click.IntRange(1),
    help="Give each partition N replicas: the brokers with the least load get the new ones, in other racks "
    "if there are any.",
)
@is_throttled
@click.option(
    "--validate-only", is_flag=True, help="Validate without applying; show the plan of --replication-factor."
)
@reaches_cluster
def alter(
    names: tuple[str, ...],
    configs: tuple[str, ...],
    deletions: tuple[str, ...],
    replication_factor: int | None,
    throttle: int | None,
    concurrent: int,
    validate_only: bool,
) -> int:
    """Change settings of topics, and their replication factor; other settings do not change.

    Replicas are added with progress. Ctrl-C ends the command: what has begun goes on.
    """
    if not configs and not deletions and replication_factor is None:
        raise click.UsageError(
            "nothing to change: give --config KEY=VALUE, --delete-config KEY or --replication-factor N"
        )
    changes = [ConfigChange(key, value) for key, value in pairs(configs, "--config").items()]
    changes += [ConfigChange(key, None, "delete") for key in deletions]
    with admin() as cluster:
        if changes:
            cluster.alter_configs(
                {ConfigResource("topic", name): changes for name in names}, validate_only=validate_only
            )
            report(f"changed {listed(names)}", is_trial=validate_only)
        if replication_factor is None:
            return 0
        execution = Execution(not validate_only, is_confirmed=True, throttle=throttle, concurrent=concurrent)
        return alter_factor(cluster, names, replication_factor, execution)


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", shell_complete=topic_names)
@click.option("--if-exists", is_flag=True, help="Skip topics that do not exist.")
@reaches_cluster
def delete(names: tuple[str, ...], if_exists: bool) -> None:
    """Delete topics with all their records."""
    with admin() as cluster:
        known = cluster.list_topics(include_internal=True) if if_exists else None
        present = [name for name in names if known is None or name in known]
        cluster.delete_topics(present)
    report(f"deleted {listed(present)}" if present else "nothing to delete: no such topic exists")


@topics.command(name="add-partitions")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", shell_complete=topic_names)
@click.option(
    "--partitions",
    "--total",
    type=click.IntRange(1),
    required=True,
    help="Set the total number of partitions.",
)
@click.option(
    "--replica-assignment", metavar="1:2,2:3", help="Assign the brokers of each new partition explicitly."
)
@click.option("--validate-only", is_flag=True, help="Validate without applying.")
@reaches_cluster
def add_partitions(
    names: tuple[str, ...], partitions: int, replica_assignment: str | None, validate_only: bool
) -> None:
    """Add partitions to topics. Existing records do not move; keys may map to other partitions."""
    wanted = NewPartitions(partitions, () if replica_assignment is None else _assignment(replica_assignment))
    with admin() as cluster:
        cluster.create_partitions(dict.fromkeys(names, wanted), validate_only=validate_only)
    report(f"{listed(names)} now have {_count(partitions, 'partition')}", is_trial=validate_only)


def _assignment(text: str) -> list[list[int]]:
    parts = [part.split(":") for part in text.split(",")]
    if not all(node.isdecimal() for part in parts for node in part):
        raise click.BadParameter(f"{text!r} is not like 1:2,2:3", param_hint="--replica-assignment")
    return [[int(node) for node in part] for part in parts]


def _shown(topic: Topic, *, under_replicated: bool, unavailable: bool) -> list[Partition]:
    """The selected partitions: all, or those with one of the named problems."""
    if not under_replicated and not unavailable:
        return list(topic.partitions)
    return [
        p
        for p in topic.partitions
        if (under_replicated and p.is_under_replicated) or (unavailable and p.leader < 0)
    ]


def _sizes(cluster: Admin, topics: dict[str, Topic]) -> dict[TopicPartition | tuple[str, int], int]:
    """The size of each partition's leader in bytes; empty if the brokers do not return it, or if there are
    too many partitions to name.
    """
    leaders = {
        TopicPartition(topic.name, p.partition): p.leader
        for topic in topics.values()
        for p in topic.partitions
        if p.leader >= 0
    }
    if not leaders:
        return {}
    asked = list(leaders) if len(leaders) <= SIZES_ASKED_MAX else None
    try:
        brokers = sorted(set(leaders.values()))
        dirs = described_by_all(lambda: cluster.describe_log_dirs(brokers, partitions=asked)).found
    except BrokerError:
        return {}  # sizes are optional: the broker may lack the request or refuse it
    return {
        at: replica.size_bytes
        for node, own in dirs.items()
        for directory in own
        for at, replica in directory.replicas.items()
        if leaders.get(at) == node and not replica.is_future
    }


def _as_json(
    topic: Topic,
    sizes: dict[TopicPartition | tuple[str, int], int],
    ends: dict[tuple[str, int], Extent],
    shown: list[Partition] | None = None,
) -> dict[str, object]:
    return {
        "name": topic.name,
        "id": _id_text(topic),
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "partition": p.partition,
                "leader": p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": p.replicas,
                "isr": p.isr,
            }
            | {"size_bytes": sizes.get((topic.name, p.partition))}
            | {"log_start_offset": extent.begin, "log_end_offset": extent.end}
            for p in (topic.partitions if shown is None else shown)
            for extent in [ends.get((topic.name, p.partition), Extent())]
        ],
    }


def _id_text(topic: Topic) -> str:
    """A topic id in the text form of Kafka's tools."""
    return urlsafe_b64encode(topic.topic_id).decode().rstrip("=")


def _set_on_topic(configs: dict[str, ConfigEntry]) -> dict[str, str | None]:
    return {name: entry.value for name, entry in configs.items() if entry.source == "DYNAMIC_TOPIC_CONFIG"}


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _replica_count(topic: Topic) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)
