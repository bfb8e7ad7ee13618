"""A rolling restart: one node after the other, the active controller last, each once the cluster is whole.

    healthy? ─► stop and start a node ─► in service? ─► in sync? ─► give its leaderships back ─► next node
                                          └── no: wait, and say for what ── too long: end, and say for what

The active controller comes last, so that it is elected once. A node that has just returned is not taken for
whole by metadata of the time before it stopped: every node must have caught up with what the controller had
written when the node was ready.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.cluster import Cluster, Quorum
from sparklog.client.admin.topics import Partition
from sparklog.errors import SparklogError
from sparklog.model import NodeId, TopicPartition

LOOK_EVERY_S: Final = 0.1
ELECTION_S: Final = 10.0
"""For how long leaderships are asked back; a drained node gets none."""
SILENT_MS: Final = 3_000
"""A voter that the leader has not heard for this long is taken for down; a live one fetches every 500 ms."""
_SHOWN_MAX: Final = 3


class Facts(NamedTuple):
    """A look at a cluster. `adding` are the replicas of reassignments, which are not in sync yet."""

    cluster: Cluster
    partitions: Mapping[TopicPartition, Partition]
    quorum: Quorum
    adding: frozenset[tuple[TopicPartition, NodeId]]

    @property
    def fenced(self) -> frozenset[NodeId]:
        """The registered brokers that are not in service."""
        return frozenset(one.node_id for one in self.cluster.nodes if one.is_fenced)

    @property
    def now_ms(self) -> int:
        """The clock of the quorum's leader, in ms of Unix time; -1 if it does not tell it."""
        return next(
            (one.last_fetch_ms for one in self.quorum.voters if one.node_id == self.quorum.leader), -1
        )

    def lacking(self) -> list[tuple[TopicPartition, NodeId]]:
        """The replicas of brokers in service that are not in sync."""
        in_service = {one.node_id for one in self.cluster.nodes if not one.is_fenced}
        return [
            (at, node)
            for at, partition in sorted(self.partitions.items())
            for node in partition.replicas
            if node in in_service and node not in partition.isr and (at, node) not in self.adding
        ]


def facts_of(admin: Admin) -> Facts:
    """Ask the cluster. Raises SparklogError if it does not answer, or the quorum has no leader."""
    quorum = admin.describe_quorum()
    topics = admin.list_topics(include_internal=True).values()
    return Facts(
        admin.describe_cluster(include_fenced=True),
        {TopicPartition(topic.name, one.partition): one for topic in topics for one in topic.partitions},
        quorum,
        frozenset((at, node) for at, moving in admin.list_reassignments().items() for node in moving.adding),
    )


class Faults(NamedTuple):
    """What is not whole in a cluster: brokers out of service, voters that do not follow, partitions without a
    leader, replicas that are not in sync.
    """

    fenced: frozenset[NodeId]
    behind: frozenset[NodeId]
    leaderless: frozenset[TopicPartition]
    lacking: frozenset[tuple[TopicPartition, NodeId]]

    def without(self, known: "Faults") -> "Faults":
        """Those that are not known."""
        return Faults(
            self.fenced - known.fenced,
            self.behind - known.behind,
            self.leaderless - known.leaderless,
            self.lacking - known.lacking,
        )

    def reasons(self) -> list[str]:
        """Each kind in one line."""
        found = [f"node {node} is not in service: it is fenced" for node in sorted(self.fenced)]
        found += [f"node {node} is behind in the metadata log" for node in sorted(self.behind - self.fenced)]
        if self.leaderless:
            found.append(f"{_counted(self.leaderless, 'no leader')}: {names_of(sorted(self.leaderless))}")
        if self.lacking:
            partitions = sorted({at for at, _ in self.lacking})
            nodes = sorted({node for _, node in self.lacking})
            where = f"node{'s' * (len(nodes) > 1)} {', '.join(map(str, nodes))}"
            what = f"a replica on {where} that is not in sync"
            found.append(f"{_counted(partitions, what)}: {names_of(partitions)}")
        return found


def _counted(partitions: Collection[TopicPartition], what: str) -> str:
    return f"1 partition has {what}" if len(partitions) == 1 else f"{len(partitions)} partitions have {what}"


