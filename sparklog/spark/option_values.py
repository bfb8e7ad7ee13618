"""The values of the options of `format("sparklog")`: the words that an option accepts, and a parser for each
kind of value. A parser raises ValueError that says what the option accepts.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from sparklog.client.patterns import topic_pattern
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


class NoMatch(Enum):
    """The start of a partition that has no record at or after the starting time."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of one option."""

    name: str
    parse: Callable[[str], object]
    doc: str
    aliases: tuple[str, ...]
    default: str
    """The default as the documentation shows it."""

    def parsed(self, value: str) -> object:
        """The value of a text; raises SettingsError with the name and the value."""
        try:
            return self.parse(value)
        except ValueError as error:
            raise SettingsError(f"option {self.name!r} has the value {value!r}: {error}") from error


def option(
    name: str,
    parse: Callable[[str], T],
    default: T,
    doc: str,
    *,
    aliases: tuple[str, ...] = (),
    default_text: str | None = None,
) -> T:
    shown = default_text if default_text is not None else "" if default is None else str(default).lower()
    return field(default=default, metadata={"definition": Definition(name, parse, doc, aliases, shown)})


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
