"""What an operator does to a cluster in use: nodes are added, emptied, forgotten, restarted, and get empty
disks; replicas move. Each step returns once the cluster has done what was asked for, and names the nodes or
partitions that it took.
"""

import random
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from sparklog import Admin
from sparklog.client.admin.admin import ItemsFailed
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.client.admin.topics import Partition
from sparklog.errors import SparklogError
from sparklog.model import TopicPartition
from sparklog_server.cli.main import main
from sparklog_server.operations.moves import cancel, set_throttle
from tests.daemon.voter_nodes import VoterNodes

PATIENCE_S: Final = 120.0
RATE, SLOW_RATE = 4_000_000, 1_000_000
"""Of the throttles of moves, in bytes a second: with the slow one, kills meet moves half way."""
COLD: Final = "cold"
"""A topic of five megabytes for each partition, which is not written any more."""
SHUFFLED, SHUFFLED_COLD = 4, 2
CANCELLED_SHARE: Final = 0.3
MOVING_S: Final = (0.0, 4.0)
FACTORS: Final = (3, 3, 4)
MIN_INSYNC: Final = "min.insync.replicas"


@dataclass
class Operated:
    """The nodes; who holds `away` may stop one of them."""

    nodes: VoterNodes
    draw: random.Random
    away: threading.RLock = field(default_factory=threading.RLock)

    @property
    def servers(self) -> str:
        """The addresses of all nodes, also of those that do not run."""
        return ",".join(f"127.0.0.1:{port}" for port in self.nodes.broker_ports.values())

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.servers)

    def start(self, *nodes: int) -> None:
        """Start nodes; none is killed before it serves clients."""
        for node in nodes:
            with self.away:
                self.nodes.start(node)

    def command(self, *words: str, unless: Callable[[], bool] = lambda: False) -> None:
        """Run a command until it exits with 0, for a node that it waits for may be down; or until nothing is
        left to do for it.
        """
        until_s = time.monotonic() + PATIENCE_S
        while main([*words, "--bootstrap-server", self.servers]) != 0 and not unless():
            if time.monotonic() > until_s:
                raise RuntimeError(f"`sparklog {' '.join(words)}` failed for {PATIENCE_S:.0f} s")
            time.sleep(0.5)

    def until(self, what: str, claim: Callable[[Admin], bool]) -> None:
        """Wait until a claim holds."""
        until_s = time.monotonic() + PATIENCE_S
        with self.admin() as admin:
            while not claim(admin):
                if time.monotonic() > until_s:
                    raise RuntimeError(f"not within {PATIENCE_S:.0f} s: {what}")
                time.sleep(0.1)

    def settles(self) -> None:
        """Wait until no partition is being reassigned and every replica is in sync."""
        self.until("every replica is in sync", lambda admin: not unsettled(admin))

    def votes(self, *nodes: int) -> None:
        """Wait until these are the voters."""
        self.until(
            f"the voters are {nodes}",
            lambda admin: {one.node_id for one in admin.describe_quorum().voters} == set(nodes),
        )

    def registered(self) -> set[int]:
        with self.admin() as admin:
            return {one.node_id for one in admin.describe_cluster(include_fenced=True).nodes}

    def any(self) -> int:
        return self.draw.choice(self.nodes.started)


def partitions_of(admin: Admin) -> Mapping[TopicPartition, Partition]:
    """Every partition, those of internal topics too."""
    topics = admin.list_topics(include_internal=True).values()
    return {TopicPartition(topic.name, one.partition): one for topic in topics for one in topic.partitions}


def unsettled(admin: Admin) -> list[str]:
    """The partitions that have no leader, lack a replica in sync, or are being reassigned."""
    moving = admin.list_partition_reassignments()
    return [
        f"{at}: leader {one.leader}, replicas {one.replicas}, in sync {one.isr}, {moving.get(at)}"
        for at, one in partitions_of(admin).items()
        if one.leader < 0 or set(one.isr) != set(one.replicas) or at in moving
    ]


def grow_to_three(operated: Operated) -> str:
    """Add two nodes, and give every topic three replicas, of which two have to be in sync."""
    operated.start(2, 3)
    operated.votes(1, 2, 3)
    operated.command("cluster", "grow", "--all-topics", "--execute", "--yes", "--throttle", f"{RATE}")
    with operated.admin() as admin:
        topics = admin.list_topics(include_internal=True)
        change = [ConfigChange(MIN_INSYNC, "2")]
        admin.alter_configs({ConfigResource("topic", name): change for name in topics})
    operated.settles()
    return "2,3"


