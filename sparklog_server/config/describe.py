"""Responses to DescribeConfigs: every key of a resource, its value, and the source of the value."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

import msgspec

from sparklog.errors import SettingsError

from .client_metrics import CLIENT_METRICS_KEYS
from .client_metrics import DEFAULTS as CLIENT_METRICS_DEFAULTS
from .group_keys import DEFAULTS as GROUP_DEFAULTS
from .group_keys import GROUP_KEYS, default_for_group
from .keys import Key, Kind, Update, text_of
from .layers import Layers, default_of, dynamic_key, synonyms_of
from .settings import BrokerSettings, broker_keys
from .topic_settings import TopicSettings, topic_keys, topic_keys_of_broker

# Kafka shows these only if they are set: they are for its own tests, or not stable yet.
_INTERNAL = frozenset(
    (
        "controller.performance.always.log.threshold.ms",
        "controller.performance.sample.period.ms",
        "group.consumer.regex.refresh.interval.ms",
        "group.share.initialize.retry.interval.ms",
        "group.share.persister.class.name",
        "internal.metadata.delete.delay.millis",
        "internal.metadata.log.segment.bytes",
        "internal.metadata.max.batch.size.in.bytes",
        "log.initial.task.delay.ms",
        "producer.id.expiration.check.interval.ms",
        "remote.log.index.file.cache.ttl.ms",
        "remote.log.manager.task.retry.backoff.max.ms",
        "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.jitter",
        "server.max.startup.time.ms",
        "share.coordinator.cold.partition.snapshot.interval.ms",
        "share.coordinator.state.topic.prune.interval.ms",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    )
)


class Source(IntEnum):
    """The source of a value; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """A possible source of a value, in order of precedence."""

    name: str
    value: str | None
    source: Source


class ConfigRow(msgspec.Struct, frozen=True):
    """One key with its effective value; `value` is None if Kafka returns null, and always for a sensitive
    key.
    """

    name: str
    value: str | None
    source: Source
    type: Kind
    doc: str
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        """Whether the key is not set."""
        return self.source is Source.DEFAULT


def describe_topic(layers: Layers, overrides: Mapping[str, str]) -> list[ConfigRow]:
    """The rows of a topic with these overrides, in alphabetical order; internal keys appear only when they
    are set.
    """
    effective = TopicSettings.kept(layers.effective.topics, overrides)
    return [
        _topic_row(field, key, effective, layers, overrides)
        for name, (field, key) in topic_keys().items()
        if not name.startswith("internal.") or name in overrides
    ]


def default_sources(layers: Layers) -> dict[str, Source]:
    """The source of each key of a topic without overrides, including the coarser synonyms, which
    `describe_topic` omits.
    """
    found = {
        name: _places([synonym.name for synonym in key.synonyms], layers)
        for name, (_, key) in topic_keys().items()
    }
    return {name: places[0].source if places else Source.DEFAULT for name, places in found.items()}


def describe_broker(layers: Layers) -> list[ConfigRow]:
    """The rows of a broker in alphabetical order, those without effect included; internal keys appear only
    when they are set.
    """
    from .without_effect import KEYS

    known = frozenset((*broker_keys(), *topic_keys_of_broker(), *KEYS)) - _INTERNAL
    return [
        broker_row(name, layers)
        for name in sorted(known.union(layers.static.given, layers.cluster, layers.broker))
    ]


def describe_cluster(layers: Layers) -> list[ConfigRow]:
    """The rows of the dynamic cluster-wide settings only, in alphabetical order."""
    return [_cluster_row(name, layers.cluster[name]) for name in sorted(layers.cluster)]


def describe_group(layers: Layers, overrides: Mapping[str, str]) -> list[ConfigRow]:
    """The rows of a group with these settings of its own, in alphabetical order."""
    return [_group_row(key, layers, overrides) for key in GROUP_KEYS.values()]


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigRow]:
    """The rows of a client metrics subscription, in alphabetical order."""
    return [
        _own_row(
            key,
            _read(key, overrides.get(name, CLIENT_METRICS_DEFAULTS[name])),
            Source.CLIENT_METRICS if name in overrides else None,
            [],
        )
        for name, key in CLIENT_METRICS_KEYS.items()
    ]


