"""Constructors of keys by type."""

from .keys import Key, Kind, Update


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
