"""`sparklog topics`: create, list, describe, delete."""

from typing import TYPE_CHECKING

import click

from sparklog_server.cli.options import as_json, bootstrap_server, client_settings, pairs, print_json, print_table

if TYPE_CHECKING:
    from sparklog.client.admin import Admin, ConfigEntry, Topic


@click.group()
def topics() -> None:
    """Create, list, describe and delete topics."""


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
