"""Option names that sparklog does not define: accepted, refused with the remedy, or warned of.

Accepted are the keys that Spark adds and, with a warning, options of Spark's Kafka connector that have no
effect here. Refused are options that would change where records go or how they are read, if sparklog does
not support them. An unknown key is refused if it is similar to an option, or has a prefix of sparklog or of
the connector, because a misspelt option must not be ignored silently. Any other unknown key causes a
warning: the platform that runs the query may have added it. So does an option of Delta or of another format
of Spark, however similar: it is spelled as its user wants it.
"""

import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from sparklog.errors import SettingsError

_INJECTED_BY_SPARK: Final = frozenset(
    {"path", "paths", "queryname", "outputmode", "provider", "serialization.format", "header", "timezone"}
)
"""Keys that Spark adds: `load(path)`, `save(path)`, `writeStream`, and the catalog for tables."""

_WITHOUT_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "groupIdPrefix": "a read joins no consumer group; `groupId` sets a group to commit to",
        "kafkaConsumer.pollTimeoutMs": (
            "`kafka.default.api.timeout.ms` limits how long a read waits for records"
        ),
    }
)
"""Options of Spark's Kafka connector that have no effect here."""
_IDLE: Final = {name.lower(): (name, why) for name, why in _WITHOUT_EFFECT.items()}

_FORBIDDEN: Mapping[str, str] = MappingProxyType(
    {
        "kafka.auto.offset.reset": (
            "startingOffsets sets where a query starts, and lost records are never skipped silently"
        ),
        "kafka.key.deserializer": "keys arrive as binary; cast or decode the column in Spark",
        "kafka.value.deserializer": "values arrive as binary; cast or decode the column in Spark",
        "kafka.key.serializer": "keys are written as they are; make the column a string or binary",
        "kafka.value.serializer": "values are written as they are; make the column a string or binary",
        "kafka.enable.auto.commit": "Spark keeps the offsets in its checkpoint",
        "kafka.interceptor.classes": "interceptors could change records between Spark and the log",
        "kafka.partitioner.class": "it would not affect partitions: write a column `partition`",
        "kafka.partitioner.ignore.keys": "it would not affect partitions: write a column `partition`",
    }
)
_OUR_PREFIXES: Final = ("sparklog.", "kafka", "fetchoffset.")
"""An unknown key with one of these prefixes is meant for this format."""
_OF_OTHER_FORMATS: Final = frozenset(
    {
        *("dateformat", "delimiter", "inferschema", "maxmalformedlogperpartition", "timeformat", "valuetag"),
        *("driver", "fileformat", "includetimestamp", "maxfilespertrigger", "mergeschema", "numpartitions"),
        *("maxrecordsperfile", "startingversion", "cloudfiles.maxbytespertrigger"),
    }
)
"""The options of Spark's other formats and of Delta that are similar to one of ours, in lower case.
`startTimestamp` of the source `rate-micro-batch` is not among them: it is more likely `startingTimestamp`.
"""
_CLOSE: Final = 0.7
"""The similarity, as difflib computes it, from which an unknown key counts as a misspelt option."""
_warned: set[str] = set()


def is_let_through(key: str) -> bool:
    """Whether Spark adds the key, or it is an option of the Kafka connector without effect here, of which
    this warns.
    """
    if key.lower() in _IDLE:
        name, why = _IDLE[key.lower()]
        warnings.warn(f"option {name!r} has no effect: {why}", UserWarning, stacklevel=3)
        return True
    return key.lower() in _INJECTED_BY_SPARK


def refuse_forbidden(key: str) -> None:
    """Raises SettingsError for an option that cannot be set."""
    why = _FORBIDDEN.get(key.lower())
    if why is not None:
        raise SettingsError(f"option {key!r} cannot be set: {why}")


def refuse_or_warn(key: str, options: Mapping[str, str]) -> None:
    """Raises SettingsError for an unknown key that is likely meant for this format, otherwise warns;
    `options` has names by their lower case.
    """
    lower = key.lower()
    near = [] if lower in _OF_OTHER_FORMATS else get_close_matches(lower, options, n=1, cutoff=_CLOSE)
    if near:
        raise SettingsError(f"unknown option {key!r}; did you mean {options[near[0]]!r}?")
    if lower.startswith(_OUR_PREFIXES):
        known = ", ".join(dict.fromkeys(options.values()))
        raise SettingsError(f"unknown option {key!r}; known are {known} and kafka.* for the client")
    if lower not in _warned:
        _warned.add(lower)
        warnings.warn(f"option {key!r} is not one of sparklog and has no effect", UserWarning, stacklevel=4)


def without_effect() -> Mapping[str, str]:
    """The accepted options of Spark's Kafka connector, with the reason why they have no effect."""
    return _WITHOUT_EFFECT


def refused() -> Mapping[str, str]:
    """The options that cannot be set, with the reason."""
    return _FORBIDDEN
