"""The settings of a broker by layer: static, dynamic cluster-wide and dynamic per broker, and the effective
values.

    default ◄ file and `--set` ◄ cluster-wide, while running ◄ this broker, while running

Only keys that may change while running count in the upper layers (KIP-226); other keys stored there, by
another release or broker, are ignored.
"""

from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from typing import Any, cast

import msgspec

from sparklog.errors import SettingsError

from .checks import check_cordoned
from .keys import LONG_MAX, Key, Kind, Update, text_of
from .settings import BrokerSettings, broker_keys, key_of
from .tls_settings import listener_texts
from .topic_settings import TopicSettings, topic_defaults_of, topic_keys_of_broker


def _throttle(name: str, doc: str, *, at_least: int = 0) -> tuple[Key, str]:
    return Key(name, Kind.LONG, doc, at_least, update=Update.CLUSTER_WIDE), str(LONG_MAX)


LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
REASSIGNMENT_RATE = "sparklog.reassignment.throttled.rate"
BROKER_STATE = "sparklog.broker.state"


DYNAMIC_ONLY: dict[str, tuple[Key, str]] = {
    key.name: (key, default)
    for key, default in (
        _throttle(
            LEADER_RATE,
            "The bytes a second that throttled replicas are sent by this leader while they are not in sync. "
            "With 0 they are sent nothing.",
        ),
        _throttle(
            FOLLOWER_RATE,
            "The bytes a second that throttled replicas of this follower ask for while they are not in sync. "
            "With 0 they ask for nothing.",
        ),
        _throttle(MOVE_RATE, "The bytes a second that replicas move at between data directories."),
        _throttle(
            REASSIGNMENT_RATE,
            "The bytes a second at which each broker sends, and each receives, the records of replicas that "
            "are not in sync. Removed by the controller once all are.",
            at_least=1,
        ),
        (
            Key(
                BROKER_STATE,
                Kind.STRING,
                "The work that the cluster leaves to this broker: `cordoned` brokers get no new replicas, "
                "`drained` ones lead nothing either, and from `decommissioned` ones every replica is moved "
                "away, and then they are unregistered.",
                choices=("active", "cordoned", "drained", "decommissioned"),
                update=Update.PER_BROKER,
            ),
            "active",
        ),
    )
}
"""(key, default) of keys that can be set only while the broker runs, never in a file; reassignment tools
set and remove them.
"""


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's settings by layer; `effective` merges them. Build it by `of`, or by `kept` from checked
    layers.
    """

    static: BrokerSettings
    cluster: Mapping[str, str]
    broker: Mapping[str, str]
    effective: BrokerSettings
    conflict: str = ""
    _texts: dict[str, str | None] = msgspec.field(
        default_factory=dict
    )  # the texts of keys that were requested

    @staticmethod
    def of(
        static: BrokerSettings,
        *,
        cluster: Mapping[str, str] | None = None,
        broker: Mapping[str, str] | None = None,
    ) -> "Layers":
        """The layers and their effective settings; raises SettingsError if individually valid values
        contradict each other.
        """
        cluster, broker = (
            _changeable(cluster or {}, Update.CLUSTER_WIDE),
            _changeable(broker or {}, Update.PER_BROKER),
        )
        effective = _effective(static, cluster, broker) if cluster or broker else static
        check_cordoned(effective)
        return Layers(static=static, cluster=cluster, broker=broker, effective=effective)

    @staticmethod
    def kept(static: BrokerSettings, *, cluster: Mapping[str, str], broker: Mapping[str, str]) -> "Layers":
        """The layers of values that were valid when they were set. If they contradict the file now, only
        the file applies and `conflict` has the reason: the broker must start so that the settings can be
        corrected.
        """
        try:
            return Layers.of(static, cluster=cluster, broker=broker)
        except SettingsError as error:
            return Layers(
                static=static, cluster=cluster, broker=broker, effective=static, conflict=str(error)
            )

    def text(self, name: str) -> str | None:
        """The effective value of a broker key, as Kafka writes it; None without a value, and for unknown
        keys.
        """
        key = dynamic_key(name)
        if key is None:
            return None
        if name not in self._texts:
            given = next(
                (texts[name] for texts in (self.broker, self.cluster, self.static.given) if name in texts),
                None,
            )
            self._texts[name] = default_of(name) if given is None else text_of(key.parse(given))
        return self._texts[name]


def dynamic_key(name: str) -> Key | None:
    """The definition of a broker key, including dynamic-only keys; None for an unknown key."""
    if name in DYNAMIC_ONLY:
        return DYNAMIC_ONLY[name][0]
    try:
        return key_of(name)
    except SettingsError:
        return None


def default_of(name: str) -> str | None:
    """The default of a broker key as text; None if it has none."""
    if name in broker_keys():
        return text_of(attrgetter(broker_keys()[name][0])(_defaults()))
    if name in topic_keys_of_broker():
        field, key, synonym = topic_keys_of_broker()[name]
        return text_of(synonym.default if len(key.synonyms) > 1 else getattr(_defaults().topics, field))
    if name in DYNAMIC_ONLY:
        return DYNAMIC_ONLY[name][1]
    from .without_effect import KEYS

    return text_of(KEYS[name][1]) if name in KEYS else None


def synonyms_of(name: str) -> list[str]:
    """The broker keys that supply the same value, in order of precedence, including `name`."""
    found = topic_keys_of_broker().get(name)
    return [synonym.name for synonym in found[1].synonyms] if found else [name]


@cache
def _defaults() -> BrokerSettings:
    return BrokerSettings()


def _changeable(texts: Mapping[str, str], least: Update) -> dict[str, str]:
    """Those of these texts, in order of their keys, whose keys may change at that level."""
    kept: dict[str, str] = {}
    for name in sorted(texts):
        key = dynamic_key(name)
        if (
            key is None
            or key.update is Update.READ_ONLY
            or (least is Update.CLUSTER_WIDE and key.update is Update.PER_BROKER)
        ):
            continue
        try:
            key.parse(texts[name])
        except SettingsError:
            continue
        kept[name] = texts[name]
    return kept


def _effective(
    static: BrokerSettings, cluster: Mapping[str, str], broker: Mapping[str, str]
) -> BrokerSettings:
    changes: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    given = dict(static.given)
    changes["of_listeners"] = {
        **static.of_listeners,
        **listener_texts(cluster),
        **listener_texts(broker),
    }
    for texts in (cluster, broker):
        for name, text in texts.items():
            # A key in one layer overrides its synonyms in lower layers, regardless of precedence within one
            # layer.
            for synonym in synonyms_of(name):
                given.pop(synonym, None)
            given[name] = text
            if name in broker_keys():
                field, key = broker_keys()[name]
                part, _, field = field.rpartition(".")
                (parts.setdefault(part, {}) if part else changes)[field] = key.parse(text)
    topics = TopicSettings.of(
        msgspec.structs.replace(TopicSettings(), **cast(dict[str, Any], topic_defaults_of(given))), {}
    )
    changes |= {
        part: msgspec.structs.replace(getattr(static, part), **values) for part, values in parts.items()
    }
    return msgspec.structs.replace(static, topics=topics, **changes)
