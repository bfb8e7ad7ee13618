"""The cost of exactly-once for a stream: time of a micro-batch of 100 000 rows in four tasks, written
exactly once and at least once.

From a topic of four partitions into another one, by the same query but for the sink's option `delivery`.
The two take turns, and now one and now the other is first, so that other work of the machine falls on
both; the first run of each, while Spark starts its workers, is left out. Promised is the ratio of the two,
taken of each turn. Where the jars of Spark's own connector are, its sink is measured once beside them: it
knows at least once only.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.spark_session import CONNECTOR_JARS, OURS, THEIRS, Bench, Format, each_broker, parse_options
from sparklog.client.admin.admin import LATEST
from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.settings import ClientSettings
from sparklog.model import TopicPartition
from sparklog.record.batch import iterate_headers

RUNS = 3
ROWS_PER_BATCH = 100_000
BATCHES = 5
FIRST_BATCHES = 1  # of each query, which start processes that the later ones use
PATIENCE_S = 300
EXACTLY, AT_LEAST, SPARKS_OWN = "exactly_once", "at_least_once", "Spark's own sink"


def main() -> None:
    """Measure, and print the table."""
    options = parse_options(__doc__, runs=RUNS, whats=["batch"])
    for place, bench in enumerate(each_broker("spark_exactly_once", options, flush=("never", "auto"))):
        compare(
            bench,
            with_sparks_own=not place
            and options.formats == "both"
            and any(CONNECTOR_JARS.glob("standin.jar")),
        )


def compare(bench: Bench, *, with_sparks_own: bool) -> None:
    """Both ways in turns, so many times, after one turn that is not counted."""
    rows = bench.records(ROWS_PER_BATCH)
    with bench.topics("source") as (source,):
        bench.fill(source, rows * BATCHES, with_keys=True)
        for run in range(bench.options.runs + 1):
            ways = (EXACTLY, AT_LEAST) if run % 2 else (AT_LEAST, EXACTLY)
            found = {way: batch_ms(bench, way, source, rows) for way in ways}
            if not run:
                continue
            for way in (EXACTLY, AT_LEAST):
                bench.figures.add(f"micro-batch, {way}", "ms", bench.subject, found[way])
            bench.figures.add(
                "exactly once / at least once",
                "×",
                bench.subject,
                found[EXACTLY] / found[AT_LEAST],
                bound="<= 1.25",
            )
        if with_sparks_own:
            bench.figures.add(
                f"micro-batch, {SPARKS_OWN}", "ms", bench.subject, batch_ms(bench, SPARKS_OWN, source, rows)
            )
    bench.figures.note(
        f"{rows} rows for each micro-batch, four tasks; each sample is the median trigger of a query of "
        f"{BATCHES} batches"
    )


def batch_ms(bench: Bench, way: str, source: str, rows: int) -> float:
    """The median duration of a trigger, in milliseconds; all the rows must be there at the end, once."""
    ours = Format(bench.spark, bench.servers, OURS, OURS, {})
    with (
        bench.topics("target") as (target,),
        tempfile.TemporaryDirectory(prefix="sparklog-bench-") as directory,
    ):
        frame = ours.stream(source, maxOffsetsPerTrigger=str(rows)).select("key", "value")
        sink = {
            "kafka.bootstrap.servers": bench.servers,
            "topic": target,
            "checkpointLocation": str(Path(directory) / "checkpoint"),
        }
        if way is not SPARKS_OWN:
            sink["delivery"] = way
        writer = frame.writeStream.format(THEIRS if way is SPARKS_OWN else OURS).options(**sink)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(PATIENCE_S):
            query.stop()
            raise RuntimeError(f"{way}: the stream did not end within {PATIENCE_S} s")
        if (landed := _committed(bench, target)) != rows * BATCHES:
            raise RuntimeError(f"{way}: {landed} of {rows * BATCHES} rows are in the topic")
        durations = [
            float(each["durationMs"]["triggerExecution"])
            for each in query.recentProgress
            if each["numInputRows"]
        ]
    median = statistics.median(durations[FIRST_BATCHES:])
    print(f"{bench.subject}: {way} {median:.0f} ms", file=sys.stderr, flush=True)
    return median


def _committed(bench: Bench, topic: str) -> int:
    """How many records a reader of committed records gets, by the headers of their batches."""
    partitions = bench.admin.describe_topics([topic])[topic].partitions
    with RangeReader(
        ClientSettings.from_kafka({"bootstrap.servers": bench.servers}), isolation_level="read_committed"
    ) as reader:
        ends = bench.admin.list_offsets(
            {TopicPartition(topic, number): LATEST for number in range(len(partitions))}
        )
        return sum(
            header.record_count
            for one, end in ends.items()
            for view in reader.read(one.topic, one.partition, 0, end.offset)
            for _, header in iterate_headers(view)
            if not header.is_control
        )


if __name__ == "__main__":
    main()
