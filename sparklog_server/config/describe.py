"""What DescribeConfigs answers: every key of a topic or a broker, its value, and where the value comes from."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from operator import attrgetter
from typing import Any, NamedTuple, cast

import msgspec

from .keys import Key, Kind, Update, text_of
from .settings import BrokerSettings, broker_keys, key_of, topic_defaults_of
from .topic_settings import TopicSettings, topic_keys, topic_keys_of_broker


class Source(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigSynonym(NamedTuple):
    """A place that could supply the value, in the order in which they are asked."""

    name: str
    value: str | None
    source: Source


class ConfigRow(msgspec.Struct, frozen=True):
    """One key with its effective value; `value` is None where Kafka says null, and always for a sensitive key."""

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
        """Whether nobody has set the key."""
        return self.source is Source.DEFAULT


class Dynamic(msgspec.Struct, frozen=True):
    """What was set while running: for this broker, and for the whole cluster."""

    broker: Mapping[str, str] = {}
    cluster: Mapping[str, str] = {}


_NOTHING_DYNAMIC = Dynamic()


def describe_topic(settings: BrokerSettings, overrides: Mapping[str, str], dynamic: Dynamic = _NOTHING_DYNAMIC) -> list[ConfigRow]:
    """The rows of a topic with these overrides, in alphabetical order; internal keys appear only when they are set."""
    changed = cast(dict[str, Any], topic_defaults_of({**dynamic.cluster, **dynamic.broker}))
    effective = TopicSettings.of(msgspec.structs.replace(settings.topics, **changed) if changed else settings.topics, overrides)
    return [
        _topic_row(field, key, effective, settings, overrides, dynamic)
        for name, (field, key) in topic_keys().items()
        if not name.startswith("internal.") or name in overrides
    ]


def describe_broker(settings: BrokerSettings, dynamic: Dynamic = _NOTHING_DYNAMIC) -> list[ConfigRow]:
    """The rows of a broker in alphabetical order, those without effect included."""
    from .without_effect import KEYS

    rows = [_broker_row(key_of(name), settings, dynamic) for name in (*broker_keys(), *topic_keys_of_broker())]
    rows += [_broker_row(key, settings, dynamic) for key, _ in KEYS.values()]
    return sorted(rows, key=lambda row: row.name)


def _topic_row(
    field: str, key: Key, effective: TopicSettings, settings: BrokerSettings, overrides: Mapping[str, str], dynamic: Dynamic
) -> ConfigRow:
    synonyms = _synonyms([synonym.name for synonym in key.synonyms], settings, dynamic)
    if key.name in overrides:
        synonyms.insert(0, ConfigSynonym(key.name, overrides[key.name], Source.TOPIC))
    source = synonyms[0].source if synonyms else Source.DEFAULT
    value = text_of(getattr(effective, field))
    return ConfigRow(key.name, value, source, key.kind, key.doc, key.is_sensitive, False, tuple(synonyms))


def _broker_row(key: Key, settings: BrokerSettings, dynamic: Dynamic) -> ConfigRow:
    found = topic_keys_of_broker().get(key.name)
    names = [synonym.name for synonym in found[1].synonyms] if found else [key.name]
    synonyms = _synonyms(names, settings, dynamic)
    # What Kafka shows is the key's own value; a synonym that wins over it is told by the list.
    value = dynamic.broker.get(key.name, dynamic.cluster.get(key.name, _static_value(key.name, settings)))
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return ConfigRow(
        name=key.name,
        value=None if key.is_sensitive else value,
        source=source,
        type=key.kind,
        doc=key.doc,
        is_sensitive=key.is_sensitive,
        is_read_only=key.update is Update.READ_ONLY,
        synonyms=tuple(ConfigSynonym(one.name, None, one.source) if key.is_sensitive else one for one in synonyms),
    )


def _synonyms(names: Iterable[str], settings: BrokerSettings, dynamic: Dynamic) -> list[ConfigSynonym]:
    """Every place that supplies a value, source by source and within a source in the order of the names."""
    names = list(names)
    places: list[tuple[Mapping[str, str | None], Source]] = [
        (dict(dynamic.broker), Source.DYNAMIC_BROKER),
        (dict(dynamic.cluster), Source.DYNAMIC_CLUSTER),
        (dict(settings.given), Source.STATIC_BROKER),
        ({name: value for name in names if (value := default_of(name)) is not None}, Source.DEFAULT),
    ]
    return [ConfigSynonym(name, texts[name], source) for texts, source in places for name in names if name in texts]


def default_of(name: str) -> str | None:
    """The default of a broker key, as text; None where it has none."""
    if name in broker_keys():
        return text_of(attrgetter(broker_keys()[name][0])(_DEFAULTS))
    if name in topic_keys_of_broker():
        field, key, synonym = topic_keys_of_broker()[name]
        return text_of(synonym.default if len(key.synonyms) > 1 else getattr(_DEFAULTS.topics, field))
    from .without_effect import KEYS

    return text_of(KEYS[name][1]) if name in KEYS else None


def _static_value(name: str, settings: BrokerSettings) -> str | None:
    if name == "listeners":  # with the ports that were bound
        return ",".join(map(str, settings.listeners))
    if name == "advertised.listeners" and settings.advertised_listeners_given is not None:
        return ",".join(map(str, settings.advertised_listeners))
    return text_of(key_of(name).parse(settings.given[name])) if name in settings.given else default_of(name)


_DEFAULTS = BrokerSettings()
