"""Brokers lose log directories, restart with and without them, and replicas are moved away from them, at
random: a partition that has a leader has every acknowledged record.
"""

from random import Random

import pytest

from sparklog.model import NodeId
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.cluster.test_replicas_of_a_lost_directory import ALL, PARTITIONS, VICTIM, Jbod

STEPS = 40
LOSING = (2, 3)
"""Node 4 keeps its disks: a partition may begin empty once every replica is lost."""


class Histories:
    """One history. Process ends keep every byte that was written."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.jbod = Jbod()
        self.cluster = self.jbod.cluster
        self.acked = {index: {b"0"} for index in range(PARTITIONS)}
        self.count = 0
        self.lost = 0

    def node(self, number: int) -> SimulatedNode:
        return self.cluster.nodes[NodeId(number)]

    def step(self) -> None:
        number = self.random.choice(ALL)
        node = self.node(number)
        if self.random.random() < 0.5:
            self.write(self.random.randrange(PARTITIONS))
        elif node.broker is None:
            self.start(number)
        elif self.random.random() < 0.3 and number in LOSING:
            node.disk.fault = lambda _, path: "I/O error" if path.startswith("/more") else None
        elif number == VICTIM and node.disk.fault is not None:
            self.jbod.move(*range(PARTITIONS))
        else:
            node.kill(is_power_cut=False)
        self.cluster.run(self.random.choice((0, 10, 500, 5_000)))

    def write(self, index: int) -> None:
        if self.cluster.leading("t", index) is None:
            return
        self.count += 1
        value = b"v%d" % self.count
        if self.cluster.write(value, partition=index) == 0:
            self.acked[index].add(value)

    def start(self, number: int) -> None:
        node = self.node(number)
        if self.random.random() < 0.7:
            node.disk.fault = None
        if node.disk.fault is None and number in LOSING and self.random.random() < 0.3:
            node.disk.remove("/more")
            self.lost += 1
        node.start()

    def end(self) -> int:
        """Start all, check each partition, and return how many have no leader."""
        for number in ALL:
            node = self.node(number)
            if node.broker is not None and node.disk.fault is not None:
                node.kill(is_power_cut=False)
            node.disk.fault = None
            if node.broker is None:
                node.start()
        self.cluster.run_until(lambda: not self.jbod.fenced, 60_000)
        self.cluster.run(10_000)
        offline = 0
        for index in range(PARTITIONS):
            leader = int(self.jbod.partition(index).leader)
            offline += leader < 0
            if leader >= 0:
                values = self.cluster.values(leader, "t", index)
                assert self.acked[index] <= set(values), f"partition {index} on {leader}"
                assert set(self.jbod.partition(index).isr) == {*ALL}
                for node in ALL:
                    assert self.cluster.values(node, "t", index) == values
        return offline


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 100))]
)
def test_a_partition_with_a_leader_has_every_acknowledged_record(seed: int) -> None:
    history = Histories(seed)
    for _ in range(STEPS):
        history.step()
    history.end()
