"""One walk through everything that Spark does with sparklog, for a Spark of any version: `python -P
tests/spark/smoke.py [--connect]`.

It imports nothing of the project but the package, and no pytest: with `--bootstrap host:port` it runs
where sparklog's wheel, pyspark and pyarrow are all that is installed; without, it brings a broker of its
own. With `--connect` the program is a client of Spark Connect, whose server it starts. It prints what was
found to work, and ends with 1 where a check fails.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sparklog
from sparklog import Admin, Consumer, TopicPartition, embedded

COUNT = 1000
SECONDS_MAX = 240  # for one stream, on a machine that does much else
BOOTSTRAP = "kafka.bootstrap.servers"
MASTER = "local[2,2]"  # a task that fails is tried once more


class Walk:
    """A Spark, a broker, and a directory to work in."""

    def __init__(self, spark: Any, servers: str, directory: Path) -> None:
        self.spark = spark
        self.servers = servers
        self.directory = directory
        self.version = tuple(int(part) for part in spark.version.split(".")[:2])

    def batch_write_and_read(self) -> None:
        """Keys, headers and values go in and come out; a schema of the reader's own reads only what it
        names.
        """
        frame = self.spark.range(COUNT).selectExpr(
            "CAST(id % 10 AS STRING) AS key",
            "CAST(id AS STRING) AS value",
            "array(named_struct('key', 'h', 'value', X'01')) AS headers",
        )
        frame.write.format("sparklog").options(**self._at(topic="one", includeHeaders="true")).mode(
            "append"
        ).save()
        back = self._read("one", includeHeaders="true").selectExpr(
            "CAST(CAST(value AS STRING) AS INT) AS n", "key", "headers[0].key AS h"
        )
        rows = back.collect()
        expect(sorted(row.n for row in rows), list(range(COUNT)))
        expect(
            {(row.n % 10, bytes(row.key), row.h) for row in rows},
            {(n, str(n).encode(), "h") for n in range(10)},
        )
        expect(self._read("one", schema="offset BIGINT").columns, ["offset"])

    def decoded_values(self) -> None:
        """JSON becomes columns while it is read."""
        self.spark.sql("""SELECT '{"id": 7, "name": "seven"}' AS value""").write.format("sparklog").options(
            **self._at(topic="json")
        ).mode("append").save()
        rows = (
            self._read("json", valueFormat="json", valueSchema="id BIGINT, name STRING")
            .select("value.*")
            .collect()
        )
        expect([(row.id, row.name) for row in rows], [(7, "seven")])

    def available_now_from_topic_to_topic(self) -> None:
        """A stream copies what is there, in limited micro-batches where Spark can (4.2), and goes on where
        it stopped.
        """
        made = self._copy("one", "two")
        expect(made, 4 if self.version >= (4, 2) else max(made, 1))
        self.batch_write_and_read_more()
        self._copy("one", "two")
        self._expect_each_once("two", COUNT + 10)

    def batch_write_and_read_more(self) -> None:
        more = self.spark.range(COUNT, COUNT + 10).selectExpr("CAST(id AS STRING) AS value")
        more.write.format("sparklog").options(**self._at(topic="one")).mode("append").save()

    def processing_time_until_stopped(self) -> None:
        """A stream that runs sees what comes while it runs, in `foreachBatch`, and tells how much it was
        and what is left.
        """
        target = self._at(topic="three")

        def pass_on(batch: Any, number: int) -> None:
            batch.select("value").write.format("sparklog").options(**target).mode("append").save()

        writer = (
            self._stream("one")
            .writeStream.foreachBatch(pass_on)
            .option("checkpointLocation", str(self.directory / "running"))
        )
        query = writer.trigger(processingTime="100 milliseconds").start()
        query.processAllAvailable()
        query.stop()
        expect(self._read("three").count(), COUNT + 10)
        told = query.recentProgress
        expect(sum(progress.numInputRows for progress in told), COUNT + 10)
        if self.version >= (4, 2):
            expect(json.loads(told[-1].sources[0].latestOffset)["behind"]["max"], 0)

    def a_batch_written_again_counts_once(self) -> None:
        """A write that names its application and version is dropped when it is repeated."""
        once = self._at(topic="once", txnAppId="smoke", txnVersion="1")
        for _ in range(2):
            self.spark.sql("SELECT 'a' AS value").write.format("sparklog").options(**once).mode(
                "append"
            ).save()
        expect(self._read("once", **{"kafka.isolation.level": "read_committed"}).count(), 1)

    def a_task_that_fails_counts_once(self) -> None:
        """Tasks of a stream fail after rows have gone to the sink, and are tried again: who reads what is
        committed sees each row once.
        """
        from pyspark import TaskContext
        from pyspark.sql.functions import col, udf

        @udf("string")  # type: ignore[untyped-decorator,unused-ignore]
        def once_failing(text: str, offset: int) -> str:
            context = TaskContext.get()
            if context is not None and context.attemptNumber() == 0 and offset == 250:
                raise RuntimeError("the first attempt is to fail")
            return text

        rows = self._stream("one").select(
            once_failing(col("value").cast("string"), col("offset")).alias("value")
        )
        writer = rows.writeStream.format("sparklog").options(**self._at(topic="four"))
        query = (
            writer.option("checkpointLocation", str(self.directory / "failing"))
            .trigger(availableNow=True)
            .start()
        )
        expect(query.awaitTermination(SECONDS_MAX), True)
        self._expect_each_once("four", COUNT + 10)

    def rows_come_with_the_plan_where_the_order_of_calls_is_the_tested_one(self) -> None:
        """A stream reads few records where it plans them: no task asks for records that are gone from the
        log by then.
        """
        from sparklog.spark.early_rows import rows_wrapper

        expect(rows_wrapper() is not None, True)
        self.spark.sql("SELECT 'a' AS value").write.format("sparklog").options(
            **self._at(topic="early")
        ).mode("append").save()
        servers, values = self.servers, self.directory / "values"

        def take(batch: Any, _: int) -> None:
            with Admin(bootstrap_servers=servers) as admin:
                admin.delete_records({TopicPartition("early", 0): 1})
            values.write_text(str([bytes(row.value) for row in batch.select("value").collect()]))

        writer = (
            self._stream("early")
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.directory / "early"))
        )
        expect(writer.trigger(availableNow=True).start().awaitTermination(SECONDS_MAX), True)
        expect(values.read_text(), "[b'a']")

    def views_in_sql(self) -> None:
        """A topic as a view, written and read."""
        self.spark.sql(
            f"CREATE TEMPORARY VIEW board USING sparklog OPTIONS (`{BOOTSTRAP}` '{self.servers}', subscribe "
            f"'sql', topic 'sql')"
        )
        self._insert_values("board", 5)
        expect(self.spark.sql("SELECT count(*) AS n FROM board").collect()[0].n, 5)

    def tables_in_sql(self) -> None:
        """A topic as a table that remembers its options; a use may say others, and a stream into it says
        its own.
        """
        options = (
            f"(`{BOOTSTRAP}` '{self.servers}', subscribe 'sql', topic 'sql', startingOffsets 'earliest')"
        )
        self.spark.sql(f"CREATE TABLE remembering USING sparklog OPTIONS {options}")
        self._insert_values("remembering", 1)
        expect(self.spark.sql("SELECT count(*) AS n FROM remembering").collect()[0].n, 6)
        expect(
            self.spark.sql("SELECT count(*) AS n FROM remembering WITH (subscribe = 'one')").collect()[0].n,
            COUNT + 10,
        )
        stream = self.spark.readStream.table("remembering").select("value")
        writer = stream.writeStream.options(**self._at(topic="sql2")).option(
            "checkpointLocation", str(self.directory / "tables")
        )
        expect(writer.trigger(availableNow=True).toTable("remembering").awaitTermination(SECONDS_MAX), True)
        expect(self._read("sql2").count(), 6)

    def tables_with_columns_in_sql(self) -> None:
        """A table made with columns knows no options: each use says them."""
        at = f"(`{BOOTSTRAP}` = '{self.servers}', subscribe = 'sql', topic = 'sql')"
        self.spark.sql("CREATE TABLE forgetful (key BINARY, value BINARY) USING sparklog")
        self.spark.sql(f"INSERT INTO forgetful WITH {at} VALUES (X'61', X'62')")
        expect(self.spark.sql(f"SELECT count(*) AS n FROM forgetful WITH {at}").collect()[0].n, 7)

    def _insert_values(self, table: str, count: int) -> None:
        """Values alone; Spark 4.0 wants every column of what it inserts into."""
        value = "CAST(CAST(id AS STRING) AS BINARY)"
        columns = (
            f"(value) SELECT {value}"
            if self.version >= (4, 1)
            else f"SELECT NULL, {value}, NULL, NULL, NULL, NULL, NULL"
        )
        self.spark.sql(f"INSERT INTO {table} {columns} FROM range({count})")

    def _copy(self, source: str, target: str) -> int:
        """How many micro-batches a stream has made from one topic to another."""
        # Before 4.2 Spark asks once where an availableNow run shall end, and a limit would end it there.
        limit = {"maxOffsetsPerTrigger": "300"} if self.version >= (4, 2) else {}
        stream = self._stream(source, **limit).select("key", "value")
        writer = stream.writeStream.format("sparklog").options(**self._at(topic=target))
        query = (
            writer.option("checkpointLocation", str(self.directory / "copy"))
            .trigger(availableNow=True)
            .start()
        )
        expect(query.awaitTermination(SECONDS_MAX), True)
        return sum(path.name.isdecimal() for path in (self.directory / "copy" / "commits").iterdir())

    def _expect_each_once(self, topic: str, count: int) -> None:
        """Each number below `count` is there once, to a reader of what is committed; and transactions have
        left their marks.
        """
        rows = self._read(topic, **{"kafka.isolation.level": "read_committed"}).selectExpr(
            "partition", "offset", "CAST(value AS STRING) n"
        )
        found = rows.collect()
        values = Counter(int(row.n) for row in found)
        expect(values - Counter(range(count)), Counter())
        expect(Counter(range(count)) - values, Counter())
        with Consumer(bootstrap_servers=self.servers) as consumer:
            partitions = [
                TopicPartition(topic, number) for number in sorted({row.partition for row in found})
            ]
            expect(sum(consumer.end_offsets(partitions).values()) > count, True)

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
    builder = SparkSession.builder.remote(MASTER) if connect else SparkSession.builder.master(MASTER)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        # so that a task has written some of its rows before it fails
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(servers: str | None, *, connect: bool, shipped: str | None) -> int:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        servers = servers or stack.enter_context(embedded()).bootstrap_servers
        spark = spark_of(Path(name), connect=connect)
        if shipped:
            spark.addArtifacts(shipped, pyfile=True)
        sparklog.register(spark)
        walk = Walk(spark, servers, Path(name))
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics(
                {
                    "one": 3,
                    "two": 2,
                    "three": 1,
                    "four": 2,
                    "json": 1,
                    "once": 1,
                    "early": 1,
                    "sql": 1,
                    "sql2": 1,
                }
            )
        steps: list[Callable[[], None]] = [
            walk.batch_write_and_read,
            walk.decoded_values,
            walk.available_now_from_topic_to_topic,
            walk.processing_time_until_stopped,
            walk.a_batch_written_again_counts_once,
            walk.a_task_that_fails_counts_once,
            walk.rows_come_with_the_plan_where_the_order_of_calls_is_the_tested_one,
            walk.views_in_sql,
            walk.tables_in_sql,
            walk.tables_with_columns_in_sql,
        ]
        told = f"Spark {spark.version}{' Connect' if connect else ''}{', shipped' if shipped else ''}, Python {sys.version.split()[0]}"  # noqa: E501
        for step in steps:
            step()
            print(f"{told}: {step.__name__}", flush=True)
        spark.stop()
    print(f"{told}: all of {len(steps)}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", help="host:port of a broker that is there and knows no topics yet")
    parser.add_argument("--connect", action="store_true")
    parser.add_argument(
        "--shipped",
        metavar="ZIP",
        help="a zip file of sparklog for Spark's processes, where it is not installed",
    )
    chosen = parser.parse_args()
    sys.exit(main(chosen.bootstrap, connect=chosen.connect, shipped=chosen.shipped))