def _topic_row(
    field: str, key: Key, effective: TopicSettings, layers: Layers, overrides: Mapping[str, str]
) -> ConfigRow:
    names = [synonym.name for synonym in key.synonyms]
    synonyms = _synonyms(names[0], names, layers) if names else []
    return _own_row(
        key, text_of(getattr(effective, field)), Source.TOPIC if key.name in overrides else None, synonyms
    )


def _group_row(key: Key, layers: Layers, overrides: Mapping[str, str]) -> ConfigRow:
    if key.name in GROUP_DEFAULTS:
        synonyms = [ConfigSynonym(key.name, GROUP_DEFAULTS[key.name], Source.DEFAULT)]
    else:
        synonyms = _synonyms(key.synonyms[0].name, [key.synonyms[0].name], layers)
    is_own = key.name in overrides
    value = _read(key, overrides[key.name]) if is_own else default_for_group(key.name, layers)
    return _own_row(key, value, Source.GROUP if is_own else None, synonyms)


def _own_row(key: Key, value: str | None, own: Source | None, synonyms: list[ConfigSynonym]) -> ConfigRow:
    """The row of a key that its resource can set; `own` is the source if it has."""
    if own is not None:
        synonyms = [ConfigSynonym(key.name, value, own), *synonyms]
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return ConfigRow(key.name, value, source, key.kind, key.doc, key.is_sensitive, False, tuple(synonyms))


def _read(key: Key, text: str) -> str | None:
    """A value as Kafka writes it; the stored text if another release stored a value that this one rejects."""
    try:
        return text_of(key.parse(text))
    except SettingsError:
        return text


def broker_row(name: str, layers: Layers) -> ConfigRow:
    """The row of one key of a broker, which is known."""
    key = dynamic_key(name)
    assert key is not None
    synonyms = _synonyms(name, synonyms_of(name), layers)
    # Kafka shows the key's own value; the list of synonyms shows an overriding one.
    return ConfigRow(
        name=name,
        value=None if key.is_sensitive else _shown(name, layers),
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        type=key.kind,
        doc=key.doc,
        is_sensitive=key.is_sensitive,
        is_read_only=key.update is Update.READ_ONLY,
        synonyms=tuple(
            ConfigSynonym(one.name, None, one.source) if key.is_sensitive else one for one in synonyms
        ),
    )


def _cluster_row(name: str, text: str) -> ConfigRow:
    key = dynamic_key(name)
    assert key is not None
    value = None if key.is_sensitive else text
    synonyms = (ConfigSynonym(name, value, Source.DYNAMIC_CLUSTER),)
    return ConfigRow(
        name, value, Source.DYNAMIC_CLUSTER, key.kind, key.doc, key.is_sensitive, False, synonyms
    )


def _synonyms(name: str, names: Iterable[str], layers: Layers) -> list[ConfigSynonym]:
    """Every source of a value, source by source, and within a source in the order of the names.

    As in Kafka, the list begins with the first source under `name` itself; a synonym before it is left out.
    """
    found = _places(list(names), layers)
    first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[first:]


def _places(names: list[str], layers: Layers) -> list[ConfigSynonym]:
    given = layers.static.given
    told_otherwise = {
        name: value
        for name in names
        if name in _AS_IN_FORCE and (value := _in_force(name, layers)) is not None
    }
    places: list[tuple[Mapping[str, str], Source]] = [
        (layers.broker, Source.DYNAMIC_BROKER),
        (layers.cluster, Source.DYNAMIC_CLUSTER),
        ({**given, **told_otherwise} if told_otherwise else given, Source.STATIC_BROKER),
        ({one: value for one in names if (value := default_of(one)) is not None}, Source.DEFAULT),
    ]
    return [
        ConfigSynonym(one, texts[one], source) for texts, source in places for one in names if one in texts
    ]


def _shown(name: str, layers: Layers) -> str | None:
    in_force = _in_force(name, layers) if name in _AS_IN_FORCE else None
    return layers.text(name) if in_force is None else in_force


_AS_IN_FORCE = frozenset(("listeners", "advertised.listeners", "broker.id"))


def _in_force(name: str, layers: Layers) -> str | None:
    """Values that differ from the given text: bound ports, and node.id for the older broker.id."""
    settings: BrokerSettings = layers.static
    if name == "listeners" and name in settings.given:
        return ",".join(map(str, settings.listeners))
    if name == "advertised.listeners" and name in settings.given:
        return ",".join(map(str, settings.advertised_listeners))
    if name == "broker.id" and name not in settings.given and "node.id" in settings.given:
        return str(settings.node_id)
    return None
