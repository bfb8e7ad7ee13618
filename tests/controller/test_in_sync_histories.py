"""Random histories of brokers and partitions: the rules of the ISR, of the eligible leader replicas (KIP-966)
and of elections hold after each decision.

A model knows which replicas hold every committed record: a commit takes it from all that are not in sync, an
unclean stop from the broker, and an unclean election leaves the leader alone.
"""

from random import Random

import pytest

from sparklog.model import NodeId, TopicPartition, Uuid
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.records import PartitionChangeRecord
from tests.controller.world import World

NODES, STEPS = 4, 200
TOPICS = {"t": "1,2,3;2,3,4;3,4,1;4,1,2", "pair": "1,2;3,4", "lone": "1;2"}


class History:
    """A cluster of four brokers with two directories each, and what its replicas hold."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World()
        self.lines: list[str] = []
        self.lives = 0
        self.failed: dict[int, set[str]] = {node: set() for node in range(1, NODES + 1)}
        self.leaving: set[int] = set()
        self.min_isr = dict.fromkeys(TOPICS, 2)
        self.may_be_unclean = dict.fromkeys(TOPICS, False)
        self.full: dict[TopicPartition, set[int]] = {}
        for node in range(1, NODES + 1):
            self.run(self.registration(node))
            self.run(f"heartbeat {node}")
        for topic, assignment in TOPICS.items():
            self.run(f"create {topic} assign={assignment} config.min.insync.replicas=2")
        self.full = {at: set(one.isr) for at, one in self.partitions().items()}

    def run(self, line: str) -> None:
        self.lines.append(line)
        before, count = self.partitions(), len(self.world.appended)
        self.world.run(line)
        for record in self.world.appended[count:]:
            if isinstance(record, PartitionChangeRecord):
                self.changed(record, before)
        self.check()

    def partitions(self) -> dict[TopicPartition, PartitionImage]:
        return {
            TopicPartition(topic.name, index): partition
            for topic in self.world.controller.pending.topics_by_name.values()
            for index, partition in enumerate(topic.partitions)
        }

    def registration(self, node: int) -> str:
        self.lives += 1
        letters = "ABCDEFGHI"[2 * node - 2 : 2 * node]
        return f"register {node} life={chr(self.lives % 1000 + 33)} dirs={letters}"

    # -- the model

    def changed(self, record: PartitionChangeRecord, before: dict[TopicPartition, PartitionImage]) -> None:
        """A partition has changed: what its replicas hold from now on."""
        topic = self.world.controller.pending.topics_by_id[Uuid(record.topic_id)]
        at = TopicPartition(topic.name, record.partition_id)
        was, full = before[at], self.full[at]
        valid = set(was.isr) | set(was.eligible_leader_replicas)
        if record.leader >= 0 and record.leader not in valid:
            is_last = not valid & full and was.last_known_elr == (record.leader,)
            assert self.may_be_unclean[at.topic] or is_last, self.told(at)
            assert record.leader_recovery_state == 1 or was.is_recovering, self.told(at)
            self.full[at] = {record.leader}
        else:
            assert record.leader < 0 or record.leader in full, self.told(at)
            if not self.lines[-1].startswith("register"):  # an unclean stop is the only other loss
                now = self.partitions()[at]
                min_isr = min(self.min_isr[at.topic], len(now.replicas))
                eligible = set(now.isr) | set(now.eligible_leader_replicas)
                assert len(eligible) >= min(min_isr, len(valid)), self.told(at)
        if self.lines[-1].startswith("alter-isr"):
            full |= set(record.isr or ())

    def check(self) -> None:
        image = self.world.controller.pending
        for at, one in self.partitions().items():
            isr, eligible = set(one.isr), set(one.eligible_leader_replicas)
            assert (one.leader in isr) if isr else one.leader == -1, self.told(at)
            assert isr | eligible <= set(one.replicas), self.told(at)
            assert not isr & eligible, self.told(at)
            assert not eligible or len(isr) < min(self.min_isr[at.topic], len(one.replicas)), self.told(at)
            assert len(one.last_known_elr) <= (one.leader == -1), self.told(at)
            for node in isr:
                broker = image.brokers.get(node)
                assert broker is not None, self.told(at)
                assert broker.is_active, self.told(at)
                assert one.directory_of(node) in broker.directories, self.told(at)
            if at in self.full:
                assert isr | eligible <= self.full[at], self.told(at)

    def told(self, at: TopicPartition) -> str:
        return "\n".join([*self.lines, f"{at}: {self.partitions()[at]}", f"full: {self.full.get(at)}"])

    # -- events

    def step(self) -> None:
        event = self.random.choices(
            (self.commit, self.alter, self.beat, self.restart, self.administer, self.lead),
            (30, 25, 20, 15, 9, 1),
        )[0]
        event()

    def commit(self) -> None:
        """A record is committed wherever enough replicas are in sync."""
        for at, one in self.partitions().items():
            if one.leader >= 0 and len(one.isr) >= min(self.min_isr[at.topic], len(one.replicas)):
                self.full[at] &= set(one.isr)

    def alter(self) -> None:
        at, one = self.random.choice(list(self.partitions().items()))
        if one.leader < 0:
            return
        others = [node for node in one.replicas if node != one.leader and self.random.random() < 0.7]
        self.run(f"alter-isr {one.leader} {at}={','.join(map(str, [one.leader, *others]))}")

    def beat(self) -> None:
        node = self.random.randint(1, NODES)
        how = self.random.random()
        if how < 0.1 and not self.failed[node] and NodeId(node) in self.world.controller.pending.brokers:
            letter = self.random.choice("ABCDEFGHI"[2 * node - 2 : 2 * node])
            self.failed[node].add(letter)
            self.run(f"heartbeat {node} offline={letter}")
        elif how < 0.3 or node in self.leaving:
            self.leaving.add(node)
            self.run(f"heartbeat {node} want-shut-down")
        else:
            self.run(f"heartbeat {node}{' want-fence' * (how < 0.5)}")

    def restart(self) -> None:
        node = self.random.randint(1, NODES)
        is_clean = self.random.random() < 0.5
        if self.random.random() < 0.1:
            self.run(f"heartbeat {node} want-fence")
            self.run(f"unregister {node}")
        is_known = NodeId(node) in self.world.controller.pending.brokers
        if not (is_clean and is_known and not self.failed[node]):
            for full in self.full.values():
                full.discard(node)
        self.failed[node].clear()
        self.leaving.discard(node)
        self.run(self.registration(node) + " stopped-cleanly" * is_clean)

    def administer(self) -> None:
        topic = self.random.choice(list(TOPICS))
        what = self.random.randint(0, 4)
        if what == 0:
            self.min_isr[topic] = self.random.randint(1, 3)
            self.run(f"config {topic} min.insync.replicas={self.min_isr[topic]}")
        elif what == 1:
            self.may_be_unclean[topic] = self.random.random() < 0.3
            self.run(
                f"config {topic} unclean.leader.election.enable={str(self.may_be_unclean[topic]).lower()}"
            )
        elif what == 2:
            self.run(f"elect preferred {topic}-0")
        else:
            self.run(f"advance {self.random.choice((1, 5, 20))}")

    def lead(self) -> None:
        self.run("lead")


@pytest.mark.parametrize("seed", range(30))
def test_the_rules_of_the_isr_hold_in_every_history(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
