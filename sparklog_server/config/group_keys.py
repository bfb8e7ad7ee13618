"""The settings that a single group can have (KIP-848, KIP-932, KIP-1071). Broker keys supply defaults and
bounds.
"""

import re
from collections.abc import Mapping
from typing import Final

from sparklog.errors import SettingsError

from .keys import Key, Kind, Synonym, invalid
from .layers import Layers
from .topic_settings import nearest

_DURATION = r"(?i)P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d{0,9})?S)?)?"


def _int(name: str, doc: str, at_least: int) -> Key:
    return Key(name, Kind.INT, doc, at_least, synonyms=(Synonym(f"group.{name}", Kind.INT),))


def _word(name: str, doc: str, *choices: str) -> Key:
    return Key(name, Kind.STRING, doc, choices=choices)


GROUP_KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        _int(
            "consumer.assignment.interval.ms",
            "The shortest time between two assignments of this consumer group.",
            0,
        ),
        _int(
            "consumer.heartbeat.interval.ms", "How often the members of this consumer group are to report.", 1
        ),
        _int(
            "consumer.session.timeout.ms",
            "How long a member of this consumer group may be silent before it is out.",
            1,
        ),
        _int(
            "share.assignment.interval.ms",
            "The shortest time between two assignments of this share group.",
            0,
        ),
        _word(
            "share.auto.offset.reset",
            "Where a share group begins to read: `earliest`, `latest`, or `by_duration:` and an ISO "
            "duration.",
        ),
        _int(
            "share.delivery.count.limit",
            "How often a record is delivered to this share group before it is given up.",
            2,
        ),
        _int("share.heartbeat.interval.ms", "How often the members of this share group are to report.", 1),
        _word(
            "share.isolation.level",
            "Whether this share group is shown the records of transactions that are open or were aborted.",
            "read_committed",
            "read_uncommitted",
        ),
        _int(
            "share.partition.max.record.locks",
            "How many records of a partition may be held by members of this share group.",
            100,
        ),
        _int("share.record.lock.duration.ms", "How long a member of this share group holds a record.", 1000),
        Key(
            "share.renew.acknowledge.enable",
            Kind.BOOLEAN,
            "Whether a member of this share group may hold a record for longer.",
        ),
        _int(
            "share.session.timeout.ms",
            "How long a member of this share group may be silent before it is out.",
            1,
        ),
        _int(
            "streams.assignment.interval.ms",
            "The shortest time between two assignments of this streams group.",
            0,
        ),
        _int(
            "streams.heartbeat.interval.ms", "How often the members of this streams group are to report.", 1
        ),
        _int(
            "streams.initial.rebalance.delay.ms",
            "How long this streams group waits for members before its first assignment.",
            0,
        ),
        _int("streams.num.standby.replicas", "The standby replicas of each task of this streams group.", 0),
        _int(
            "streams.session.timeout.ms",
            "How long a member of this streams group may be silent before it is out.",
            1,
        ),
    )
}
"""By name, in alphabetical order."""

DEFAULTS: Final[Mapping[str, str]] = {
    "share.auto.offset.reset": "latest",
    "share.isolation.level": "read_uncommitted",
    "share.renew.acknowledge.enable": "true",
}
"""The defaults of keys that have no broker key."""

_BOUNDED: Final = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.assignment.interval.ms",
)
"""The keys whose bounds are broker keys with `min.` and `max.` after the group type."""

_KINDS: Final = ("consumer", "share", "streams")


def default_for_group(name: str, layers: Layers) -> str | None:
    """The value for a group that has not set the key."""
    return DEFAULTS[name] if name in DEFAULTS else layers.text(f"group.{name}")


def check_group(texts: Mapping[str, str], layers: Layers) -> None:
    """Raise SettingsError unless these settings are valid together for a group (GroupConfig.validate)."""
    values: dict[str, int] = {}
    for name, text in texts.items():
        if name not in GROUP_KEYS:
            raise SettingsError(f"Unknown group config name: {name}{nearest(name, GROUP_KEYS)}")
        value = GROUP_KEYS[name].parse(text)
        if name == "share.auto.offset.reset":
            _check_reset(name, text)
        elif type(value) is int:
            values[name] = value
    for name in _BOUNDED:
        if name in values:
            _check_bounds(name, values[name], layers)
    most = layers.text("group.streams.max.standby.replicas")
    if most is not None and values.get("streams.num.standby.replicas", 0) > int(most):
        raise SettingsError(
            f"streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas "
            f"({most})"
        )
    for kind in _KINDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if {session, heartbeat} & values.keys():
            session_ms = values.get(session, int(default_for_group(session, layers) or 0))
            heartbeat_ms = values.get(heartbeat, int(default_for_group(heartbeat, layers) or 0))
            if session_ms <= heartbeat_ms:
                raise SettingsError(
                    f"{session} must be greater than {heartbeat} ({session_ms} is not greater than "
                    f"{heartbeat_ms})"
                )


def _check_bounds(name: str, value: int, layers: Layers) -> None:
    kind, _, rest = name.partition(".")
    least_key, most_key = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    least, most = layers.text(least_key), layers.text(most_key)
    if least is not None and value < int(least):
        raise SettingsError(
            f"{name} must be greater than or equal to {least_key} ({value} is less than {least})"
        )
    if most is not None and value > int(most):
        raise SettingsError(f"{name} must be less than or equal to {most_key} ({value} is more than {most})")


def _check_reset(name: str, text: str) -> None:
    word, colon, duration = text.strip().lower().partition(":")
    if (word in ("earliest", "latest") and not colon) or (
        word == "by_duration" and re.fullmatch(_DURATION, duration) is not None
    ):
        return
    raise invalid(
        name,
        text,
        "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
    )
