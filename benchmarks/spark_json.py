"""JSON values of 10 fields as typed columns: ours decoded while reading beside `from_json` over Spark's
own Kafka connector.

One broker, one session, in turns. Needs Java, as Spark does, and the jars of `make jars`.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from benchmarks.spark_session import OURS, PARTITIONS, Bench, Format, each_broker, parse_options, rate

RUNS = 9
COLD_RUNS = 4
RECORDS = 1_000_000
BOUND = ">= 1"
SCHEMA = "id BIGINT, name STRING, price DOUBLE, quantity INT, paid BOOLEAN, city STRING, at TIMESTAMP, account BIGINT, rate DOUBLE, note STRING"  # noqa: E501


def main() -> None:
    options = parse_options(__doc__, runs=RUNS, whats=["json"])
    for bench in each_broker("spark json", options):
        measure(bench)


def measure(bench: Bench) -> None:
    """All ten fields to nowhere."""
    count, cold = bench.records(RECORDS), min(COLD_RUNS, bench.options.runs - 1)
    with bench.topics("json") as (topic,):
        ours = Format(bench.spark, bench.servers, OURS, OURS, {})
        ours.write(orders(bench, count), topic)

        def to_columns(of: Format) -> float:
            return rate(count, lambda: columns(of, topic).write.format("noop").mode("overwrite").save())

        bench.compare("JSON to 10 columns", "M records/s", to_columns, bound=BOUND, warm_from=cold)


def orders(bench: Bench, count: int) -> DataFrame:
    """`count` values of about 200 bytes."""
    number = f.col("id")
    made = bench.spark.range(0, count, 1, PARTITIONS).select(
        number,
        f.concat(f.lit("name-"), number).alias("name"),
        (number % 9973 / 100).alias("price"),
        (number % 7).cast("int").alias("quantity"),
        (number % 2 == 0).alias("paid"),
        f.lit("Paris").alias("city"),
        f.timestamp_seconds(number + 1_767_323_045).alias("at"),
        (number * 1_000_000_007).alias("account"),
        f.rand(7).alias("rate"),
        f.lit("abcdefghijabcdefghij").alias("note"),
    )
    return made.select(f.to_json(f.struct("*")).alias("value"))


def columns(of: Format, topic: str) -> DataFrame:
    """The ten fields as columns, in the way that the format has for it."""
    if of.name == OURS:
        options = {
            "kafka.bootstrap.servers": of.servers,
            **of.options,
            "subscribe": topic,
            "valueFormat": "json",
        }
        return (
            of.spark.read.format(of.name)
            .schema(f"value STRUCT<{SCHEMA}>")
            .options(**options)
            .load()
            .select("value.*")
        )
    return (
        of.read(topic, "value")
        .select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("value"))
        .select("value.*")
    )


if __name__ == "__main__":
    main()
