"""`format("sparklog")`: Spark's entry point, which delegates to the readers and writers.

Spark creates a `SparklogSource` in each of its processes from the options alone, and pickles readers and
writers to the executors. So this file holds no state, and no constructor opens a connection. The camelCase
names are Spark's.
"""

from collections.abc import Mapping, MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sparklog.errors import SettingsError
from sparklog.spark.batch_reader import BatchReader
from sparklog.spark.early_rows import stream_reader
from sparklog.spark.option_values import Use
from sparklog.spark.options import Options
from sparklog.spark.schema import check_projection, source_schema, with_schemas
from sparklog.spark.shipping import Portable
from sparklog.spark.tables import of_use, remembering, table_options
from sparklog.spark.task_clients import options_of_writer
from sparklog.spark.uses import checked, require_subscription


class SparklogSource(Portable, DataSource):
    """Topics as tables and streams, with the columns and options of Spark's own Kafka connector."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Checks the options: Spark creates a source when a frame is loaded, and requests a reader or
        writer much later.
        """
        super().__init__(options)
        if not table_options(options):
            Options.check(options)

    @classmethod
    def name(cls) -> str:
        return "sparklog"

    def schema(self) -> StructType:
        table = table_options(self.options)
        if table:
            return remembering(source_schema(_parsed(table)), table)
        options = _parsed(self.options)
        if options.topic is None:  # options with a topic to write to may belong to a view that is never read
            require_subscription(options)
        return source_schema(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = checked(_parsed(of_use(self.options, schema)), Use.BATCH_READ)
        return BatchReader(options, check_projection(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = checked(_parsed(of_use(self.options, schema)), Use.STREAM_READ)
        return stream_reader(options, check_projection(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from sparklog.spark.writers import (
            BatchSink,
        )  # not at the top: a query that only reads does not need it

        if overwrite:
            raise SettingsError('a topic is a log and cannot be overwritten: write with .mode("append")')
        options = checked(_parsed(of_use(self.options, schema)), Use.BATCH_WRITE)
        return BatchSink(options_of_writer(options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from sparklog.spark.writers import StreamSink

        # `overwrite` means output mode "complete": the whole result of each trigger is appended, as with
        # Spark's Kafka connector. A stored schema belongs to the table that the rows come from, never to
        # the one they go to.
        options = checked(_parsed(self.options), Use.STREAM_WRITE)
        return StreamSink(options_of_writer(options), schema)


class SparklogSourceWithoutTables(SparklogSource):
    """The same for a session catalog that stores a table of a Python source in a form that it cannot read."""

    def schema(self) -> StructType:
        if table_options(self.options):
            raise SettingsError(
                "the session catalog (spark.sql.catalog.spark_catalog) cannot read a table of a data source "
                "in Python: use a view,"
                " CREATE TEMPORARY VIEW name USING sparklog OPTIONS (…), which can be read and written"
            )
        return super().schema()


def _parsed(options: Mapping[str, str]) -> Options:
    return with_schemas(Options.parse(options))
