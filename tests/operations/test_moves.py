"""Why a replica is where it is, and a plan that is executed in waves by a cluster in memory."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import pytest

from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.admin.cluster import Node, Reassignment
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.client.admin.storage import LogDir, ReplicaSize
from sparklog.client.admin.topics import Partition
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import LeaderEpoch, NodeId, TopicPartition
from sparklog_server.operations.balance import PlannedMove
from sparklog_server.operations.moves import (
    ClusterFacts,
    Progress,
    Remaining,
    behind_of,
    cancel,
    execute,
    leading_on,
    reassigning,
    remaining_on,
)

AT = TopicPartition("t", 0)
MB = 1_000_000


def nodes_of(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, numbers))


def facts(
    replicas: Sequence[int],
    *,
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
    nodes: Sequence[int] = (1, 2, 3, 4),
    down: Sequence[int] = (),
    states: Mapping[int, str] | None = None,
    sizes: Mapping[int, int] | None = None,
) -> ClusterFacts:
    """A cluster with one partition."""
    in_sync = nodes_of(*(replicas if isr is None else isr))
    first = NodeId((in_sync[0] if in_sync else -1) if leader is None else leader)
    partition = Partition(0, first, LeaderEpoch(0), nodes_of(*replicas), in_sync)
    moving = Reassignment(nodes_of(*replicas), nodes_of(*adding), nodes_of(*removing))
    return ClusterFacts(
        tuple(Node(NodeId(node), "h", 9000 + node, is_fenced=node in down) for node in nodes),
        {NodeId(node): state for node, state in (states or {}).items()},
        {AT: partition},
        {AT: moving} if adding or removing else {},
        {(NodeId(node), AT): size for node, size in (sizes or {}).items()},
    )


@pytest.mark.parametrize(
    ("cluster", "reason", "is_stuck"),
    [
        (facts([1, 2, 3]), "it waits for its turn", False),
        (
            facts([1, 2, 3], nodes=[1, 2, 3]),
            "no room elsewhere: a replication factor of 3 needs 3 open nodes besides it, and there are 2",
            True,
        ),
        (
            facts([1], states={2: "cordoned", 3: "drained"}, down=[4]),
            "no room elsewhere: a replication factor of 1 needs 1 open node besides it, and there are 0",
            True,
        ),
        (
            facts([1, 2, 4], isr=[1, 2], adding=[4], removing=[1], sizes={1: 40 * MB, 4: 28 * MB}),
            "a new replica has not caught up: node 4 is 12 MB behind",
            False,
        ),
        (
            facts([1, 2, 4], isr=[1, 2], adding=[4], removing=[1], down=[4]),
            "a new replica has not caught up: node 4 is down",
            True,
        ),
        (
            facts([1, 4], isr=[], adding=[4], removing=[1], down=[1]),
            "it has no leader to copy from: node 1 is down",
            True,
        ),
        (
            facts([1, 2], isr=[1], removing=[1], sizes={1: 3 * MB}),
            "a replica that stays is not in sync: node 2 is 3 MB behind",
            False,
        ),
        (facts([1, 2], removing=[1]), "it is about to end", False),
        (
            facts([1, 2, 4], isr=[1, 2], adding=[4], removing=[2]),
            "another reassignment of it is in progress: it comes next",
            False,
        ),
        (
            facts([9, 1, 4], isr=[], adding=[4], removing=[1, 9], leader=-1, down=[1]),
            "it has no leader to copy from: node 9 is not registered, node 1 is down",
            True,
        ),
    ],
)
def test_a_replica_that_is_to_go_has_a_reason_to_be_there(
    cluster: ClusterFacts, reason: str, *, is_stuck: bool
) -> None:
    assert remaining_on(cluster, NodeId(1)) == [Remaining(AT, reason, is_stuck)]


@pytest.mark.parametrize(
    ("cluster", "reason", "is_stuck"),
    [
        (facts([1]), "it has no other replica", True),
        (facts([1, 2]), "its leadership is about to move", False),
        (
            facts([1, 2, 3], isr=[1], down=[3], sizes={1: 9 * MB, 2: MB}),
            "no other replica is in sync: node 2 is 8 MB behind, node 3 is down",
            False,
        ),
        (facts([1, 2], isr=[1], down=[2]), "no other replica is in sync: node 2 is down", True),
    ],
)
def test_a_leadership_that_is_to_go_has_a_reason_to_be_there(
    cluster: ClusterFacts, reason: str, *, is_stuck: bool
) -> None:
    assert leading_on(cluster, NodeId(1)) == [Remaining(AT, reason, is_stuck)]


def test_a_node_without_replicas_has_nothing_left() -> None:
    assert remaining_on(facts([1, 2]), NodeId(3)) == leading_on(facts([1, 2]), NodeId(2)) == []


def test_a_reassignment_is_behind_by_the_bytes_that_its_new_replicas_lack() -> None:
    moving = facts([1, 3, 4], isr=[1, 3], adding=[3, 4], removing=[1], sizes={1: 10 * MB, 4: 4 * MB})
    assert behind_of(moving, AT) == 6 * MB
    assert reassigning(moving) == [
        Remaining(AT, "a new replica has not caught up: node 4 is 6 MB behind", is_stuck=False)
    ]


class ClusterInMemory:
    """Reassignments that end when the test says so, with the requests in their order."""

    def __init__(self, refused: Iterable[TopicPartition] = ()) -> None:
        self.moving: dict[TopicPartition, Sequence[int] | None] = {}
        self.asked: list[object] = []
        self.sizes: dict[tuple[int, TopicPartition], int] = {}
        self._refused = frozenset(refused)

    def alter_reassignments(self, moves: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        self.asked.append(sorted(at.partition for at in moves))
        errors = {
            at: BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, str(at))
            for at in moves
            if at in self._refused
        }
        self.moving |= {at: replicas for at, replicas in moves.items() if at not in errors}
        if errors:
            raise ItemsFailed(errors, {})

    def list_reassignments(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        found = self.moving if partitions is None else [at for at in partitions if at in self.moving]
        return {at: Reassignment((), (), ()) for at in found}

    def alter_configs(self, changes: Mapping[ConfigResource, Sequence[ConfigChange]]) -> None:
        self.asked.extend(f"{one.name}={one.value}" for own in changes.values() for one in own)

    def describe_log_dirs(
        self, nodes: Sequence[NodeId], *, partitions: Sequence[TopicPartition]
    ) -> dict[NodeId, tuple[LogDir, ...]]:
        return {
            node: (
                LogDir(
                    node,
                    "/d",
                    None,
                    -1,
                    -1,
                    {
                        at: ReplicaSize(size, 0, is_future=False)
                        for (of, at), size in self.sizes.items()
                        if of == node and at in partitions
                    },
                ),
            )
            for node in nodes
        }


def plan(count: int, *, size: int = 100) -> list[PlannedMove]:
    return [
        PlannedMove(TopicPartition("t", number), nodes_of(1), nodes_of(4), size) for number in range(count)
    ]


def test_a_plan_is_executed_in_waves_and_the_throttle_follows_each() -> None:
    cluster = ClusterInMemory()

    def slept(_: float) -> None:
        cluster.moving.pop(min(cluster.moving))

    told = [
        (len(one.moving), one.waiting, one.done)
        for one in execute(cast(Admin, cluster), plan(3), sleep=slept, throttle=5_000_000, concurrent_max=2)
    ]
    assert told == [(2, 1, 0), (2, 0, 1), (1, 0, 2), (0, 0, 3)]
    rate = "sparklog.reassignment.throttled.rate=5000000"
    assert cluster.asked == [[0, 1], rate, [2], rate]


def test_a_partition_that_is_refused_is_left_out_and_reported() -> None:
    refused = TopicPartition("t", 1)
    cluster = ClusterInMemory([refused])

    def slept(_: float) -> None:
        cluster.moving.clear()

    *_, last = execute(cast(Admin, cluster), plan(2), sleep=slept, throttle=1)
    assert (last.done, last.moving, last.waiting, list(last.refused)) == (1, (), 0, [refused])


def test_a_plan_of_refusals_ends_at_once_and_throttles_nothing() -> None:
    cluster = ClusterInMemory([one.at for one in plan(3)])
    told = [*execute(cast(Admin, cluster), plan(3), sleep=pytest.fail, throttle=1, concurrent_max=1)]
    assert (len(told), told[-1].done, len(told[-1].refused)) == (3, 0, 3)
    assert cluster.asked == [[0], [1], [2]]


def test_nothing_is_asked_for_an_empty_plan() -> None:
    cluster = ClusterInMemory()
    assert [*execute(cast(Admin, cluster), [], sleep=pytest.fail)] == [Progress(0, (), 0, 0, {})]
    assert cluster.asked == []


def test_bytes_are_left_that_the_new_replicas_lack() -> None:
    cluster = ClusterInMemory()
    looks = execute(cast(Admin, cluster), plan(2), sleep=lambda _: None, concurrent_max=1)
    assert next(looks).bytes_left == 200
    cluster.sizes[4, TopicPartition("t", 0)] = 70
    assert next(looks).bytes_left == 130


def test_all_that_moves_is_cancelled_or_what_is_named() -> None:
    cluster = ClusterInMemory()
    next(execute(cast(Admin, cluster), plan(3), sleep=pytest.fail))
    assert cancel(cast(Admin, cluster), [TopicPartition("t", 2)]) == {TopicPartition("t", 2): None}
    assert cancel(cast(Admin, cluster)) == {TopicPartition("t", number): None for number in range(3)}
