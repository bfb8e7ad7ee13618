"""How long three nodes do without one: the active controller killed or stopped, until another node creates
the next topic; a broker killed, until another node shows it as fenced.

The topic is assigned to the node that is asked, so that its leader is none of the dead.
"""

import time
from collections.abc import Callable

from benchmarks import harness, nodes
from sparklog import Admin
from sparklog.client.admin.topics import NewTopic

RUNS = 5
PATIENCE_S = 90
"""A broker of Kafka waits 30 s for the answer of a controller that hangs."""


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=RUNS)
    figures = harness.Figures("cluster_failover")
    for _ in range(options.repeats):
        for start in nodes.starts(options):
            with start() as cluster:
                leader = settled(cluster)
                took_ms = next_topic_ms(cluster, leader, cluster.nodes[leader - 1].kill)
                what = "controller killed: next CreateTopics"
                figures.add(what, "ms", cluster.name, took_ms, bound="<= 500")
            with start() as cluster:
                victim = settled(cluster) % nodes.COUNT + 1
                took_ms = fenced_ms(cluster, victim)
                what = "broker killed: fenced for the others"
                figures.add(what, "ms", cluster.name, took_ms, bound="<= 400")
            with start() as cluster:  # another one: a node that was killed has another process now
                leader = settled(cluster)
                took_ms = next_topic_ms(cluster, leader, cluster.nodes[leader - 1].suspend)
                cluster.nodes[leader - 1].resume()
                what = "controller stopped: next CreateTopics"
                figures.add(what, "ms", cluster.name, took_ms, bound="<= 3500")
    figures.report(options)


def settled(cluster: nodes.Cluster) -> int:
    """The active controller, once every node shows every broker."""
    for address in cluster.bootstrap_servers.split(","):
        with Admin(bootstrap_servers=address) as admin:
            wait_until(lambda ask=admin.describe_cluster: len(ask().nodes) == nodes.COUNT)
            leader = admin.describe_quorum().leader
    return leader


def next_topic_ms(cluster: nodes.Cluster, leader: int, strike: Callable[[], None]) -> float:
    """Strike the leader; milliseconds until another node has created a topic."""
    other = leader % nodes.COUNT + 1
    server, patience_ms = cluster.bootstrap_servers.split(",")[other - 1], PATIENCE_S * 1000
    with Admin(
        bootstrap_servers=server, request_timeout_ms=patience_ms, default_api_timeout_ms=patience_ms
    ) as admin:
        admin.create_topics([NewTopic("before", assignment=[[other]])])
        strike()
        began_s = time.perf_counter()
        admin.create_topics([NewTopic("after", assignment=[[other]])])
        return (time.perf_counter() - began_s) * 1000


def fenced_ms(cluster: nodes.Cluster, victim: int) -> float:
    """Kill a broker; milliseconds until another node no longer shows it."""
    other = victim % nodes.COUNT + 1
    with Admin(bootstrap_servers=cluster.bootstrap_servers.split(",")[other - 1]) as admin:
        admin.describe_cluster()
        cluster.nodes[victim - 1].kill()
        began_s = time.perf_counter()
        wait_until(lambda: victim not in [node.node_id for node in admin.describe_cluster().nodes])
        return (time.perf_counter() - began_s) * 1000


def wait_until(is_so: Callable[[], bool]) -> None:
    """Ask again and again, for a bounded time."""
    until_s = time.perf_counter() + PATIENCE_S
    while not is_so():
        if time.perf_counter() > until_s:
            raise RuntimeError(f"it did not happen within {PATIENCE_S} s")
        time.sleep(0.001)


if __name__ == "__main__":
    main()
