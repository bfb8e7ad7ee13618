"""Settings of a client metrics subscription (KIP-714)."""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from sparklog.errors import SettingsError

from .keys import Key, Kind

CLIENT_METRICS_KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        Key("interval.ms", Kind.INT, "How often the clients push their metrics: 100 to 3600000 ms."),
        Key(
            "match",
            Kind.LIST,
            "The clients that the subscription selects, as name=pattern; all of them when empty.",
        ),
        Key("metrics", Kind.LIST, "The prefixes of the metrics that the clients push; `*` is all of them."),
    )
}
DEFAULTS: Final[Mapping[str, str]] = {"interval.ms": "300000", "match": "", "metrics": ""}
INTERVAL_MIN_MS: Final = 100
INTERVAL_MAX_MS: Final = 3_600_000
MATCHED: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


MATCHES_MAX: Final = 64
"""The maximum number of patterns in a subscription; each is compiled when it is set."""


def check_client_metrics(texts: Mapping[str, str]) -> int:
    """The interval in ms of a valid subscription, before bounds apply; raises SettingsError for an invalid
    one.

    Invalid are a value that does not parse and an invalid pattern.
    """
    for name, text in texts.items():
        value = CLIENT_METRICS_KEYS[name].parse(text)
        if name == "match":
            entries = cast(tuple[str, ...], value)
            if len(entries) > MATCHES_MAX:
                raise SettingsError(
                    f"Configuration 'match' has {len(entries)} patterns; {MATCHES_MAX} are the most."
                )
            for entry in entries:
                _pattern_of(entry)
    return cast(
        int, CLIENT_METRICS_KEYS["interval.ms"].parse(texts.get("interval.ms", DEFAULTS["interval.ms"]))
    )


class Subscription(msgspec.Struct, frozen=True):
    """A valid subscription: prefixes of metrics, and the clients that push them. An attribute of `patterns`
    must match its pattern as a whole.
    """

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Any]
    """Compiled by re2, which carries no types."""

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Whether a client with these attributes, by the names of `MATCHED`, matches."""
        for name, pattern in self.patterns.items():
            value = attributes[name]
            if value is None or pattern.fullmatch(value.encode("utf-8", "surrogatepass")) is None:
                return False
        return True


def subscription_of(texts: Mapping[str, str]) -> Subscription | None:
    """The subscription of these texts; None if it is invalid here: a controller of Kafka takes the patterns
    of Java. Of two patterns for one attribute the last counts, as in Kafka.
    """
    given = {**DEFAULTS, **{name: text for name, text in texts.items() if name in DEFAULTS}}
    try:
        parsed = {name: CLIENT_METRICS_KEYS[name].parse(text) for name, text in given.items()}
        patterns = dict(_pattern_of(entry) for entry in cast(tuple[str, ...], parsed["match"]))
    except SettingsError:
        return None
    return Subscription(
        metrics=cast(tuple[str, ...], parsed["metrics"]),
        interval_ms=cast(int, parsed["interval.ms"]),
        patterns=patterns,
    )


def _pattern_of(entry: str) -> tuple[str, Any]:
    """The attribute and the pattern of one entry of `match`; raises SettingsError."""
    import re2  # the import takes ten milliseconds, and most brokers never need it

    matched, equals, pattern = entry.partition("=")
    if bool(equals) and bool(pattern) and "=" not in pattern and matched.strip() in MATCHED:
        options = re2.Options()
        options.log_errors = False
        try:
            return matched.strip(), re2.compile(pattern.strip().encode(), options)
        except (re2.error, UnicodeEncodeError):
            pass  # refused below
    raise SettingsError(
        f"Illegal client matching pattern: {entry} (it is name=pattern, the name one of {', '.join(MATCHED)})"
    )
