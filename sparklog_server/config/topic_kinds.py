"""Constructors of topic keys by type, each with the broker keys that supply the default."""

import msgspec

from .keys import Key, Kind, Synonym, Update


def boolean(name: str, broker_name: str, doc: str) -> Key:
    return Key(name, Kind.BOOLEAN, doc, update=Update.CLUSTER_WIDE, synonyms=_same(broker_name, Kind.BOOLEAN))


def integer(
    name: str,
    broker_name: str,
    doc: str,
    at_least: float,
    at_most: float | None = None,
    also: int | None = None,
) -> Key:
    return Key(
        name,
        Kind.INT,
        doc,
        at_least,
        at_most,
        also,
        update=Update.CLUSTER_WIDE,
        synonyms=_same(broker_name, Kind.INT),
    )


def long(name: str, broker: str | tuple[Synonym, ...], doc: str, at_least: float | None = None) -> Key:
    synonyms = _same(broker, Kind.LONG) if isinstance(broker, str) else broker
    return Key(name, Kind.LONG, doc, at_least, update=Update.CLUSTER_WIDE, synonyms=synonyms)


def choice(name: str, broker_name: str, doc: str, choices: tuple[str, ...], kind: Kind = Kind.STRING) -> Key:
    return Key(
        name, kind, doc, choices=choices, update=Update.CLUSTER_WIDE, synonyms=_same(broker_name, kind)
    )


def throttled(name: str, doc: str) -> Key:
    return Key(name, Kind.LIST, doc, are_entries_free=True)


def later(key: Key) -> Key:
    """A key without effect yet: it is checked, and setting it in a broker's file causes a warning."""
    return msgspec.structs.replace(key, has_effect=False)


def _same(broker_name: str, kind: Kind) -> tuple[Synonym, ...]:
    return (Synonym(broker_name, kind),) if broker_name else ()