def grow_to_five(operated: Operated) -> str:
    operated.start(4, 5)
    operated.votes(1, 2, 3, 4, 5)
    balance(operated)
    return "4,5"


def balance(operated: Operated) -> str:
    operated.command("partitions", "balance", "--execute", "--yes", "--throttle", f"{RATE}")
    return "all"


def shuffle(operated: Operated) -> str:
    """Move partitions to random nodes, some with another replication factor; take some of it back."""
    draw = operated.draw
    with operated.admin() as admin:
        known = sorted(partitions_of(admin))
        chosen = draw.sample([at for at in known if at.topic == COLD], SHUFFLED_COLD)
        chosen += draw.sample([at for at in known if at.topic != COLD], SHUFFLED)
        moves = {at: draw.sample(operated.nodes.started, draw.choice(FACTORS)) for at in chosen}
        admin.alter_partition_reassignments(moves)
        set_throttle(admin, SLOW_RATE)
        if draw.random() < CANCELLED_SHARE:
            time.sleep(draw.uniform(*MOVING_S))
            cancel(admin, chosen)
    operated.until("no partition is reassigned", lambda admin: not admin.list_partition_reassignments())
    return ",".join(f"{at.topic}-{at.partition}" for at in moves)


def drain(operated: Operated) -> str:
    """Take the leaderships from a node, and let it have them again."""
    node = operated.any()
    operated.command("cluster", "drain", f"{node}")
    operated.command("cluster", "activate", f"{node}")
    return f"{node}"


def decommission(operated: Operated) -> str:
    """Empty a node, and let the cluster forget it; then add it with an empty directory."""
    node = operated.any()
    operated.command("cluster", "decommission", f"{node}")
    with operated.away:
        operated.nodes.stop(node)
        # It may have been killed, forgotten, and started again since it was empty.
        if node in operated.registered():
            operated.command(
                *("cluster", "decommission", f"{node}"), unless=lambda: node not in operated.registered()
            )
        operated.until("the node is forgotten", lambda _: node not in operated.registered())
        with operated.admin() as admin:
            voters = {one.node_id for one in admin.describe_quorum().voters}
        if node in voters:
            operated.command("quorum", "remove-voter", f"{node}")
        held = sorted(found.name for found in operated.nodes.directory(node).glob("*-[0-9]*"))
        if [name for name in held if not name.startswith("__cluster_metadata")]:
            raise RuntimeError(f"node {node} was forgotten with {held}")
        shutil.rmtree(operated.nodes.directory(node))
        operated.nodes.format(node)
        operated.nodes.start(node)
    operated.votes(1, 2, 3, 4, 5)
    balance(operated)
    return f"{node}"


def replace_disk(operated: Operated) -> str:
    """Kill a node, and start it with an empty directory, while all else is in sync."""
    with operated.away:
        operated.settles()
        node = operated.any()
        before = operated.nodes.directories()[node]
        operated.nodes.lose_disk(node)
    operated.until(
        "the new directory votes",
        lambda admin: any(
            one.node_id == node and one.directory_id != before for one in admin.describe_quorum().voters
        ),
    )
    operated.votes(1, 2, 3, 4, 5)
    return f"{node}"


def restart_each(operated: Operated) -> str:
    """Restart one node after the other, each once all is in sync."""
    for node in operated.nodes.started:
        operated.settles()
        with operated.away:
            operated.nodes.stop(node)
            operated.nodes.start(node)
    return "each"


STEPS: Final = (shuffle, drain, shuffle, decommission, shuffle, replace_disk, shuffle, restart_each, balance)


def victims(operated: Operated, draw: random.Random) -> tuple[str, set[int]]:
    """The nodes to kill: the active controller, the source or the target of a move or both, or any node."""
    role = draw.choice(["controller", "source", "target", "both"])
    with suppress(SparklogError, ItemsFailed), operated.admin() as admin:
        if role == "controller":
            return role, {admin.describe_quorum().leader}
        moving = admin.list_partition_reassignments()
        for at in draw.sample(sorted(moving), len(moving)):
            leader = admin.describe_topics([at.topic])[at.topic].partitions[at.partition].leader
            if leader >= 0 and moving[at].adding:
                target = draw.choice(moving[at].adding)
                return role, {"source": {leader}, "target": {target}, "both": {leader, target}}[role]
    return "any", {draw.choice(operated.nodes.started)}
