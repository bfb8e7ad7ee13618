"""The plan of `sparklog partitions balance`: which replicas move so that each node has its share of bytes,
replicas and leaderships, and no rack has two replicas of a partition without need.

    nodes that are gone ──► racks ──► from the fullest node to the emptiest ──► leaders reordered

The plan is a pure function of what the cluster says, and each run plans the rest: nothing has to survive the
process that executes it. A replica moves at most once in a plan. A node that takes no new replicas neither
gets nor gives any: emptying it is the controller's work (`sparklog.broker.state`).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sparklog.model import NodeId, TopicPartition

TOLERANCE: Final = 0.1
"""Two nodes count as equal whose shares of bytes and replicas differ by less than this part, on average."""
_WORTH: Final = 0.75
"""A replica moves if it has at most this part of what its node has more than the other: a larger one would
make the other the fuller one, at a price.
"""
_TRIED_MAX: Final = 200
"""The replicas of a node that are looked at for one move."""


class BalancedNode(NamedTuple):
    """A node that may have replicas; `takes_replicas` unless it is fenced or has a state of its own."""

    node_id: NodeId
    rack: str | None
    takes_replicas: bool = True


class PlacedPartition(NamedTuple):
    """A partition with its replicas, the preferred leader first, and the bytes of each of them."""

    at: TopicPartition
    replicas: tuple[NodeId, ...]
    bytes: int


class PlannedMove(NamedTuple):
    """A partition that gets other replicas, or another order of them; `bytes` are those to be copied."""

    at: TopicPartition
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    bytes: int

    @property
    def added(self) -> tuple[NodeId, ...]:
        """The nodes that get a replica."""
        return tuple([node for node in self.after if node not in self.before])


class NodeLoad(NamedTuple):
    """What a node has: bytes, replicas, and partitions of which it is the preferred leader."""

    bytes: int
    replicas: int
    leaders: int


def loads_of(
    nodes: Iterable[BalancedNode], partitions: Iterable[tuple[tuple[NodeId, ...], int]]
) -> dict[NodeId, NodeLoad]:
    """The load of each node with partitions of these replicas and bytes."""
    size, count, leaders = Counter[NodeId](), Counter[NodeId](), Counter[NodeId]()
    for replicas, length in partitions:
        leaders[replicas[0]] += 1
        for node in replicas:
            size[node] += length
            count[node] += 1
    return {
        one.node_id: NodeLoad(size[one.node_id], count[one.node_id], leaders[one.node_id]) for one in nodes
    }


def planned(
    nodes: Iterable[BalancedNode], partitions: Iterable[PlacedPartition], tolerance: float = TOLERANCE
) -> list[PlannedMove]:
    """The moves that balance these partitions over these nodes, in their order; none if all is well."""
    found = _Plan([*nodes], [*partitions], tolerance)
    if found.able:
        found.replace_gone()
        found.spread_over_racks()
        found.level()
        found.spread_leaders()
    return found.moves()


def resized(
    nodes: Iterable[BalancedNode],
    partitions: Iterable[PlacedPartition],
    factors: Mapping[TopicPartition, int],
    *,
    is_balanced: bool = False,
) -> list[PlannedMove]:
    """The moves that give partitions as many replicas as `factors` has for them; if `is_balanced`, also those
    that balance all partitions afterwards, each partition at most once.

    A new replica goes to a rack without one of the partition if there is one, and there to the node with the
    least load. Replicas on nodes that take none are removed first, then those that share a rack; never the
    first of the replicas. A partition gets fewer where the nodes do not suffice.
    """
    found = _Plan([*nodes], [*partitions], TOLERANCE)
    if found.able:
        found.replace_gone(None if is_balanced else factors)
        found.resize(factors)
    if found.able and is_balanced:
        found.spread_over_racks()
        found.level()
        found.spread_leaders()
    return found.moves()


def copying_s(moves: Iterable[PlannedMove], leaders: Mapping[TopicPartition, NodeId], rate: int) -> float:
    """The seconds that the copies of these moves take at least, if each node sends and receives `rate` bytes
    a second: those of the node that has the most to do.
    """
    sent, received = Counter[NodeId](), Counter[NodeId]()
    for one in moves:
        sent[leaders.get(one.at, one.before[0])] += one.bytes
        for node in one.added:
            received[node] += one.bytes // len(one.added)
    return max((*sent.values(), *received.values()), default=0) / rate


class _Plan:
    """The replicas of each partition as the plan has changed them so far."""

    def __init__(
        self, nodes: list[BalancedNode], partitions: list[PlacedPartition], tolerance: float
    ) -> None:
        self.able = [one.node_id for one in nodes if one.takes_replicas]
        self._is_able = frozenset(self.able)
        self._racks: Mapping[NodeId, str | None] = {one.node_id: one.rack for one in nodes}
        self._rack_count = len({one.rack for one in nodes if one.takes_replicas})
        self._partitions = partitions
        self._tolerance = tolerance
        self._replicas = [[*one.replicas] for one in partitions]
        self._moved: set[tuple[int, NodeId]] = set()  # what has just come to a node stays there
        self._bytes, self._counts = Counter[NodeId](), Counter[NodeId]()
        for one in partitions:
            for node in one.replicas:
                self._bytes[node] += one.bytes
                self._counts[node] += 1
        share = max(len(self.able), 1)
        self._mean_bytes = max(sum(self._bytes[node] for node in self.able) / share, 1.0)
        self._mean_count = max(sum(self._counts[node] for node in self.able) / share, 1.0)

    def moves(self) -> list[PlannedMove]:
        """The partitions whose replicas are others now; without those that the controller refuses, since a
        node that is gone could not be replaced.
        """
        found = []
        for one, after in zip(self._partitions, map(tuple, self._replicas), strict=True):
            if after != one.replicas and all(node in self._racks for node in after):
                added = len(set(after) - set(one.replicas))
                found.append(PlannedMove(one.at, one.replicas, after, one.bytes * added))
        return found

    # -- nodes that are gone

    def replace_gone(self, chosen: Container[TopicPartition] | None = None) -> None:
        """Move replicas of the chosen partitions, or of all, from nodes that are not registered any more."""
        for index, one in enumerate(self._partitions):
            is_kept = any(node in self._racks for node in one.replicas)
            if not is_kept or (chosen is not None and one.at not in chosen):
                continue
            for node in [node for node in self._replicas[index] if node not in self._racks]:
                to = self._free_for([other for other in self._replicas[index] if other != node])
                if to is not None:
                    self._move(index, node, to)

    def _free_for(self, replicas: Sequence[NodeId]) -> NodeId | None:
        """The node for one more replica: in a rack without one if there is one, there that with the least."""
        racks = {self._racks.get(node) for node in replicas}
        free = [node for node in self.able if node not in replicas]
        return min(
            free, key=lambda node: (self._racks.get(node) in racks, self._load(node), node), default=None
        )

    # -- the replication factor

    def resize(self, factors: Mapping[TopicPartition, int]) -> None:
        """Add and remove replicas of the partitions that `factors` names."""
        for index, one in enumerate(self._partitions):
            factor = factors.get(one.at, len(one.replicas))
            replicas = self._replicas[index]
            while len(replicas) > factor:
                used = Counter(self._racks.get(node) for node in replicas)
                node = max(replicas[1:], key=lambda node: self._disposable(node, used))
                replicas.remove(node)
                self._bytes[node] -= one.bytes
                self._counts[node] -= 1
            while len(replicas) < factor:
                if (to := self._free_for(replicas)) is None:
                    break
                replicas.append(to)
                self._moved.add((index, to))
                self._bytes[to] += one.bytes
                self._counts[to] += 1

    def _disposable(self, node: NodeId, used: Mapping[str | None, int]) -> tuple[bool, bool, float, NodeId]:
        """The order in which replicas are removed, the last one first."""
        return node not in self._is_able, used[self._racks.get(node)] > 1, self._load(node), node

    # -- racks

    def spread_over_racks(self) -> None:
        """Move a replica that shares its rack with another one of its partition to a rack that has none."""
        for index, replicas in enumerate(self._replicas):
            used = Counter(self._racks.get(node) for node in replicas)
            for node in reversed(replicas[:]):
                if used[self._racks.get(node)] < 2 or node not in self._is_able:
                    continue
                free = [one for one in self.able if one not in replicas and not used[self._racks.get(one)]]
                if free:
                    to = min(free, key=lambda one: (self._load(one), one))
                    used[self._racks.get(node)] -= 1
                    used[self._racks.get(to)] += 1
                    self._move(index, node, to)

    def _keeps_racks(self, replicas: list[NodeId], node: NodeId, to: NodeId) -> bool:
        """Whether a partition has as many racks as before if the replica on `node` moves `to` another."""
        others = {self._racks.get(one) for one in replicas if one != node}
        return self._racks.get(to) not in others or self._racks.get(node) in others

    # -- bytes and replicas

    def _load(self, node: NodeId) -> float:
        """2 for a node with its share of the bytes and of the replicas."""
        return self._bytes[node] / self._mean_bytes + self._counts[node] / self._mean_count

    def level(self) -> None:
        """Move replicas from the node with the most to the one with the least that can take one."""
        candidates: dict[tuple[NodeId, NodeId], list[tuple[int, int]]] = {}
        stuck: set[NodeId] = set()
        while len(stuck) < len(self.able):
            order = sorted(self.able, key=lambda node: (self._load(node), node))
            giver = next(node for node in reversed(order) if node not in stuck)
            for taker in order:
                if self._load(giver) - self._load(taker) <= 2 * self._tolerance:
                    stuck.add(giver)
                    break
                pair = giver, taker
                if pair not in candidates:
                    candidates[pair] = self._candidates(giver, taker)
                if self._give(candidates[pair], giver, taker):
                    break

    def _candidates(self, giver: NodeId, taker: NodeId) -> list[tuple[int, int]]:
        """Bytes and index of the partitions of which one node may give its replica to another, by bytes."""
        return sorted(
            (one.bytes, index)
            for index, one in enumerate(self._partitions)
            if self._may_give(index, giver, taker)
        )

    def _may_give(self, index: int, giver: NodeId, taker: NodeId) -> bool:
        held = self._replicas[index]
        return giver in held and taker not in held and (index, giver) not in self._moved

    def _give(self, candidates: list[tuple[int, int]], giver: NodeId, taker: NodeId) -> bool:
        """Move the replica that comes nearest to making two nodes equal; False if none does, and then there
        are no candidates any more. Those that can no longer be given are removed.
        """
        # As many replicas as make the counts equal shall make the bytes equal too.
        count = max((self._counts[giver] - self._counts[taker]) // 2, 1)
        wanted = (self._bytes[giver] - self._bytes[taker]) / 2 / count
        gap = self._load(giver) - self._load(taker)
        high = bisect_left(candidates, (max(wanted, 0), 0))
        low = high - 1
        tried = 0
        while tried < _TRIED_MAX and (low >= 0 or high < len(candidates)):
            is_low = high >= len(candidates) or (low >= 0 and tried % 2 == 0)
            position = low if is_low else high
            size, index = candidates[position]
            if not self._may_give(index, giver, taker):
                del candidates[position]
                low, high = (low - 1, high - 1) if is_low else (low, high)
                continue
            weight = size / self._mean_bytes + 1 / self._mean_count
            if weight <= _WORTH * gap and self._keeps_racks(self._replicas[index], giver, taker):
                del candidates[position]
                self._move(index, giver, taker)
                return True
            tried += 1
            low, high = (low - 1, high) if is_low else (low, high + 1)
        candidates.clear()  # the two nodes only become more alike
        return False

    def _move(self, index: int, node: NodeId, to: NodeId) -> None:
        replicas, size = self._replicas[index], self._partitions[index].bytes
        replicas[replicas.index(node)] = to
        self._moved.add((index, to))
        self._bytes[node] -= size
        self._bytes[to] += size
        self._counts[node] -= 1
        self._counts[to] += 1

    # -- leaders

    def spread_leaders(self) -> None:
        """Reorder replicas, which moves nothing, so that each node is preferred for its share."""
        leaders = Counter(replicas[0] for replicas in self._replicas)
        mean = sum(leaders[node] for node in self.able) / len(self.able)
        high = mean * (1 + self._tolerance)
        is_changed = True
        while is_changed:
            is_changed = False
            for replicas in self._replicas:
                first = replicas[0]
                others = [node for node in replicas[1:] if node in self._is_able]
                if leaders[first] <= high or not others:
                    continue
                least = min(others, key=lambda node: (leaders[node], node))
                if leaders[least] + 1 < leaders[first]:
                    place = replicas.index(least)
                    replicas[0], replicas[place] = least, first
                    leaders[first] -= 1
                    leaders[least] += 1
                    is_changed = True
