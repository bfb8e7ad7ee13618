"""All topics, page by page, and the creation of one."""

from typing import Final, NamedTuple

from starlette.responses import Response

from sparklog.client.admin.admin import NewTopic
from sparklog.client.admin.topics import Topic
from sparklog.errors import SettingsError, SparklogError
from sparklog.model import TopicPartition
from sparklog_server.config.topic_settings import topic_keys
from sparklog_server.config.units import in_unit_of
from sparklog_server.console.ask import DIGITS_MAX, Ask, Refused, get, post

PER_PAGE: Final = 50
PAGES_MAX: Final = 100_000
FIRST_KEYS: Final = (
    *("cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas", "compression.type"),
    *("max.message.bytes", "segment.bytes"),
)
"""The settings that are set most often for a new topic; the others are in the second part of the form."""


class TopicRow(NamedTuple):
    """A topic in the list; the size in bytes of all replicas, None if it is not known."""

    topic: Topic
    replication: int
    offline: int
    under_replicated: int
    size: int | None
    rate: float | None


async def topics(ask: Ask) -> Response:
    """The topics whose name contains the search text, `PER_PAGE` at a time."""
    search, shows_internal = ask.query("q"), ask.query("internal") == "1"
    found = [
        topic
        for name, topic in (await ask.cluster.topics()).items()
        if search.lower() in name.lower() and (shows_internal or not topic.is_internal)
    ]
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(1, ask.number("page", 1, at_most=PAGES_MAX)), pages)
    shown = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    sizes = await _sizes(ask, shown)
    rates = ask.session.samples.rates
    return ask.page(
        "topics.html",
        rows=[_row(topic, sizes, rates.get(topic.name)) for topic in shown],
        count=len(found),
        page_number=page,
        pages=pages,
        search=search,
        shows_internal=shows_internal,
    )


async def new(ask: Ask) -> Response:
    """The form for a new topic."""
    keys = {name: key for name, (_, key) in topic_keys().items() if key.has_effect}
    first = [keys.pop(name) for name in FIRST_KEYS]
    others = list(keys.values())
    is_open = any(ask.field(f"config.{key.name}") for key in others)
    return ask.page("topic_new.html", first=first, others=others, is_open=is_open)


async def create(ask: Ask) -> Response:
    """Create a topic."""
    name = ask.required("name", "the name").strip()
    configs = {key: value for key in topic_keys() if (value := _config(ask, key))}
    wanted = NewTopic(name, _count(ask, "partitions"), _count(ask, "replication"), configs)
    await ask.cluster.change(lambda admin: admin.create_topics([wanted]))
    return ask.moved(f"/topics/{name}", f"Topic {name} is created.")


def _config(ask: Ask, key: str) -> str:
    try:
        return in_unit_of(key, ask.field(f"config.{key}"))
    except SettingsError as error:
        raise Refused(str(error), f"config.{key}") from None


def _count(ask: Ask, name: str) -> int:
    text = ask.field(name).strip()
    if not text:
        return -1
    if not text.isdecimal() or len(text) > DIGITS_MAX or not 0 < int(text) < 1 << 15:
        raise Refused(f"{text[:40]!r} is not a number from 1 to 32767", name)
    return int(text)


async def _sizes(ask: Ask, shown: list[Topic]) -> dict[str, int]:
    """Bytes by topic, over all replicas; none where the user may not ask for them, or brokers are away."""
    partitions = [TopicPartition(topic.name, one.partition) for topic in shown for one in topic.partitions]
    sizes: dict[str, int] = {}
    if not partitions:
        return sizes
    try:
        described = await ask.admin(lambda admin: admin.describe_log_dirs(partitions=partitions))
    except SparklogError:
        return sizes
    for dirs in described.values():
        for one in dirs:
            for at, replica in one.replicas.items():
                sizes[at.topic] = sizes.get(at.topic, 0) + replica.size_bytes
    return sizes


def _row(topic: Topic, sizes: dict[str, int], rate: float | None) -> TopicRow:
    return TopicRow(
        topic,
        max((len(one.replicas) for one in topic.partitions), default=0),
        sum(one.leader < 0 for one in topic.partitions),
        sum(one.is_under_replicated for one in topic.partitions),
        sizes.get(topic.name),
        rate,
    )


ROUTES = [get("/topics", topics), get("/new-topic", new), post("/new-topic", create, form=new)]
