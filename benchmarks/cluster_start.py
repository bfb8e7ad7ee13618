"""From `sparklog cluster start --nodes 3` to the first acknowledged record: nothing exists before, neither
directories nor the topic; one replica, `sparklog.ack.flush=auto`.

Files are in the page cache, and Python's compiled files are there, as pip leaves them.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from benchmarks import harness, nodes
from sparklog import Producer

RUNS = 5


def measure(start: Callable[[], AbstractContextManager[nodes.Cluster]]) -> tuple[str, float, float]:
    """The name of the cluster; milliseconds until it is ready, and until the first record is acknowledged."""
    with start() as cluster:
        ready_s = time.perf_counter() - cluster.began_s
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("first", value=b"record").result()
        return cluster.name, ready_s * 1000, (time.perf_counter() - cluster.began_s) * 1000


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=RUNS)
    figures = harness.Figures("cluster_start")
    measure(nodes.cluster)  # the compiled files are written
    for _ in range(options.repeats):
        for start in nodes.starts(options):
            name, ready_ms, acknowledged_ms = measure(start)
            figures.add("three nodes ready", "ms", name, ready_ms)
            figures.add("first record acknowledged", "ms", name, acknowledged_ms, bound="<= 1000")
    figures.report(options)


if __name__ == "__main__":
    main()
