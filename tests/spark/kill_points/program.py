"""A Spark of its own that runs queries on request: `python -m tests.spark.kill_points.program POINTS`,
one JSON object a line.

    in   {"id": 1, "read": {…}, "write": {…}, "checkpoint": …, "kind": "stream" | "batches" | "delta"}
         {"id": 2, "numbers": path of a Delta table}
         {"stop": true}
    out  {"jvm": pid}, once
         {"id": 1, "error": null | "…"} for each query that ended
         {"id": 2, "error": null, "numbers": […]}
"""

import json
import os
import sys
import threading
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from tests.spark.jvm import jvm_options
from tests.spark.kill_points.hooked import HookedSource
from tests.spark.kill_points.points import Point, ask

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": jvm_options(),
}


def spark_session(master: str, more: dict[str, str]) -> SparkSession:
    """A Spark whose tasks are tried three times."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("kill-points")
    for key, value in (SETTINGS | more).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class Program:
    """Starts queries in the main thread, where Spark knows the data source, and waits for each in a thread
    of its own.
    """

    def __init__(self, spark: SparkSession, address: str) -> None:
        self.spark = spark
        self.address = address
        self._lock = threading.Lock()

    def tell(self, **said: Any) -> None:
        with self._lock:
            print(json.dumps(said), flush=True)

    def run(self, told: dict[str, Any]) -> None:
        """Start a query, and tell of its end."""
        frame = self.spark.readStream.format("sparklog").options(**told["read"]).load().select("key", "value")
        writer = frame.writeStream.option("checkpointLocation", told["checkpoint"]).trigger(availableNow=True)
        try:
            if told["kind"] in ("batches", "delta"):
                query = writer.foreachBatch(self._batch_writer(told["kind"], told["write"])).start()
            else:
                query = writer.format("sparklog_hooked").options(**told["write"], points=self.address).start()
        except PySparkException as failure:
            self.tell(id=told["id"], error=shortened(failure))
        else:
            threading.Thread(target=self._tell_end, args=(told["id"], query), daemon=True).start()

    def _tell_end(self, number: int, query: StreamingQuery) -> None:
        error = None
        try:
            query.awaitTermination()
        except Exception as failure:  # any error is reported to the test
            error = shortened(failure)
        self.tell(id=number, error=error)

    def _batch_writer(self, kind: str, options: dict[str, str]) -> Any:
        """A batch write for each micro-batch, to a topic or to a Delta table, with the number of the
        micro-batch for its version.
        """
        target, given = "sparklog", options
        if kind == "delta":
            target, given = "delta", {name: options[name] for name in options if name in ("txnAppId", "path")}

        def write(batch: DataFrame, number: int) -> None:
            ask(self.address, Point("begun", options["topic"], number))
            batch.write.format(target).options(**given, txnVersion=str(number)).mode("append").save()
            ask(self.address, Point("committed", options["topic"], number))

        return write

    def tell_numbers(self, told: dict[str, Any]) -> None:
        """Every number in a Delta table."""
        rows = (
            self.spark.read.format("delta")
            .load(told["numbers"])
            .selectExpr("CAST(CAST(value AS STRING) AS INT) AS n")
            .collect()
        )
        self.tell(id=told["id"], error=None, numbers=[row.n for row in rows])

    def stop_queries(self) -> None:
        for query in self.spark.streams.active:
            query.stop()


def shortened(failure: Exception) -> str:
    """The error, without the frames of the JVM."""
    lines = str(failure).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("\tat ", "\t... ")))[:3000]


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = spark_session(given["master"], given["settings"])
    sparklog.register(spark)
    spark.dataSource.register(HookedSource)
    program = Program(spark, given["points"])
    program.tell(jvm=spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    for line in sys.stdin:
        told = json.loads(line)
        if told.get("stop"):
            threading.Thread(target=program.stop_queries, daemon=True).start()
        elif "numbers" in told:
            program.tell_numbers(told)
        else:
            program.run(told)
    os._exit(0)  # the JVM ends with the pipe to it


if __name__ == "__main__":
    main()
