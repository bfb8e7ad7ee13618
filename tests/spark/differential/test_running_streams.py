"""Continuous streams: records and topics that come and go, and limits that put a micro-batch off."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.differential.conftest import Bench, Sent
from tests.spark.differential.programs import QUERY_S_MAX, Side, new_name

pytestmark = [pytest.mark.spark, pytest.mark.compat, pytest.mark.long, pytest.mark.timeout(300)]


class Running:
    """A query with the default trigger, and the values of its micro-batches."""

    def __init__(self) -> None:
        self.query: StreamingQuery
        self._batches: list[list[str]] = []
        self._changed = threading.Condition()

    def collect(self, batch: DataFrame, _: int) -> None:
        values = sorted(row.value for row in batch.selectExpr("CAST(value AS STRING) AS value").collect())
        with self._changed:
            self._batches += [values] if values else []
            self._changed.notify_all()

    def after(self, count: int) -> list[list[str]]:
        """The micro-batches as soon as there are so many records; raises the query's error."""
        deadline_s = time.monotonic() + QUERY_S_MAX
        with self._changed:
            while sum(map(len, self._batches)) < count:
                if not self._changed.wait(1) and not self.query.isActive:
                    self.query.awaitTermination()
                assert time.monotonic() < deadline_s, (
                    f"{self._batches} after {QUERY_S_MAX} s, not {count} records"
                )
            return list(self._batches)

    def settled(self) -> list[list[str]]:
        """The micro-batches when all is read that the limits let through."""
        self.query.processAllAvailable()
        return list(self._batches)


@contextmanager
def running(side: Side, **options: str) -> Iterator[Running]:
    """The query reads from the earliest records on, and is stopped at the end."""
    running = Running()
    source = side.stream(**{"startingOffsets": "earliest", **options})
    writer = source.writeStream.foreachBatch(running.collect)
    running.query = writer.option("checkpointLocation", str(side.directory / new_name("checkpoint"))).start()
    try:
        yield running
    finally:
        running.query.stop()


def values(prefix: str, count: int, partition: int = 0) -> list[Sent]:
    return [Sent(f"{prefix}{n}".encode(), partition=partition) for n in range(count)]


def test_records_partitions_and_topics_that_appear_are_read_from_their_start(bench: Bench) -> None:
    def program(side: Side) -> object:
        prefix = new_name("appear")
        bench.topic(*values("a", 2), name=f"{prefix}-1")
        with running(side, subscribePattern=f"{prefix}-.*") as query:
            found = [query.after(2)]
            bench.fill(f"{prefix}-1", values("b", 1))
            found.append(query.after(3))
            bench.admin.create_partitions({f"{prefix}-1": 2})
            bench.fill(f"{prefix}-1", values("c", 1, partition=1))
            found.append(query.after(4))
            bench.topic(*values("d", 1), name=f"{prefix}-2")
            found.append(query.after(5))
        return found

    bench.alike(program)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_vanishes_is_a_loss(bench: Bench, fails: str) -> None:
    def program(side: Side) -> object:
        gone, stays = bench.topic(*values("a", 1)), bench.topic(*values("b", 1))
        with running(side, subscribePattern=f"{gone}|{stays}", failOnDataLoss=fails) as query:
            query.after(2)
            bench.admin.delete_topics([gone])
            bench.fill(stays, values("c", 1))
            if fails == "true":
                query.query.awaitTermination(QUERY_S_MAX)
            return query.after(3)[1:]

    if fails == "true":
        bench.refused(program, "failOnDataLoss")
    else:
        bench.alike(program)


def test_a_micro_batch_is_put_off_until_enough_is_there_and_takes_no_more_than_it_may(bench: Bench) -> None:
    def program(side: Side) -> object:
        topic = bench.topic(*values("a", 2))
        limits = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "8", "maxTriggerDelay": "1h"}
        with running(side, subscribe=topic, **limits) as query:
            found = [query.settled()]
            for prefix, count in (("b", 4), ("c", 1), ("d", 19)):
                bench.fill(topic, values(prefix, count))
                found.append(query.settled())
        return [[len(batch) for batch in batches] for batches in found]

    assert bench.alike(program) == [[2], [2], [2, 5], [2, 5, 8, 8]]


def test_a_micro_batch_is_put_off_no_longer_than_it_may_be(bench: Bench) -> None:
    def program(side: Side) -> object:
        topic = bench.topic(*values("a", 2))
        with running(side, subscribe=topic, minOffsetsPerTrigger="1000", maxTriggerDelay="1s") as query:
            query.after(2)
            bench.fill(topic, values("b", 3))
            return query.after(5)

    bench.alike(program)


def test_available_now_leaves_alone_what_comes_while_it_runs(bench: Bench) -> None:
    def program(side: Side) -> object:
        topic = bench.topic(*values("a", 4))

        def read(meanwhile: Callable[[], None]) -> list[list[int]]:
            found: list[list[int]] = []

            def collect(batch: DataFrame, _: int) -> None:
                if not found:
                    meanwhile()
                found.append(
                    sorted(
                        (row.partition, row.offset) for row in batch.select("partition", "offset").collect()
                    )
                )

            source = side.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
            side.run(source.writeStream.foreachBatch(collect), "checkpoint")
            return found

        def more() -> None:
            bench.admin.create_partitions({topic: 2})
            bench.fill(topic, [*values("b", 1), *values("c", 1, partition=1)])

        return read(more), read(lambda: None)

    assert bench.alike(program) == ([[(0, 0), (0, 1)], [(0, 2), (0, 3)]], [[(0, 4), (1, 0)]])


def test_a_stream_is_joined_with_itself(bench: Bench) -> None:
    topic = bench.topic(*values("a", 5))

    def program(side: Side) -> object:
        one = side.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2").select(
            "value", "offset"
        )
        found: list[tuple[object, ...]] = []
        joined = (
            one.alias("a")
            .join(one.alias("b"), on="value")
            .selectExpr("CAST(value AS STRING)", "a.offset", "b.offset")
        )
        side.run(
            joined.writeStream.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect()))),
            "joined",
        )
        return sorted(found)

    bench.alike(program)
