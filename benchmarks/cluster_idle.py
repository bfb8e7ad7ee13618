"""Three idle nodes: the resident memory of the nodes and their supervisor, the memory that they do not share,
and their processor time.
"""

import time

from benchmarks import harness, nodes

SETTLE_S = 3.0
MEASURED_S = 20.0


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=1)
    figures = harness.Figures("cluster_idle")
    for _ in range(options.repeats):
        for start in nodes.starts(options):
            with start() as cluster:
                measure(figures, cluster)
    figures.note("the supervisor is counted")
    figures.report(options)


def measure(figures: harness.Figures, cluster: nodes.Cluster) -> None:
    time.sleep(SETTLE_S)
    used = [process.memory_full_info() for process in cluster.processes]
    figures.add("resident", "MB", cluster.name, sum(one.rss for one in used) / 1e6, bound="<= 180")
    figures.add("proportional share", "MB", cluster.name, sum(one.pss for one in used) / 1e6)
    before_s = cpu_s(cluster)
    time.sleep(MEASURED_S)
    share = (cpu_s(cluster) - before_s) / MEASURED_S * 100
    figures.add("processor, of one core", "%", cluster.name, share, bound="<= 3")


def cpu_s(cluster: nodes.Cluster) -> float:
    """Processor time of all processes so far."""
    times = [process.cpu_times() for process in cluster.processes]
    return sum(one.user + one.system for one in times)


if __name__ == "__main__":
    main()
