"""What exactly once costs a stream: time of a micro-batch of 100 000 rows in four tasks, written exactly once and at least once.

From a topic of four partitions into another one, by the same query but for the sink's option `delivery`. The two take turns, so that
whatever else the machine does falls on both; the first run of each, while Spark starts its workers, is left out. Promised is the ratio of
the two. Where the jars of Spark's own connector are, its sink is measured as well: it knows at least once only.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.spark_session import CONNECTOR_JARS, OURS, THEIRS, Bench, Format, each_broker, parse_options
from sparklog.client.consumer import Consumer
from sparklog.model import TopicPartition

RUNS = 3
ROWS_PER_BATCH = 100_000
BATCHES = 7
FIRST_BATCHES = 2  # of each query, which start what the later ones use
PATIENCE_S = 300
EXACTLY, AT_LEAST, SPARKS_OWN = "exactly_once", "at_least_once", "Spark's own sink"


def main() -> None:
    """Measure, and print the table."""
    options = parse_options(__doc__, runs=RUNS, whats=["batch"])
    for bench in each_broker("spark_exactly_once", options, flush=("never", "auto")):
        compare(bench)


def compare(bench: Bench) -> None:
    """All the ways in turns, so many times, after one that is not counted."""
    ways = [EXACTLY, AT_LEAST]
    if bench.options.formats == "both" and any(CONNECTOR_JARS.glob("standin.jar")):
        ways.append(SPARKS_OWN)
    rows = bench.records(ROWS_PER_BATCH)
    found: dict[str, list[float]] = {way: [] for way in ways}
    with bench.topics("source") as (source,):
        bench.fill(source, rows * BATCHES, with_keys=True)
        for run in range(bench.options.runs + 1):
            for way in ways:
                sample = batch_ms(bench, way, source, rows)
                print(f"{bench.subject}: {way} {sample:.0f} ms", file=sys.stderr, flush=True)
                if run:
                    found[way].append(sample)
    for way, samples in found.items():
        for sample in samples:
            bench.figures.add(f"micro-batch, {way}", "ms", bench.subject, sample)
    for over in ways[1:]:
        ratio = statistics.median(found[EXACTLY]) / statistics.median(found[over])
        bench.figures.add(f"exactly once / {over}", "×", bench.subject, ratio, bound="<= 1.25" if over is AT_LEAST else "")
    bench.figures.note(f"{rows} rows for each micro-batch, four tasks; each sample is the median trigger of a query of {BATCHES} batches")


def batch_ms(bench: Bench, way: str, source: str, rows: int) -> float:
    """The median duration of a trigger, in milliseconds; all the rows must be there at the end, once."""
    ours = Format(bench.spark, bench.servers, OURS, OURS, {})
    with bench.topics("target") as (target,), tempfile.TemporaryDirectory(prefix="sparklog-bench-") as directory:
        frame = ours.stream(source, maxOffsetsPerTrigger=str(rows)).select("key", "value")
        sink = {"kafka.bootstrap.servers": bench.servers, "topic": target, "checkpointLocation": str(Path(directory) / "checkpoint")}
        if way is not SPARKS_OWN:
            sink["delivery"] = way
        writer = frame.writeStream.format(THEIRS if way is SPARKS_OWN else OURS).options(**sink)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(PATIENCE_S):
            query.stop()
            raise RuntimeError(f"{way}: the stream did not end within {PATIENCE_S} s")
        if (landed := _committed(bench, target)) != rows * BATCHES:
            raise RuntimeError(f"{way}: {landed} of {rows * BATCHES} rows are in the topic")
        durations = [float(each["durationMs"]["triggerExecution"]) for each in query.recentProgress if each["numInputRows"]]
    return statistics.median(durations[FIRST_BATCHES:])


def _committed(bench: Bench, topic: str) -> int:
    """How many records a reader of committed records gets."""
    with Consumer(bootstrap_servers=bench.servers, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends, count = consumer.end_offsets(partitions), 0
        while any(consumer.position(one) < end for one, end in ends.items()):
            count += len(consumer.poll(1_000, 50_000))
    return count


if __name__ == "__main__":
    main()
