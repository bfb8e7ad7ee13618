"""The values of the options of `format("sparklog")`: the words that an option accepts, and a parser for each
kind of value. A parser raises ValueError that says what the option accepts.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from sparklog.client.consumer.patterns import topic_pattern
from sparklog.errors import SettingsError

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


class WhenLost(Enum):
    """The behavior of a read whose records have been removed from the log."""

    FAIL = "true"
    WARN = "warn"
    SKIP = "skip"


class EarlyRowsWhen(Enum):
    """Whether the rows of tiny micro-batches are read in the process that plans them."""

    AUTO = "auto"
    OFF = "off"


class Guarantee(Enum):
    """The delivery guarantee of a write."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class Conflict(Enum):
    """The behavior of a write whose version is lower than the last one of its application."""

    SKIP = "skip"
    FAIL = "fail"


class NoMatch(Enum):
    """The start of a partition that has no record at or after the starting time."""

    ERROR = "error"
    LATEST = "latest"


class Use(Enum):
    """What Spark does with the options."""

    BATCH_READ = "a batch read"
    STREAM_READ = "a streaming read"
    BATCH_WRITE = "a batch write"
    STREAM_WRITE = "a streaming write"


@dataclass(frozen=True, slots=True)
class Uses:
    """The uses in which an option has an effect. In another use it causes a warning, or an error that says
    what to do instead.
    """

    where: frozenset[Use]
    name: str
    refused: Mapping[Use, str] = field(default_factory=dict)


_READS: Final = frozenset({Use.BATCH_READ, Use.STREAM_READ})
_WRITES: Final = frozenset({Use.BATCH_WRITE, Use.STREAM_WRITE})
_ENDS: Final = "a stream reads new records by itself; one that ends has .trigger(availableNow=True)"
_AS_THEY_ARE: Final = (
    "a write takes keys and values as they are: encode them first, as to_json and to_avro do"
)
READS: Final = Uses(_READS, "reads")
WRITES: Final = Uses(_WRITES, "writes")
EVERYWHERE: Final = Uses(_READS | _WRITES, "reads and writes")
STREAM_READS: Final = Uses(frozenset({Use.STREAM_READ}), "streaming reads")
BOUNDED: Final = Uses(frozenset({Use.BATCH_READ}), "batch reads", {Use.STREAM_READ: _ENDS})
DECODED: Final = Uses(_READS, "reads", dict.fromkeys(sorted(_WRITES, key=str), _AS_THEY_ARE))
VERSIONED: Final = Uses(
    frozenset({Use.BATCH_WRITE}),
    "batch writes",
    {Use.STREAM_WRITE: "a stream counts its own batches; foreachBatch passes their numbers"},
)


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of one option."""

    name: str
    uses: Uses
    parse: Callable[[str], object]
    doc: str
    aliases: tuple[str, ...]
    default: str
    """The default as the documentation shows it."""
    needs: tuple[str, ...]
    """The options without which it has no effect; one of them suffices."""

    def parsed(self, value: str) -> object:
        """The value of a text; raises SettingsError with the name and the value."""
        try:
            return self.parse(value)
        except ValueError as error:
            raise SettingsError(f"option {self.name!r} has the value {value!r}: {error}") from error


def option(
    name: str,
    uses: Uses,
    parse: Callable[[str], T],
    default: T,
    doc: str,
    *,
    aliases: tuple[str, ...] = (),
    default_text: str | None = None,
    needs: tuple[str, ...] = (),
) -> T:
    shown = default_text if default_text is not None else "" if default is None else str(default).lower()
    definition = Definition(name, uses, parse, doc, aliases, shown, needs)
    return field(default=default, metadata={"definition": definition})


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def boolean(value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("must be true or false")
    return word == "true"


def word(words: type[E]) -> Callable[[str], E]:
    def parse(value: str) -> E:
        known = [str(word.value) for word in words]
        if value.strip().lower() not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return words(value.strip().lower())

    return parse


def whole(first: int, last: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", value.strip()) or not first <= int(value) <= last:
            raise ValueError(f"must be a whole number from {first} to {last}")
        return int(value)

    return parse


def topics(value: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise ValueError("must name at least one topic, several are separated by commas")
    return topics


def pattern(value: str) -> str:
    try:
        topic_pattern(text(value))
    except ValueError as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    return value.strip()


def when_lost(value: str) -> WhenLost:
    word = value.strip().lower()
    if word not in ("true", "false", "fail", "warn", "skip"):
        raise ValueError("must be true, false, warn or skip")
    return {"true": WhenLost.FAIL, "fail": WhenLost.FAIL, "skip": WhenLost.SKIP}.get(word, WhenLost.WARN)


def no_match(value: str) -> NoMatch:
    word = value.strip().lower()
    if word not in ("error", "latest"):
        raise ValueError("must be error or latest")
    return NoMatch(word)
