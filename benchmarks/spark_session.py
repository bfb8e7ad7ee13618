"""Shared parts of the Spark benchmarks: a session in which both formats run, topics filled with records, and
the ratio of the two.

Every measurement takes turns: ours, Spark's own connector, ours again and so on, against one broker in one
session, so that other work of the machine falls on both. The figure that is promised is the ratio of
the medians; samples of the first runs, while Spark compiles its code and starts its Python workers, are
left out.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamReader

import sparklog as sparklog_package
from benchmarks import harness
from sparklog.client.admin.topics import NewTopic

OURS = "sparklog"
THEIRS = "kafka"
CONNECTOR_JARS = harness.PROJECT / ".jars" / "spark-kafka"
DELTA_JARS = harness.PROJECT / ".jars" / "delta"
PARTITIONS = 4
RECORD_BYTES = 100


@dataclass(frozen=True, slots=True)
class Format:
    """One way to read and write topics, by the name it has in the table, with options of its own."""

    spark: SparkSession
    servers: str
    name: str
    label: str
    options: Mapping[str, str]

    def read(self, topic: str, *columns: str) -> DataFrame:
        """A batch read of all there is; of some columns only, in the way that the format has for it."""
        return self._loaded(self.spark.read.option("subscribe", topic), columns)

    def stream(self, topic: str, *columns: str, **options: str) -> DataFrame:
        """A stream of all there is, unless told otherwise; of some columns only, as in `read`."""
        return self._loaded(
            self.spark.readStream.options(**{"subscribe": topic, "startingOffsets": "earliest", **options}),
            columns,
        )

    def write(self, frame: DataFrame, topic: str, **options: str) -> None:
        """A batch write."""
        frame.write.format(self.name).options(**self._options, **options).option("topic", topic).mode(
            "append"
        ).save()

    def _loaded(self, reader: DataFrameReader | DataStreamReader, columns: Sequence[str]) -> DataFrame:
        reader = reader.format(self.name).options(**self._options)
        if columns and self.name == OURS:
            known = {"key": "BINARY", "value": "BINARY", "partition": "INT", "offset": "LONG"}
            return reader.schema(", ".join(f"{column} {known[column]}" for column in columns)).load()
        frame = reader.load()
        return frame.select(*columns) if columns else frame

    @property
    def _options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, **self.options}


@dataclass(frozen=True, slots=True)
class Bench:
    """One broker, the formats that are measured against it, and how much of everything."""

    spark: SparkSession
    subject: str
    servers: str
    admin: "sparklog_package.Admin"
    figures: harness.Figures
    options: argparse.Namespace

    def formats(self) -> list[Format]:
        """Ours, and Spark's own connector where its jars are."""
        names = [OURS, THEIRS] if self.options.formats == "both" else [self.options.formats]
        return [Format(self.spark, self.servers, name, self.label(name), {}) for name in names]

    def tuned(self) -> Format:
        """Spark's own connector with the one setting that shortens its waits."""
        return Format(
            self.spark, self.servers, THEIRS, self.label(f"{THEIRS} tuned"), {"kafka.fetch.max.wait.ms": "50"}
        )

    def label(self, name: str) -> str:
        """The column of the table: the format, and the broker where it is not ours."""
        return name if self.subject == "sparklog" else f"{name} @ {self.subject}"

    def records(self, at_full_scale: int) -> int:
        """So many records at scale 1, rounded to whole thousands."""
        return max(1, round(at_full_scale * float(self.options.scale) / 1000)) * 1000

    @contextmanager
    def topics(self, *purposes: str) -> Iterator[list[str]]:
        """New topics, deleted at the end."""
        names = [f"bench-{os.getpid()}-{purpose}-{time.monotonic_ns()}" for purpose in purposes]
        self.admin.create_topics([NewTopic(name, PARTITIONS) for name in names])
        try:
            yield names
        finally:
            self.admin.delete_topics(names)

    def fill(self, topic: str, count: int, *, codec: str = "none", with_keys: bool = False) -> None:
        """`count` records, written by ours."""
        made = made_records(self.spark, count)
        ours = Format(self.spark, self.servers, OURS, OURS, {})
        ours.write(made if with_keys else made.drop("key"), topic, **{"kafka.compression.type": codec})

    def compare(
        self,
        what: str,
        unit: str,
        measure: Callable[[Format], float],
        *,
        bound: str,
        runs: int | None = None,
        warm_from: int = 0,
    ) -> None:
        """Runs in turns; `warm_from` runs at the start are told as a figure of their own. The bound is for
        ours over theirs.
        """
        formats = self.formats()
        samples: dict[str, list[float]] = {each.name: [] for each in formats}
        for _ in range(self.options.runs if runs is None else runs):
            for each in formats:
                samples[each.name].append(measure(each))
                print(
                    f"{what}: {each.label} {samples[each.name][-1]:.3g} {unit}", file=sys.stderr, flush=True
                )
        for each in formats:
            cold, warm = (
                samples[each.name][:warm_from],
                samples[each.name][warm_from:] or samples[each.name][-1:],
            )
            if cold:
                self.figures.add(f"{what}, first run", unit, each.label, cold[0])
            for sample in warm:
                self.figures.add(what, unit, each.label, sample)
            samples[each.name] = warm
        self.ratio(what, samples, bound)

    def ratio(
        self, what: str, samples: Mapping[str, Sequence[float]], bound: str, *, against: str = THEIRS
    ) -> None:
        """The median of ours over the median of theirs, the promised ratio."""
        if OURS in samples and against in samples:
            value = statistics.median(samples[OURS]) / statistics.median(samples[against])
            self.figures.add(f"{what}: ours / {against}", "×", self.label(OURS), value, bound=bound)


