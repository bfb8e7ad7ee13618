"""One topic: its partitions with replicas and sizes, its settings, its growth and its end."""

from typing import Final, NamedTuple

from starlette.responses import Response

from sparklog.client.admin.admin import EARLIEST, LATEST, Admin, Partition
from sparklog.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource
from sparklog.client.admin.topics import Topic
from sparklog.errors import BrokerError, SettingsError, SparklogError
from sparklog.model import NodeId, TopicPartition
from sparklog_server.config.units import in_unit_of
from sparklog_server.console.ask import DIGITS_MAX, Ask, Refused, get, post
from sparklog_server.operations.surveys import described_by_all

PARTITIONS_SHOWN_MAX: Final = 500


class PartitionRow(NamedTuple):
    """A partition; offsets are None without a leader, sizes (bytes by broker) where they are not known."""

    partition: Partition
    begin: int | None
    end: int | None
    sizes: dict[NodeId, int]


async def topic(ask: Ask) -> Response:
    """Partitions and settings."""
    name = ask.part("topic")

    def asked(admin: Admin) -> tuple[Topic, list[PartitionRow], dict[str, ConfigEntry]]:
        described = admin.describe_topics([name])[name]
        try:
            settings = admin.describe_configs([name])[name]
        except BrokerError:
            settings = {}
        return described, _rows(admin, described), settings

    described, rows, settings = await ask.admin(asked)
    edited = ask.query("edit") or ask.field("key")
    shows_all = ask.query("all") == "1" or bool(edited)
    return ask.page(
        "topic.html",
        topic=described,
        rows=rows,
        partition_count=len(described.partitions),
        settings=[
            entry
            for entry in sorted(settings.values(), key=lambda entry: entry.name)
            if shows_all or entry.source == "DYNAMIC_TOPIC_CONFIG"
        ],
        shows_all=shows_all,
        edited=edited,
    )


async def set_setting(ask: Ask) -> Response:
    """Set one setting, or delete it so that the default applies."""
    name = ask.part("topic")
    change = setting_change(ask)
    resource = ConfigResource("topic", name)
    await ask.cluster.change(lambda admin: admin.alter_configs({resource: [change]}))
    return ask.moved(
        f"/topics/{name}",
        f"{change.name} is {'set' if change.operation == 'set' else 'back to its default'}.",
    )


def setting_change(ask: Ask) -> ConfigChange:
    """The change of a setting that a form asks for."""
    key = ask.required("key", "the setting")
    if ask.field("act") == "delete":
        return ConfigChange(key, operation="delete")
    try:
        return ConfigChange(key, in_unit_of(key, ask.field("value")))
    except SettingsError as error:
        raise Refused(str(error), "value") from None


async def add_partitions(ask: Ask) -> Response:
    """Raise the number of partitions."""
    name, text = ask.part("topic"), ask.required("count", "the number of partitions")
    if not text.isdecimal() or len(text) > DIGITS_MAX or int(text) >= 1 << 31:
        raise Refused(f"{text[:40]!r} is no number of partitions", "count")
    await ask.cluster.change(lambda admin: admin.create_partitions({name: int(text)}))
    return ask.moved(f"/topics/{name}", f"{name} has {int(text)} partitions.")


async def asked_to_delete(ask: Ask) -> Response:
    """The form that asks for the name."""
    name = ask.part("topic")
    described = (await ask.admin(lambda admin: admin.describe_topics([name])))[name]
    return ask.page("topic_delete.html", topic=described)


async def delete(ask: Ask) -> Response:
    """Delete the topic, if its name was typed."""
    name = ask.part("topic")
    if ask.field("name") != name:
        raise Refused("That is not the name of the topic.", "name")
    await ask.cluster.change(lambda admin: admin.delete_topics([name]))
    return ask.moved("/topics", f"Topic {name} is deleted.")


def _rows(admin: Admin, described: Topic) -> list[PartitionRow]:
    shown = described.partitions[:PARTITIONS_SHOWN_MAX]
    all_of = [TopicPartition(described.name, one.partition) for one in shown]
    led = [at for at, one in zip(all_of, shown, strict=True) if one.leader >= 0]
    begins = (
        {at: one.offset for at, one in admin.list_offsets(dict.fromkeys(led, EARLIEST)).items()}
        if led
        else {}
    )
    ends = (
        {at: one.offset for at, one in admin.list_offsets(dict.fromkeys(led, LATEST)).items()} if led else {}
    )
    sizes: dict[TopicPartition, dict[NodeId, int]] = {}
    try:
        dirs = described_by_all(lambda: admin.describe_log_dirs(partitions=all_of)).found
    except SparklogError:
        dirs = {}
    for node, own in dirs.items():
        for one in own:
            for at, replica in one.replicas.items():
                if not replica.is_future:
                    sizes.setdefault(at, {})[node] = replica.size_bytes
    return [
        PartitionRow(one, begins.get(at), ends.get(at), sizes.get(at, {}))
        for at, one in zip(all_of, shown, strict=True)
    ]


ROUTES = [
    get("/topics/{topic}", topic),
    post("/topics/{topic}/settings", set_setting, form=topic),
    post("/topics/{topic}/partitions", add_partitions, form=topic),
    get("/topics/{topic}/delete", asked_to_delete),
    post("/topics/{topic}/delete", delete, form=asked_to_delete),
]
