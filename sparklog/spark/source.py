"""`format("sparklog")`: Spark's entry point, which delegates to the readers and writers.

Spark makes a `SparklogSource` anew in each of its processes from the options alone, and pickles readers
and writers from there to the executors; so this file holds no state, and nothing here or below opens a
connection before it is needed. The camelCase names are Spark's.
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
from sparklog.spark.formats.files import with_schemas
from sparklog.spark.options import Options
from sparklog.spark.schema import check_projection, source_schema
from sparklog.spark.shipping import Portable
from sparklog.spark.tables import of_use, remembering, table_options


class SparklogSource(Portable, DataSource):
    """Topics as tables and streams, with the columns and options of Spark's own Kafka connector."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Checks the options by themselves: Spark makes a source when a frame is loaded, and asks for a
        reader or writer much later.
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
        return source_schema(_parsed(self.options).for_load())

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _parsed(of_use(self.options, schema)).for_batch_read()
        return BatchReader(options, check_projection(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = _parsed(of_use(self.options, schema)).for_stream_read()
        return stream_reader(options, check_projection(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from sparklog.spark.writers import (
            BatchSink,
        )  # here, as below: a query that only reads starts without it

        if overwrite:
            raise SettingsError('a topic is a log and cannot be overwritten: write with .mode("append")')
        return BatchSink(_parsed(of_use(self.options, schema)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from sparklog.spark.writers import StreamSink

        # `overwrite` tells of output mode "complete": each trigger's whole result is appended, as with
        # Spark's Kafka connector. What a schema remembers is here of the table that the rows were read from,
        # never of the one they go to.
        return StreamSink(_parsed(self.options), schema)


class SparklogSourceWithoutTables(SparklogSource):
    """The same beside a session catalog that keeps a table of a Python source in a form that it cannot
    read.
    """

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
