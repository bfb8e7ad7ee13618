"""Settings keys: their types and bounds, and the conversion of values from and to text.

Texts are parsed as in Kafka (ConfigDef): decimal numbers within their width, booleans as true or false in
any case, lists split at commas with surrounding space removed.
"""

from collections.abc import Iterator
from enum import IntEnum
from math import isfinite, nan
from typing import cast

import msgspec

from sparklog.errors import SettingsError


class Kind(IntEnum):
    """The type of a value; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(IntEnum):
    """When a new value takes effect: at a restart, or immediately for one broker or for the cluster."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


Value = bool | int | float | str | tuple[str, ...] | None
"""A value in its Python type; None for Kafka's null."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
_WIDTH_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


class Synonym(msgspec.Struct, frozen=True):
    """A broker key that supplies the default of a topic key; one of its units is `factor` units of the
    topic key.
    """

    name: str
    kind: Kind
    factor: int = 1
    default: Value = None
    at_least: float | None = None


class Key(msgspec.Struct, frozen=True):
    """One setting: its name, allowed values and description. Bounds are closed; `choices` lists all allowed
    words. Entries of a list that `are_entries_free` may be empty and repeated.
    """

    name: str
    kind: Kind
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    also: int | None = None
    choices: tuple[str, ...] = ()
    update: Update = Update.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    has_effect: bool = True
    are_entries_free: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.kind is Kind.PASSWORD

    @property
    def allowed(self) -> str:
        """The allowed values, as words for an error or a sample."""
        if self.choices:
            several = "a list of: " if self.kind is Kind.LIST else "one of: "
            return several + ", ".join(self.choices)
        words = _KIND_WORDS[self.kind]
        if self.at_least is not None and self.at_most is not None:
            words += f" from {_number(self.at_least)} to {_number(self.at_most)}"
        elif self.at_least is not None:
            words += f" of at least {_number(self.at_least)}"
        elif self.at_most is not None:
            words += f" of at most {_number(self.at_most)}"
        return words if self.also is None else f"{words}, or {self.also}"

    def parse(self, text: str) -> Value:
        """The value of a text; raises SettingsError with the text of Kafka's ConfigException, which clients
        show. An entry that a list repeats counts once, and none is empty (KIP-1161).
        """
        value = _parse(self.name, self.kind, text)
        if isinstance(value, tuple) and not self.are_entries_free:
            if "" in value:
                raise invalid(self.name, text.strip(), "values must not be empty")
            value = tuple(dict.fromkeys(value))
        self.check(value)
        return value

    def check(self, value: Value) -> None:
        """Raises SettingsError unless the value is within the bounds and choices."""
        if isinstance(value, str | tuple):
            for entry in value if isinstance(value, tuple) else (value,):
                if self.choices and entry not in self.choices:
                    raise invalid(self.name, entry, "String must be one of: " + ", ".join(self.choices))
        elif value is not None and not isinstance(value, bool) and value != self.also:
            if self.at_least is not None and value < self.at_least:
                raise invalid(self.name, value, f"Value must be at least {_number(self.at_least)}")
            if self.at_most is not None and value > self.at_most:
                raise invalid(self.name, value, f"Value must be no more than {_number(self.at_most)}")


_KIND_WORDS = {
    Kind.BOOLEAN: "true or false",
    Kind.STRING: "text",
    Kind.INT: "a whole number",
    Kind.SHORT: "a whole number",
    Kind.LONG: "a whole number",
    Kind.DOUBLE: "a number",
    Kind.LIST: "a comma separated list",
    Kind.CLASS: "a class name",
    Kind.PASSWORD: "text",
}


def invalid(name: str, value: object, reason: str) -> SettingsError:
    """The error for a value that a key does not accept, in Kafka's form."""
    return SettingsError(f"Invalid value {text_of(cast(Value, value))} for configuration {name}: {reason}")


def text_of(value: Value) -> str | None:
    """A value as Kafka writes it: `true`, `a,b`, shortest round-tripping numbers; None stays None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else _number(value) if isinstance(value, float) else str(value)


def entries_of(text: str) -> tuple[str, ...]:
    """The entries of a comma separated list; an empty text is an empty list."""
    stripped = text.strip()
    return tuple(entry.strip() for entry in stripped.split(",")) if stripped else ()


def fields_of(settings: type[msgspec.Struct]) -> Iterator[tuple[str, Key]]:
    """The (field name, key) pairs of a settings class, in order of definition; fields without a key are
    left out.
    """
    for field, annotation in settings.__annotations__.items():
        for metadata in getattr(annotation, "__metadata__", ()):
            if isinstance(metadata, Key):
                yield field, metadata


def _parse(name: str, kind: Kind, text: str) -> Value:
    trimmed = text.strip()
    if kind is Kind.LIST:
        return entries_of(text)
    if kind is Kind.BOOLEAN:
        if trimmed.lower() in ("true", "false"):
            return trimmed.lower() == "true"
        raise invalid(name, text, "Expected value to be either true or false")
    if kind in _WIDTH_BITS:
        limit = 1 << (_WIDTH_BITS[kind] - 1)
        # int() also accepts "1_000" and digits of other scripts; Java accepts neither underscores nor inner
        # spaces.
        if trimmed.isascii() and "_" not in trimmed and len(trimmed) <= 20:
            try:
                number = int(trimmed)
            except ValueError:
                pass
            else:
                if -limit <= number < limit:
                    return number
        raise invalid(name, text, f"Not a number of type {kind.name}")
    if kind is Kind.DOUBLE:
        try:
            ratio = float(trimmed)
        except ValueError:
            ratio = nan
        # NaN and infinity would pass every bound.
        if not isfinite(ratio) or "_" in trimmed:
            raise invalid(name, text, "Not a number of type DOUBLE")
        return ratio
    return trimmed


def _number(value: float) -> str:
    if value == DOUBLE_MAX:
        return "1.7976931348623157E308"
    return str(value)


def integer(
    name: str,
    doc: str,
    at_least: int | None = None,
    at_most: int | None = None,
    update: Update = Update.READ_ONLY,
) -> Key:
    """A 32-bit integer."""
    return Key(name, Kind.INT, doc, at_least, at_most, update=update)


def long(name: str, doc: str, at_least: int | None = None, update: Update = Update.READ_ONLY) -> Key:
    """A 64-bit integer."""
    return Key(name, Kind.LONG, doc, at_least, update=update)


def short(name: str, doc: str, at_least: int) -> Key:
    """A 16-bit integer."""
    return Key(name, Kind.SHORT, doc, at_least)


def text(name: str, doc: str) -> Key:
    """Any text."""
    return Key(name, Kind.STRING, doc)


def several(name: str, doc: str, choices: tuple[str, ...] = (), update: Update = Update.READ_ONLY) -> Key:
    """A comma separated list."""
    return Key(name, Kind.LIST, doc, choices=choices, update=update)


def boolean(name: str, doc: str, update: Update = Update.READ_ONLY) -> Key:
    """True or false."""
    return Key(name, Kind.BOOLEAN, doc, update=update)
