"""Functions over the columns of a read."""

from pyspark.sql import Column
from pyspark.sql import functions as f


def header_map(headers: Column | str = "headers") -> Column:
    """The column `headers` as map<string,binary>; of headers with the same name the last one, as with
    Kafka's `lastHeader`. Null for null.
    """
    pairs = f.col(headers) if isinstance(headers, str) else headers
    names = f.array_distinct(f.transform(pairs, lambda pair: pair["key"]))
    last = f.transform(
        names, lambda name: f.element_at(f.filter(pairs, lambda pair: pair["key"] == name), -1)["value"]
    )
    return f.map_from_arrays(names, last).alias("headers")
