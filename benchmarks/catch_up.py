"""A follower that was away catches up from segments that are not in the page cache, beside a producer of
20 MB/s: its rate, and what the producer notices.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from confluent_kafka import Producer

from benchmarks import harness, rdkafka, trio

VALUE_BYTES = 1_024
PACED_BYTES, PACED_PER_S = 10_000, 2_000
"""Values of 10 KB, so that the client leaves a core to the nodes."""
TOPIC, BEFORE_S = "behind", 10.0
RECORDS_AT_ONCE = 1_000_000
LEADER, AWAY = 1, 3
ASKED_S = 0.1
"""How often the leader is asked for the ISR: each question is a connection to the measured node, and takes
the interpreter from the producer.
"""
QUIET = {"log_level": 0}


class Paced:
    """A producer of 20 MB/s with acks=all, in a thread; `latencies` has (when, milliseconds)."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, **QUIET})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.latencies: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def p99_ms(self, since_s: float, until_s: float) -> float:
        found = [took_ms for at_s, took_ms in self.latencies if since_s <= at_s < until_s]
        return harness.percentile(found, 99)

    def _send(self) -> None:
        value, start_s, sent = os.urandom(PACED_BYTES), time.perf_counter(), 0
        while not self._is_over.is_set():
            while sent < (time.perf_counter() - start_s) * PACED_PER_S:
                self._producer.produce(TOPIC, value, partition=0, on_delivery=self._noted())
                sent += 1
            self._producer.poll(0.001)
        self._producer.flush(60)

    def _noted(self) -> Callable[[object, object], None]:
        sent_s = time.perf_counter()

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                raise RuntimeError(str(error))
            self.latencies.append((sent_s, (time.perf_counter() - sent_s) * 1000))

        return delivered


def measure(figures: harness.Figures, cluster: trio.Trio, gigabytes: float) -> None:
    """Fill the topic while the follower is away, drop the pages of the leader's segments, and start it."""
    cluster.create(TOPIC, [trio.ordered(LEADER)])
    follower, leader = cluster.nodes[AWAY], cluster.nodes[LEADER]
    follower.stop()
    left, size = int(gigabytes * 1e9 / VALUE_BYTES), 0
    while left > 0:
        count = min(left, RECORDS_AT_ONCE)
        size += rdkafka.produce(cluster, TOPIC, count=count, size=VALUE_BYTES, settings=("acks=all",))[
            "bytes"
        ]
        left -= count
    make_cold(leader.directory / "data" / f"{TOPIC}-0")
    with Paced(cluster.bootstrap_servers) as paced:
        time.sleep(BEFORE_S)
        began_s = time.perf_counter()
        follower.start()
        trio.wait_until(
            lambda: AWAY in leader.described(TOPIC).partitions[0].isr_nodes, patience_s=600, every_s=ASKED_S
        )
        ended_s = time.perf_counter()
    rate = size / 1e6 / (ended_s - began_s)
    figures.add("caught up, start of the process included", "MB/s", cluster.name, rate, bound=">= 200")
    before_ms = paced.p99_ms(began_s - BEFORE_S / 2, began_s)
    figures.add("producer of 20 MB/s before: p99", "ms", cluster.name, before_ms)
    beside_ms = paced.p99_ms(began_s, ended_s)
    figures.add("producer of 20 MB/s beside it: p99", "ms", cluster.name, beside_ms)
    figures.add("p99 beside it / before", "", cluster.name, beside_ms / before_ms, bound="<= 4")


def make_cold(directory: Path) -> None:
    """Write back the files of a directory and drop their pages from the page cache."""
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gigabytes", type=float, default=5.0, metavar="GB", help="that the follower lacks (default 5)"
    )


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=1, more=_size)
    figures = harness.Figures("catch_up")
    for _ in range(options.repeats):
        for start in trio.starts(options):
            with start() as cluster:
                measure(figures, cluster, options.gigabytes)
    figures.note("the pages of the leader's segments are dropped before the follower starts")
    figures.report(options)


if __name__ == "__main__":
    main()