def names_of(partitions: Sequence[TopicPartition]) -> str:
    """The first partitions, and how many more there are."""
    shown = [f"{at.topic}:{at.partition}" for at in partitions[:_SHOWN_MAX]]
    more = len(partitions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


NO_FAULTS: Final = Faults(frozenset(), frozenset(), frozenset(), frozenset())


def faults_of(facts: Facts, *, since_ms: int | None = None) -> Faults:
    """The faults of a cluster. Every voter and broker must have caught up with the metadata log since that
    moment by the clock of the quorum's leader; by default, it has fetched lately.
    """
    in_service = {one.node_id for one in facts.cluster.nodes if not one.is_fenced}
    least_ms = facts.now_ms - SILENT_MS if since_ms is None else since_ms
    voters = {one.node_id for one in facts.quorum.voters}
    behind = [
        one.node_id
        for one in (*facts.quorum.voters, *facts.quorum.observers)
        if one.node_id != facts.quorum.leader
        and (one.node_id in in_service or one.node_id in voters)
        and one.last_caught_up_ms < least_ms
    ]
    return Faults(
        facts.fenced,
        frozenset(behind),
        frozenset(at for at, one in facts.partitions.items() if one.leader < 0),
        frozenset(facts.lacking()),
    )


def alone_on(facts: Facts, nodes: Collection[int]) -> list[TopicPartition]:
    """The partitions whose only replica is on one of these nodes: they are offline while it restarts."""
    return [
        at
        for at, one in sorted(facts.partitions.items())
        if len(one.replicas) == 1 and one.replicas[0] in nodes
    ]


class ProcessState(Protocol):
    """The process of a node: how often it was started, and whether it accepts clients."""

    @property
    def pid(self) -> int: ...
    @property
    def starts(self) -> int: ...
    @property
    def is_ready(self) -> bool: ...


class Restarting(Protocol):
    """What restarts nodes."""

    def processes(self) -> Mapping[int, ProcessState]:
        """The processes by node id."""

    def restart(self, node: int) -> None:
        """Stop the node by its controlled shutdown, and start it; returns at once. Raises SparklogError."""


class Step(NamedTuple):
    """What happened to a node, or, if it waits, what for."""

    node: int
    text: str
    is_wait: bool = False


class RestartStopped(SparklogError):
    """A node has not returned in time; those after it were not restarted."""


class RollingRestart:
    """`known` faults are not waited for; a node has `timeout_s` to come back whole."""

    def __init__(
        self,
        admin: Admin,
        restarting: Restarting,
        *,
        known: Faults,
        timeout_s: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._admin = admin
        self._restarting = restarting
        self._known = known
        self._timeout_s = timeout_s
        self._clock = clock
        self._sleep = sleep
        self._facts = facts_of(admin)

    def steps(self, nodes: Iterable[int]) -> Iterator[Step]:
        """Restart the nodes, and yield each step and each reason to wait. Raises RestartStopped."""
        waiting = sorted(nodes)
        while waiting:
            began_s = self._clock()
            controller = self._facts.quorum.leader
            node = next((one for one in waiting if one != controller), waiting[0])
            waiting.remove(node)
            yield from self._wait(node, self._cluster_waits, began_s, waiting)
            led = [at for at, one in self._facts.partitions.items() if one.leader == node]
            before = self._restarting.processes()[node]
            leaderships = "1 leadership" if len(led) == 1 else f"{len(led)} leaderships"
            yield Step(node, f"hands over {leaderships} and stops (pid {before.pid})")
            self._restarting.restart(node)
            yield from self._wait(node, partial(self._process_waits, node, before), began_s, waiting)
            self._facts = yield from self._look(node, began_s, waiting)
            since_ms = self._facts.now_ms
            yield from self._wait(node, partial(self._cluster_waits, since_ms=since_ms), began_s, waiting)
            electing_s = self._clock() + ELECTION_S
            while (away := self._away(node, led)) and self._clock() < electing_s:
                with suppress(SparklogError):  # a drained node; or the controller has just been elected
                    self._admin.elect_leaders(away)
                self._sleep(LOOK_EVERY_S)
                self._facts = yield from self._look(node, began_s, waiting)
            yield Step(
                node,
                f"is in service (pid {self._restarting.processes()[node].pid}) after "
                f"{self._clock() - began_s:.1f} s: every replica is in sync, {len(led) - len(away)} of "
                f"{leaderships} back",
            )

    def _wait(
        self, node: int, waits: Callable[[], str], began_s: float, rest: Sequence[int]
    ) -> Iterator[Step]:
        """Look again and again, until there is no reason to wait."""
        while reason := waits():
            if self._clock() - began_s > self._timeout_s:
                others = f"; not restarted: {', '.join(map(str, rest))}" if rest else ""
                raise RestartStopped(
                    f"gave up on node {node} after {self._timeout_s:.0f} s: {reason}{others}"
                )
            yield Step(node, reason, is_wait=True)
            self._sleep(LOOK_EVERY_S)

    def _look(self, node: int, began_s: float, rest: Sequence[int]) -> Generator[Step, None, Facts]:
        """The cluster, once it answers."""
        found: list[Facts] = []

        def waits() -> str:
            try:
                found.append(facts_of(self._admin))
            except SparklogError as error:
                return f"the cluster does not answer: {error}"
            return ""

        yield from self._wait(node, waits, began_s, rest)
        return found[0]

    def _process_waits(self, node: int, before: ProcessState) -> str:
        """Why a process that was to be restarted does not serve yet."""
        after = self._restarting.processes()[node]
        if after.starts == before.starts:
            return "it shuts down"
        if after.is_ready:
            return ""
        is_first = after.starts == before.starts + 1
        return "it starts" if is_first else "it ended, and starts again: see its log"

    def _cluster_waits(self, *, since_ms: int | None = None) -> str:
        """What the cluster lacks."""
        try:
            self._facts = facts_of(self._admin)
        except SparklogError as error:
            return f"the cluster does not answer: {error}"
        faults = faults_of(self._facts, since_ms=since_ms).without(self._known)
        # A node is behind for up to 500 ms, until its next fetch: what takes longer is worth telling.
        others = faults._replace(behind=frozenset()).reasons()
        return "; ".join(others or faults.reasons())

    def _away(self, node: int, led: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that the node led, may lead again as their preferred replica, and does not."""
        return [
            at
            for at in led
            if (one := self._facts.partitions.get(at)) is not None
            and one.replicas[0] == node
            and node in one.isr
            and one.leader != node
        ]
