"""`sparklog topics`: create, list, describe, delete, and delete records."""

from typing import TYPE_CHECKING

import click

from sparklog_server.cli.options import as_json, bootstrap_server, client_settings, pairs, print_json, print_table

if TYPE_CHECKING:
    from typing import IO

    from sparklog.client.admin import Admin, ConfigEntry, Topic
    from sparklog.errors import BrokerError
    from sparklog.model import TopicPartition

EXIT_FAILURE = 1


@click.group()
def topics() -> None:
    """Create, list, describe and delete topics, and delete their records."""


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", type=click.IntRange(1), show_default="the broker's num.partitions", help="The number of partitions.")
@click.option("--replication-factor", type=click.IntRange(1), show_default="the broker's", help="The number of replicas.")
@click.option("--config", "configs", metavar="KEY=VALUE", multiple=True, help="A setting of the topic. Repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that exists as it is.")
@bootstrap_server
@as_json
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap_server: str,
    is_json: bool,
) -> None:
    """Create topics."""
    from sparklog.client.admin import NewTopic

    with _admin(bootstrap_server) as admin:
        known = admin.list_topics(include_internal=True) if if_not_exists else {}
        own = pairs(configs, "--config")
        wanted = [NewTopic(name, partitions or -1, replication_factor or -1, own) for name in names if name not in known]
        created = admin.create_topics(wanted) if wanted else {}
    if is_json:
        print_json(
            [
                {"name": topic.name, "partitions": topic.partition_count, "replication_factor": topic.replication_factor}
                for topic in created.values()
            ]
        )


@topics.command(name="list")
@click.option("--internal", is_flag=True, help="Also the topics that the cluster keeps for itself.")
@bootstrap_server
@as_json
def list_topics(internal: bool, bootstrap_server: str, is_json: bool) -> None:
    """List the topics."""
    with _admin(bootstrap_server) as admin:
        listed = admin.list_topics(include_internal=internal)
    if is_json:
        print_json([_as_json(topic) for topic in listed.values()])
    else:
        print_table(["topic", "partitions", "replicas"], [[t.name, len(t.partitions), _replica_count(t)] for t in listed.values()])


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_server
@as_json
def describe(names: tuple[str, ...], bootstrap_server: str, is_json: bool) -> None:
    """Show the partitions and the settings of topics."""
    with _admin(bootstrap_server) as admin:
        described = admin.describe_topics(names)
        configs = admin.describe_configs(names)
    if is_json:
        print_json([_as_json(topic) | {"configs": _set_on_topic(configs[topic.name])} for topic in described.values()])
        return
    for topic in described.values():
        own = " ".join(f"{key}={value}" for key, value in _set_on_topic(configs[topic.name]).items())
        click.echo(f"{topic.name}\tid={_id_text(topic)}\tpartitions={len(topic.partitions)}\t{own}".rstrip())
        rows = [[p.partition, p.leader, _listed(p.replicas), _listed(p.isr)] for p in topic.partitions]
        print_table(["partition", "leader", "replicas", "in sync"], rows)


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="Pass over a topic that does not exist.")
@bootstrap_server
def delete(names: tuple[str, ...], if_exists: bool, bootstrap_server: str) -> None:
    """Delete topics with all their records."""
    with _admin(bootstrap_server) as admin:
        known = admin.list_topics(include_internal=True) if if_exists else None
        admin.delete_topics([name for name in names if known is None or name in known])


@topics.command(name="delete-records")
@click.argument("topic", required=False, metavar="[TOPIC]")
@click.option("--partition", "partitions", metavar="N", type=click.IntRange(0), multiple=True, help="A partition of TOPIC. Repeatable.")
@click.option("--before", metavar="OFFSET", type=click.IntRange(-1), help="Delete what lies below it; -1 deletes all that is committed.")
@click.option(
    "--offset-json-file",
    type=click.File("r", encoding="utf-8"),
    help='Instead of the above, as Kafka\'s tool reads it: {"partitions": [{"topic": "t", "partition": 0, "offset": 100}], "version": 1}.',
)
@bootstrap_server
@as_json
def delete_records(
    topic: str | None,
    partitions: tuple[int, ...],
    before: int | None,
    offset_json_file: "IO[str] | None",
    bootstrap_server: str,
    is_json: bool,
) -> int:
    """Delete the oldest records of partitions, for good, and tell where their logs begin now."""
    if offset_json_file is not None:
        if topic is not None or partitions or before is not None:
            raise click.UsageError("--offset-json-file names topics, partitions and offsets: leave TOPIC, --partition and --before out")
        offsets = _offsets_in(offset_json_file.read())
    else:
        if topic is None or not partitions or before is None:
            raise click.UsageError("give TOPIC with --partition and --before, or --offset-json-file")
        from sparklog.model import TopicPartition

        offsets = {TopicPartition(topic, partition): before for partition in partitions}
    with _admin(bootstrap_server) as admin:
        deleted = admin.delete_records(offsets)
    if is_json:
        print_json(
            [
                {"topic": at.topic, "partition": at.partition, "low_watermark": result.low_watermark, "error": _error_text(result.error)}
                for at, result in deleted.items()
            ]
        )
    else:
        done = [[at.topic, at.partition, result.low_watermark] for at, result in deleted.items() if result.error is None]
        print_table(["topic", "partition", "begins at"], done)
        for result in deleted.values():
            if result.error is not None:
                click.echo(f"sparklog: {result.error}", err=True)
    return EXIT_FAILURE if any(result.error is not None for result in deleted.values()) else 0


def _offsets_in(text: str) -> "dict[TopicPartition, int]":
    """The offsets in Kafka's JSON; what is not as it should be is told with the entry it is about."""
    from json import loads

    from sparklog.model import TopicPartition

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
        # bool is an int to Python, not to Kafka.
        if type(topic) is not str or type(number) is not int or type(offset) is not int or number < 0 or offset < -1:
            raise click.BadParameter(f"{entry} needs topic, partition (0 or more) and offset (-1 or more)", param_hint=hint)
        partition = TopicPartition(topic, number)
        if partition in offsets:
            raise click.BadParameter(f"{partition} stands there twice", param_hint=hint)
        offsets[partition] = offset
    if not offsets:
        raise click.BadParameter("no partition is named", param_hint=hint)
    return offsets


def _error_text(error: "BrokerError | None") -> str | None:
    return None if error is None else str(error)


def _admin(bootstrap_servers: str) -> "Admin":
    from sparklog.client.admin import Admin

    return Admin.from_settings(client_settings(bootstrap_servers))


def _as_json(topic: "Topic") -> dict[str, object]:
    return {
        "name": topic.name,
        "id": _id_text(topic),
        "is_internal": topic.is_internal,
        "partitions": [
            {"partition": p.partition, "leader": p.leader, "leader_epoch": p.leader_epoch, "replicas": p.replicas, "isr": p.isr}
            for p in topic.partitions
        ],
    }


def _id_text(topic: "Topic") -> str:
    """As Kafka's tools write it."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(topic.topic_id).decode().rstrip("=")


def _set_on_topic(configs: "dict[str, ConfigEntry]") -> dict[str, str | None]:
    return {name: entry.value for name, entry in configs.items() if entry.source == "DYNAMIC_TOPIC_CONFIG"}


def _replica_count(topic: "Topic") -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _listed(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))
