"""Spark batch reads and writes of 5 M records of 100 B: ours beside Spark's own Kafka connector, on one
broker in one session.

Warm is the median of runs 5 to 9: by then Spark's code is compiled and its Python workers are up.
`--bootstrap-server` measures against a broker that runs already (a real Kafka, say) instead of one of
ours. Needs Java, as Spark does, and the jars of `make jars`.
"""

from benchmarks.spark_session import Bench, Format, each_broker, made_records, parse_options, rate

RUNS = 9
COLD_RUNS = 4
RECORDS = 5_000_000
READ_BOUNDS = {"none": ">= 2.7", "lz4": ">= 1.5", "zstd": ">= 1.5"}
VALUE_BOUND = ">= 3.5"
WRITE_BOUND = ">= 1.7"


def main() -> None:
    options = parse_options(__doc__, runs=RUNS, whats=["read", "value", "lz4", "zstd", "write"])
    for bench in each_broker("spark", options):
        for codec, what in (("none", "read"), ("lz4", "lz4"), ("zstd", "zstd")):
            if what in options.what or (what == "read" and "value" in options.what):
                read(bench, codec)
        if "write" in options.what:
            write(bench)


def read(bench: Bench, codec: str) -> None:
    """All seven columns to nowhere, and the value alone."""
    count, cold = bench.records(RECORDS), min(COLD_RUNS, bench.options.runs - 1)
    with bench.topics(f"read-{codec}") as (topic,):
        bench.fill(topic, count, codec=codec)

        def all_columns(of: Format) -> float:
            return rate(count, lambda: of.read(topic).write.format("noop").mode("overwrite").save())

        def value_alone(of: Format) -> float:
            return rate(count, lambda: of.read(topic, "value").write.format("noop").mode("overwrite").save())

        name = "batch read" if codec == "none" else f"batch read, {codec}"
        if codec != "none" or "read" in bench.options.what:
            bench.compare(name, "M records/s", all_columns, bound=READ_BOUNDS[codec], warm_from=cold)
        if codec == "none" and "value" in bench.options.what:
            bench.compare(
                f"{name}, value alone", "M records/s", value_alone, bound=VALUE_BOUND, warm_from=cold
            )


def write(bench: Bench) -> None:
    """With string keys, each run into a topic of its own."""
    count, cold = bench.records(RECORDS), min(COLD_RUNS, bench.options.runs - 1)

    def with_keys(of: Format) -> float:
        with bench.topics("write") as (topic,):
            sample = rate(count, lambda: of.write(made_records(bench.spark, count), topic))
            landed = of.read(topic, "offset").count()
            if landed != count:
                raise RuntimeError(f"{of.label}: {landed} of {count} records in the topic")
            return sample

    bench.compare("batch write with keys", "M records/s", with_keys, bound=WRITE_BOUND, warm_from=cold)


if __name__ == "__main__":
    main()