def made_records(spark: SparkSession, count: int) -> DataFrame:
    """`count` records with string keys and values of 100 characters, made as they are written."""
    value = f.rpad(f.concat(f.lit("value-"), f.col("id").cast("string")), RECORD_BYTES, "abcdefghij")
    return spark.range(0, count, 1, PARTITIONS).select(
        f.col("id").cast("string").alias("key"), value.alias("value")
    )


def rate(records: int, action: Callable[[], object]) -> float:
    """Millions of records per second of wall time."""
    began = time.perf_counter()
    action()
    return records / (time.perf_counter() - began) / 1e6


def each_broker(
    title: str, options: argparse.Namespace, *, flush: Sequence[str] = ("never",)
) -> Iterator[Bench]:
    """A bench for each broker that is asked for, one after another in one session; the table is printed at
    the end.
    """
    figures = harness.Figures(title)
    figures.note(
        f"local[2], {PARTITIONS} partitions, values of {RECORD_BYTES} B, scale {options.scale:g}; formats "
        f"take turns in one session"
    )
    with session() as spark:
        if options.bootstrap_server is not None:
            with sparklog_package.Admin(bootstrap_servers=options.bootstrap_server) as admin:
                yield Bench(spark, "given", options.bootstrap_server, admin, figures, options)
        else:
            for subject in harness.subjects(options, flush=flush):
                with sparklog_package.Admin(bootstrap_servers=subject.bootstrap_servers) as admin:
                    yield Bench(spark, subject.name, subject.bootstrap_servers, admin, figures, options)
    figures.report(options)


@contextmanager
def session() -> Iterator[SparkSession]:
    """A Spark of two cores that says nothing but errors, with the connector and Delta where their jars
    are.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # compiled files as pip leaves them, for Spark's Python processes too
    # Of Delta's jars only these: pyspark brings the others itself.
    jars = [
        jar for pattern in ("delta-spark_*.jar", "delta-storage-*.jar") for jar in DELTA_JARS.glob(pattern)
    ]
    jars += CONNECTOR_JARS.glob("*.jar")
    log = harness.PROJECT / "examples" / "log4j2.properties"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log}",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.jars": ",".join(map(str, jars)),
    }
    if has_delta():
        settings["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    sparklog_package.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def has_delta() -> bool:
    """Whether tables of Delta can be written."""
    return any(DELTA_JARS.glob("delta-spark_*.jar"))


def parse_options(description: str | None, *, runs: int, whats: Sequence[str]) -> argparse.Namespace:
    """The arguments of both benchmarks."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as JSON")
    parser.add_argument(
        "--against",
        choices=["kafka"],
        help="run the same load against a real Kafka (needs Java; see `make jars`)",
    )
    parser.add_argument("--only", choices=["kafka"], help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="measure against the broker there")
    parser.add_argument(
        "--runs", type=int, default=runs, metavar="N", help=f"runs of each kind and format (default {runs})"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="X",
        help="times the number of records (default 1; 0.01 to try it out)",
    )
    parser.add_argument(
        "--formats",
        choices=["both", OURS, THEIRS],
        default="both",
        help="what to measure (default both, with the ratio)",
    )
    parser.add_argument(
        "--what", nargs="+", choices=whats, default=list(whats), help="what to measure (default all)"
    )
    options = parser.parse_args()
    if options.formats != OURS and not any(CONNECTOR_JARS.glob("standin.jar")):
        parser.error(
            f"no jars of Spark's own connector in {CONNECTOR_JARS}: run `make jars`, or give --formats {OURS}"
        )
    return options
