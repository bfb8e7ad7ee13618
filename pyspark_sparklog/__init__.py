"""Found by Spark at its first use of a Python data source, so that `format("sparklog")` works without
`sparklog.register(spark)`.

Spark imports every top-level module named `pyspark_*`, and one that fails disables them all: so nothing
that goes wrong here may come out.
"""

from contextlib import suppress

with suppress(Exception):
    from sparklog.spark.source import SparklogSource as DefaultSource  # noqa: F401
