"""From `sparklog cluster start --nodes 3` to the first acknowledged record: nothing exists before, neither
directories nor the topic; one replica, `sparklog.ack.flush=auto`.

Files are in the page cache, and Python's compiled files are there, as pip leaves them.
"""

import time

from benchmarks import harness, nodes
from sparklog import Producer

RUNS = 5


def measure() -> tuple[float, float]:
    """Milliseconds until the ready line, and until the first record is acknowledged."""
    with nodes.cluster() as cluster:
        ready_s = time.perf_counter() - cluster.began_s
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("first", value=b"record").result()
        return ready_s * 1000, (time.perf_counter() - cluster.began_s) * 1000


def main() -> None:
    options = harness.options(__doc__, repeats=RUNS)
    figures = harness.Figures("cluster_start")
    measure()  # the compiled files are written
    for _ in range(options.repeats):
        ready_ms, acknowledged_ms = measure()
        figures.add("three nodes ready", "ms", "sparklog", ready_ms)
        figures.add("first record acknowledged", "ms", "sparklog", acknowledged_ms, bound="<= 1000")
    figures.report(options)


if __name__ == "__main__":
    main()
