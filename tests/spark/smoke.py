"""One walk through everything that Spark does with sparklog, for a Spark of any version: `python -m tests.spark.smoke [--connect]`.

It brings its own broker and needs no pytest, so that it runs wherever Spark, pyarrow and the broker's packages are installed. With
`--connect` the program is a client of Spark Connect, whose server it starts. It prints what was found to work, and ends with 1 where a
check fails.
"""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sparklog
from sparklog import Admin, embedded

COUNT = 1000
BOOTSTRAP = "kafka.bootstrap.servers"


class Walk:
    """A Spark, a broker, and a directory to work in."""

    def __init__(self, spark: Any, servers: str, directory: Path) -> None:
        self.spark = spark
        self.servers = servers
        self.directory = directory
        self.version = tuple(int(part) for part in spark.version.split(".")[:2])

    def batch_write_and_read(self) -> None:
        """Keys, headers and values go in and come out; a schema of the reader's own reads only what it names."""
        frame = self.spark.range(COUNT).selectExpr(
            "CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value", "array(named_struct('key', 'h', 'value', X'01')) AS headers"
        )
        frame.write.format("sparklog").options(**self._at(topic="one", includeHeaders="true")).mode("append").save()
        back = self._read("one", includeHeaders="true").selectExpr("CAST(CAST(value AS STRING) AS INT) AS n", "key", "headers[0].key AS h")
        rows = back.collect()
        expect(sorted(row.n for row in rows), list(range(COUNT)))
        expect({(row.n % 10, bytes(row.key), row.h) for row in rows}, {(n, str(n).encode(), "h") for n in range(10)})
        expect(self._read("one", schema="offset BIGINT").columns, ["offset"])

    def decoded_values(self) -> None:
        """JSON becomes columns while it is read."""
        self.spark.sql("""SELECT '{"id": 7, "name": "seven"}' AS value""").write.format("sparklog").options(**self._at(topic="json")).mode(
            "append"
        ).save()
        rows = self._read("json", valueFormat="json", valueSchema="id BIGINT, name STRING").select("value.*").collect()
        expect([(row.id, row.name) for row in rows], [(7, "seven")])

    def available_now_from_topic_to_topic(self) -> None:
        """A stream copies what is there, in limited micro-batches where Spark can (4.2), and goes on where it stopped."""
        batches = self._copy("one", "two")
        expect(len([n for n in batches if n]) if self.version >= (4, 2) else len(batches) > 0, 4 if self.version >= (4, 2) else True)
        self.batch_write_and_read_more()
        self._copy("one", "two")
        committed = self._read("two", **{"kafka.isolation.level": "read_committed"})
        values = Counter(int(bytes(row.value)) for row in committed.select("value").collect())
        expect(values - Counter(range(COUNT + 10)), Counter())
        expect(Counter(range(COUNT + 10)) - values, Counter())

    def batch_write_and_read_more(self) -> None:
        more = self.spark.range(COUNT, COUNT + 10).selectExpr("CAST(id AS STRING) AS value")
        more.write.format("sparklog").options(**self._at(topic="one")).mode("append").save()

    def processing_time_until_stopped(self) -> None:
        """A stream that runs sees what comes while it runs, in `foreachBatch`."""
        target = self._at(topic="three")

        def pass_on(batch: Any, number: int) -> None:
            batch.select("value").write.format("sparklog").options(**target).mode("append").save()

        writer = self._stream("one").writeStream.foreachBatch(pass_on).option("checkpointLocation", str(self.directory / "running"))
        query = writer.trigger(processingTime="100 milliseconds").start()
        query.processAllAvailable()
        query.stop()
        expect(self._read("three").count(), COUNT + 10)

    def views_and_tables_in_sql(self) -> None:
        """A topic as a view, written and read; and as a table, streamed from by name and to by name, its options said again."""
        self.spark.sql(f"CREATE TEMPORARY VIEW board USING sparklog OPTIONS (`{BOOTSTRAP}` '{self.servers}', subscribe 'sql', topic 'sql')")
        self.spark.sql("INSERT INTO board (value) SELECT CAST(CAST(id AS STRING) AS BINARY) FROM range(5)")
        expect(self.spark.sql("SELECT count(*) AS n FROM board").collect()[0].n, 5)
        at = f"(`{BOOTSTRAP}` = '{self.servers}', subscribe = 'sql', topic = 'sql')"
        self.spark.sql("CREATE TABLE boards (key BINARY, value BINARY) USING sparklog")
        self.spark.sql(f"INSERT INTO boards WITH {at} VALUES (X'61', X'62')")
        expect(self.spark.sql(f"SELECT count(*) AS n FROM boards WITH {at}").collect()[0].n, 6)
        stream = self.spark.readStream.options(**self._at(subscribe="sql", startingOffsets="earliest")).table("boards")
        writer = stream.writeStream.options(**self._at(topic="sql2")).option("checkpointLocation", str(self.directory / "tables"))
        expect(writer.trigger(availableNow=True).toTable("boards").awaitTermination(60), True)
        expect(self._read("sql2").count(), 6)

    def _copy(self, source: str, target: str) -> list[int]:
        """Rows of each micro-batch of a stream from one topic to another."""
        # Before 4.2 Spark asks once where an availableNow run shall end, and a limit would end it there.
        limit = {"maxOffsetsPerTrigger": "300"} if self.version >= (4, 2) else {}
        stream = self._stream(source, **limit).select("key", "value")
        writer = stream.writeStream.format("sparklog").options(**self._at(topic=target))
        query = writer.option("checkpointLocation", str(self.directory / "copy")).trigger(availableNow=True).start()
        expect(query.awaitTermination(60), True)
        return [progress["numInputRows"] for progress in query.recentProgress]

    def _read(self, topic: str, schema: str | None = None, **options: str) -> Any:
        reader = self.spark.read.format("sparklog").options(**self._at(subscribe=topic, **options))
        return (reader if schema is None else reader.schema(schema)).load()

    def _stream(self, topic: str, **options: str) -> Any:
        options = self._at(subscribe=topic, startingOffsets="earliest", **options)
        return self.spark.readStream.format("sparklog").options(**options).load()

    def _at(self, **options: str) -> dict[str, str]:
        return {BOOTSTRAP: self.servers, **options}


def expect(found: Any, expected: Any) -> None:
    if found != expected:
        raise SystemExit(f"found {str(found)[:500]}, expected {str(expected)[:500]}")


def spark_of(directory: Path, *, connect: bool) -> Any:
    """A local Spark, or a client of a local Spark Connect server."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote("local[2]") if connect else SparkSession.builder.master("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(*, connect: bool) -> int:
    with tempfile.TemporaryDirectory() as name, embedded() as broker:
        spark = spark_of(Path(name), connect=connect)
        sparklog.register(spark)
        walk = Walk(spark, broker.bootstrap_servers, Path(name))
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics({"one": 3, "two": 2, "three": 1, "json": 1, "sql": 1, "sql2": 1})
        steps: list[Callable[[], None]] = [
            walk.batch_write_and_read,
            walk.decoded_values,
            walk.available_now_from_topic_to_topic,
            walk.processing_time_until_stopped,
            walk.views_and_tables_in_sql,
        ]
        told = f"Spark {spark.version}{' Connect' if connect else ''}, {type(spark).__module__}"
        for step in steps:
            step()
            print(f"{told}: {step.__name__}", flush=True)
        spark.stop()
    print(f"{told}: all of {len(steps)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(connect="--connect" in sys.argv[1:]))
