"""What a table of Spark's catalog remembers: the OPTIONS it was made with, in the metadata of its column
`value`.

Spark keeps the OPTIONS of CREATE TABLE and passes them to no source written in Python: where it loads such
a table, its `PythonDataSourceV2.getTable` leaves the properties it is given aside (4.0 to 4.3). What it
does hand back with each use is the schema it asked for when the table was made, if no columns were named
then. A stream that writes into a table is told the schema of its rows alone, so it says its options
itself.
"""

import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from sparklog.errors import SettingsError

METADATA: Final = "sparklog.options"
_TABLE_OPTION: Final = "option."
_KEEPER: Final = "value"  # the one column that every read has and every write must have
_BROKERS: Final = "kafka.bootstrap.servers"
_SECRET: Final = re.compile(r"password|passphrase|secret|jaas|private\.key|ssl\.keystore\.key")
_EITHER: Final = (
    frozenset({"subscribe", "subscribepattern", "assign"}),
    frozenset({"startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets"}),
    frozenset({"endingtimestamp", "endingoffsetsbytimestamp", "endingoffsets"}),
)
"""Options that answer one question: a use that gives one of them overrules whichever the table was made
with.
"""


def table_options(given: Mapping[str, str]) -> dict[str, str]:
    """The OPTIONS of a table that is being made, which Spark gives twice, once behind `option.`; empty
    where it is not about a table.

    Raises SettingsError for a secret option.
    """
    lower = ((key.lower(), value) for key, value in given.items())
    options = {
        key.removeprefix(_TABLE_OPTION): value for key, value in lower if key.startswith(_TABLE_OPTION)
    }
    for key in options:
        if _SECRET.search(key):
            raise SettingsError(
                f"option {key!r} cannot be kept in a table, whose schema anybody may read: give it at each "
                f"use, WITH (…)"
            )
    return options


def remembering(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema of a table that knows its OPTIONS."""
    metadata = {METADATA: dict(options)}
    return StructType(
        [
            StructField(c.name, c.dataType, c.nullable, metadata if c.name == _KEEPER else {})
            for c in schema.fields
        ]
    )


def of_use(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options of a read or write: those a table remembers, overruled by those given; these alone where
    they name the brokers.
    """
    named = {key.lower() for key in given}
    kept: Mapping[str, str] = next(
        (c.metadata[METADATA] for c in schema.fields if METADATA in c.metadata), {}
    )
    if not kept or _BROKERS in named:
        return dict(given)
    overruled = named.union(*(either for either in _EITHER if not either.isdisjoint(named)))
    return {**{key: value for key, value in kept.items() if key not in overruled}, **given}
