"""`format("sparklog")`: what Spark asks for, handed on to the readers and writers.

Spark makes a `SparklogSource` anew in each of its processes from the options alone, and pickles readers and writers from there to the
executors; so this file holds no state, and nothing here or below opens a connection before it is needed. The camelCase names are Spark's.
"""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from sparklog.errors import SettingsError
from sparklog.spark.batch_reader import BatchReader
from sparklog.spark.formats.files import with_schemas
from sparklog.spark.options import Options
from sparklog.spark.schema import check_projection, source_schema
from sparklog.spark.stream_reader import StreamReader
from sparklog.spark.writers import BatchSink, StreamSink


class SparklogSource(DataSource):
    """Topics as tables and streams, with the columns and options of Spark's own Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "sparklog"

    def schema(self) -> StructType:
        return source_schema(self._options())

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options().for_batch_read()
        return BatchReader(options, check_projection(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = self._options().for_stream_read()
        return StreamReader(options, check_projection(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise SettingsError('a topic is a log and cannot be overwritten: write with .mode("append")')
        return BatchSink(self._options(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        # `overwrite` tells of output mode "complete": each trigger's whole result is appended, as with Spark's Kafka connector.
        return StreamSink(self._options(), schema)

    def _options(self) -> Options:
        return with_schemas(Options.parse(self.options))
