"""Spark streams: ours beside Spark's own Kafka connector, on one broker in one session: throughput, the
cost of a tiny batch, latency.

Rows of whole streams include the start and the end of the query. Latency is from `produce` to the hands of
`foreachBatch`, one record each half second under the default trigger; Spark's own connector is measured
with its defaults and with the one setting that shortens its waits.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from benchmarks import harness
from benchmarks.spark_session import OURS, THEIRS, Bench, Format, each_broker, has_delta, parse_options, rate
from sparklog.spark.stream_reader import IDLE_WAIT_US

RUNS = 5
COLD_RUNS = 2
RECORDS = 5_000_000
PER_TRIGGER = 1_000_000
TINY_BATCHES = 30
TINY_RECORDS = 100
EVENTS = 60
EVENT_INTERVAL_S = 0.5
EVENTS_WAIT_S = 60
WARM_EVENTS = 5
"""The first events are not counted: they find Spark compiling."""
PATIENCE_S = 600
IDLE_WAIT_S = IDLE_WAIT_US / 1e6
DURATIONS = ("latestOffset", "addBatch", "triggerExecution")
TUNED = f"{THEIRS} tuned"
NOTHING = "nothing"


def main() -> None:
    options = parse_options(__doc__, runs=RUNS, whats=["drain", "tiny", "latency", "copy", "delta"])
    measurements: dict[str, Callable[[Bench], None]] = {
        "drain": drain,
        "tiny": tiny,
        "latency": latency,
        "copy": copy,
        "delta": delta,
    }
    for bench in each_broker("spark_streams", options):
        for what in options.what:
            measurements[what](bench)


def drain(bench: Bench) -> None:
    """Everything there is, a million records at a time, to nowhere."""
    _throughput(
        bench,
        "AvailableNow, 1 M per batch",
        ">= 1.5",
        lambda of, source, _: _limited(bench, of, source).writeStream.format("noop"),
    )


def copy(bench: Bench) -> None:
    """From one topic into another, both in the same format and at least once, as theirs alone can."""

    def into_topic(of: Format, topic: str, target: str) -> DataStreamWriter:
        writer = _limited(bench, of, topic, "key", "value").writeStream.format(of.name)
        guarantee = {"delivery": "at_least_once"} if of.name == OURS else {}
        return writer.options(**{"kafka.bootstrap.servers": of.servers, "topic": target, **guarantee})

    _throughput(bench, "topic to topic", ">= 2", into_topic, needs_topic=True)


def delta(bench: Bench) -> None:
    """Into a Delta table."""
    if not has_delta():
        bench.figures.note("no jars of Delta, so topic to Delta was not measured: run `make jars`")
        return

    def into_table(of: Format, source: DataFrame, path: str) -> DataStreamWriter:
        return source.writeStream.format("delta").option("path", path)

    _throughput(
        bench,
        "topic to Delta",
        ">= 1.3",
        lambda of, topic, path: into_table(of, _limited(bench, of, topic), path),
    )


def _limited(bench: Bench, of: Format, topic: str, *columns: str) -> DataFrame:
    return of.stream(topic, *columns, maxOffsetsPerTrigger=str(bench.records(PER_TRIGGER)))


def _throughput(
    bench: Bench,
    what: str,
    bound: str,
    writer: Callable[[Format, str, str], DataStreamWriter],
    *,
    needs_topic: bool = False,
) -> None:
    """`writer` is given the source and the name of a new topic, or of a new directory."""
    count = bench.records(RECORDS)
    with bench.topics("source") as (source,):
        bench.fill(source, count, with_keys=True)

        def measure(of: Format) -> float:
            with (
                tempfile.TemporaryDirectory(prefix="sparklog-bench-") as directory,
                bench.topics("target") as (topic,),
            ):
                target = topic if needs_topic else f"{directory}/table"
                sample = rate(count, lambda: _run_to_end(writer(of, source, target), directory))
                if needs_topic and (landed := of.read(target, "offset").count()) != count:
                    raise RuntimeError(f"{of.label}: {landed} of {count} records in the topic")
                return sample

        bench.compare(
            what, "M records/s", measure, bound=bound, warm_from=min(COLD_RUNS, bench.options.runs - 1)
        )


def tiny(bench: Bench) -> None:
    """The cost of a micro-batch of a hundred records."""
    with bench.topics("tiny") as (topic,):
        bench.fill(topic, TINY_BATCHES * TINY_RECORDS)

        def measure(of: Format) -> float:
            with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as directory:
                source = of.stream(topic, maxOffsetsPerTrigger=str(TINY_RECORDS))
                return _median_ms(
                    _run_to_end(source.writeStream.format("noop"), directory), "triggerExecution"
                )

        runs = min(3, bench.options.runs)
        bench.compare("trigger of a tiny batch", "ms", measure, bound="<= 1.2", runs=runs, warm_from=runs - 1)


def latency(bench: Bench) -> None:
    """From the producer's call to `foreachBatch`; each format has the topic and the machine for itself,
    and so has a source of nothing.
    """
    events = max(10, round(EVENTS * min(1.0, bench.options.scale * 10)))
    found: dict[str, dict[str, list[float]]] = {}
    formats = bench.formats()
    if bench.options.formats == "both":
        formats.append(bench.tuned())
    bench.spark.dataSource.register(nothing_source())
    for of in formats:
        _paced(bench, of, events // 2)  # warms up the JVM: otherwise the first stream would pay for all
    _durations_of_nothing(bench, events // 2)
    for of in formats:
        samples = _paced(bench, of, events)
        found[TUNED if of.options else of.name] = samples
        for what, values in samples.items():
            for value in values:
                bench.figures.add(f"visible, {what}", "ms", of.label, value)
        for percent in (50, 99):
            bench.figures.add(
                f"visible p{percent}", "ms", of.label, harness.percentile(samples["each event"], percent)
            )
    for percent in (50, 99):
        bench.ratio(
            f"visible p{percent}",
            {name: [harness.percentile(each["each event"], percent)] for name, each in found.items()},
            "<= 0.5",
        )
    bench.ratio("addBatch", {name: each["addBatch"] for name, each in found.items()}, "<= 1.3", against=TUNED)
    bench.ratio(
        "trigger", {name: each["triggerExecution"] for name, each in found.items()}, "<= 1.25", against=TUNED
    )
    if OURS in found:
        nothing = _durations_of_nothing(bench, events)
        for what, values in nothing.items():
            for value in values:
                bench.figures.add(f"visible, {what}", "ms", NOTHING, value)
        for what in DURATIONS:
            above = statistics.median(found[OURS][what]) - statistics.median(nothing[what])
            bound = "<= 20" if what == "triggerExecution" else ""
            bench.figures.add(
                f"{what} above that of a source of nothing", "ms", bench.label(OURS), above, bound=bound
            )


def _paced(bench: Bench, of: Format, events: int) -> dict[str, list[float]]:
    """Latencies and durations in milliseconds of a stream that is given one record each half second."""
    latencies: list[float] = []

    def take(batch: DataFrame, _: int) -> None:
        rows = batch.select("value").collect()
        now = time.time_ns()
        latencies.extend((now - int(bytes(row.value))) / 1e6 for row in rows)

    with (
        bench.topics("events") as (topic,),
        tempfile.TemporaryDirectory(prefix="sparklog-bench-") as directory,
    ):
        query = (
            of.stream(topic).writeStream.foreachBatch(take).option("checkpointLocation", directory).start()
        )
        producer = confluent_kafka.Producer({"bootstrap.servers": bench.servers, "linger.ms": 0})

        def produce(number: int) -> None:
            producer.produce(topic, str(time.time_ns()).encode(), partition=number % 4)
            producer.flush(10)

        def arrived(count: int) -> None:
            deadline = time.monotonic() + EVENTS_WAIT_S
            while len(latencies) < count:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{of.label}: {len(latencies)} of {count} events arrived")
                time.sleep(0.01)

        try:
            produce(0)
            arrived(1)  # a query that is still starting up keeps events waiting for seconds
            for number in range(1, events + WARM_EVENTS):
                produce(number)
                time.sleep(EVENT_INTERVAL_S)
            arrived(events + WARM_EVENTS)
        finally:
            query.stop()
    return {
        "each event": latencies[WARM_EVENTS:],
        **{name: _durations_ms(query, name)[WARM_EVENTS:] for name in DURATIONS},
    }


def nothing_source() -> type[DataSource]:
    """A source without requests that gives one row each half second; a class of this function, so that
    executors need not import it.

    It waits for its next row as long as ours waits for news, so that the trigger which finds one has
    waited as long beforehand.
    """

    class Nothing(DataSource):
        @classmethod
        def name(cls) -> str:
            return NOTHING

        def schema(self) -> str:
            return "value BINARY"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return Ticks()

    class Ticks(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": int(time.time() / EVENT_INTERVAL_S)}

        def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
            until_next_s = (start["at"] + 1) * EVENT_INTERVAL_S - time.time()
            if until_next_s > 0:
                time.sleep(min(until_next_s, IDLE_WAIT_S))
            return self.initialOffset()

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(end)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_arrays(
                [pa.array([b"nothing"])], schema=pa.schema([pa.field("value", pa.binary())])
            )

    return Nothing


def _durations_of_nothing(bench: Bench, events: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as directory:
        source = bench.spark.readStream.format(NOTHING).load()
        query = source.writeStream.foreachBatch(_collect).option("checkpointLocation", directory).start()
        time.sleep((events + WARM_EVENTS) * EVENT_INTERVAL_S)
        query.stop()
    return {name: _durations_ms(query, name)[WARM_EVENTS:] for name in DURATIONS}


def _collect(batch: DataFrame, _: int) -> None:
    batch.collect()


def _run_to_end(writer: DataStreamWriter, directory: str) -> StreamingQuery:
    query = (
        writer.option("checkpointLocation", str(Path(directory) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(PATIENCE_S):
        query.stop()
        raise RuntimeError(f"a stream did not end within {PATIENCE_S} s")
    return query


def _durations_ms(query: StreamingQuery, what: str) -> list[float]:
    """Of every trigger that had records."""
    return [
        float(progress["durationMs"][what]) for progress in query.recentProgress if progress["numInputRows"]
    ]


def _median_ms(query: StreamingQuery, what: str) -> float:
    return statistics.median(_durations_ms(query, what))


if __name__ == "__main__":
    main()
