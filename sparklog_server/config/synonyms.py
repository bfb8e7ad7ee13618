"""The broker keys that supply defaults of topics: Kafka has up to three for one topic key, in different
units.
"""

from collections.abc import Mapping

from .keys import Key, Update, Value
from .topic_settings import topic_keys_of_broker


def key_of_synonym(name: str) -> Key:
    """The definition of a broker key that supplies the default of a topic key."""
    _, key, synonym = topic_keys_of_broker()[name]
    at_least, at_most = (key.at_least, key.at_most) if synonym.factor == 1 else (synonym.at_least, None)
    # In Kafka, only the first of several synonyms can be changed while the broker runs.
    update = Update.CLUSTER_WIDE if synonym is key.synonyms[0] else Update.READ_ONLY
    return Key(
        name,
        synonym.kind,
        key.doc,
        at_least,
        at_most,
        also=key.also,
        choices=key.choices,
        update=update,
        has_effect=key.has_effect,
    )


def topic_defaults_of(given: Mapping[str, str]) -> dict[str, Value]:
    """Values by topic field for which a broker key is set; the first synonym wins, as in Kafka."""
    found: dict[str, Value] = {}
    for name, (field, _, synonym) in topic_keys_of_broker().items():
        if name in given:
            value = key_of_synonym(name).parse(given[name])
            found.setdefault(field, _scaled(value, synonym.factor))
    return found


def _scaled(value: Value, factor: int) -> Value:
    """Minutes or hours in ms; a negative value means no limit and stays -1."""
    return value if factor == 1 or not isinstance(value, int) else -1 if value < 0 else value * factor
