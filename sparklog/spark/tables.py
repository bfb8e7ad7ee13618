"""The OPTIONS of a table in Spark's catalog, stored in the metadata of its column `value`.

Spark stores the OPTIONS of CREATE TABLE but passes them to no Python source: `PythonDataSourceV2.getTable`
ignores the properties it gets (4.0 to 4.3). Spark does pass, at each use, the schema that it requested when
the table was created, if the statement named no columns. A stream that writes into a table gets only the
schema of its rows, so it must set its own options.
"""

import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from sparklog.errors import SettingsError

METADATA: Final = "sparklog.options"
_TABLE_OPTION: Final = "option."
_KEEPER: Final = "value"  # the only column that every read has and every write requires
_BROKERS: Final = "kafka.bootstrap.servers"
_SECRET: Final = re.compile(r"password|passphrase|secret|jaas|private\.key|ssl\.keystore\.key")
_EITHER: Final = (
    frozenset({"subscribe", "subscribepattern", "assign"}),
    frozenset({"startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets"}),
    frozenset({"endingtimestamp", "endingoffsetsbytimestamp", "endingoffsets"}),
)
"""Groups of options that exclude each other: a use that sets one of a group replaces all that the table has
of it.
"""


def table_options(given: Mapping[str, str]) -> dict[str, str]:
    """The OPTIONS of a table that is being created, which Spark passes twice, once with the prefix
    `option.`; empty for any other use.

    Raises SettingsError for a secret option.
    """
    lower = ((key.lower(), value) for key, value in given.items())
    options = {
        key.removeprefix(_TABLE_OPTION): value for key, value in lower if key.startswith(_TABLE_OPTION)
    }
    for key in options:
        if _SECRET.search(key):
            raise SettingsError(
                f"option {key!r} cannot be kept in a table, whose schema any user can read: set it at each "
                f"use, WITH (…)"
            )
    return options


def remembering(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema of a table with its OPTIONS."""
    metadata = {METADATA: dict(options)}
    return StructType(
        [
            StructField(c.name, c.dataType, c.nullable, metadata if c.name == _KEEPER else {})
            for c in schema.fields
        ]
    )


def of_use(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options of a read or write: those of the table, replaced by those given; only the latter if they
    name brokers.
    """
    named = {key.lower() for key in given}
    kept: Mapping[str, str] = next(
        (c.metadata[METADATA] for c in schema.fields if METADATA in c.metadata), {}
    )
    if not kept or _BROKERS in named:
        return dict(given)
    overruled = named.union(*(either for either in _EITHER if not either.isdisjoint(named)))
    return {**{key: value for key, value in kept.items() if key not in overruled}, **given}
