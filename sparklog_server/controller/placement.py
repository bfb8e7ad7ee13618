"""Replica placement for new partitions: striped over racks, and over the brokers of each rack.

Racks supply the first replica in turn, and after a round of all racks the brokers within each rotate too,
which spreads leaders evenly. The leaderships of a broker that fails go to all brokers of other racks, or of
the only one, and not to its neighbour: after a round of all brokers, the order of the other racks shifts by
one, and after a round of these, the followers within each rack. Unfenced brokers come first, and a fenced one
never gets the first replica. With racks A, B, C of two brokers and three replicas:

    partition 0: A0 B0 C0      1: B0 C0 A0      2: C0 A0 B0
              3: A1 B1 C1      4: B1 C1 A1      5: C1 A1 B1
              6: A0 C0 B0      7: B0 A0 C0      8: C0 B0 A0     (other racks shifted)
             12: A0 B1 C1     13: B0 C1 A1     14: C0 A1 B1     (followers shifted)
"""

from collections.abc import Callable, Sequence
from itertools import cycle

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, Uuid
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.outcome import Refused

Entropy = Callable[[int], bytes]
DIRECTORY_UNASSIGNED = Uuid(bytes(15) + b"\x01")
"""The broker chooses the directory: it has not reported its directories."""


class Placer:
    """Places the replicas of the partitions of one request; each call of `place` advances the stripes
    by one.
    """

    def __init__(self, image: MetadataImage, entropy: Entropy) -> None:
        usable = sorted(
            (
                broker
                for broker in image.brokers.values()
                if not broker.is_in_controlled_shutdown
                and broker.node_id not in image.broker_states
                and set(broker.directories) - set(broker.cordoned_directories)
            ),
            key=lambda broker: broker.node_id,
        )
        self._unfenced_count = sum(not broker.is_fenced for broker in usable)
        self._usable_count = len(usable)
        racks = sorted({broker.rack or "" for broker in usable})
        self._racks = [
            (
                [broker.node_id for broker in usable if (broker.rack or "") == rack and not broker.is_fenced],
                [broker.node_id for broker in usable if (broker.rack or "") == rack and broker.is_fenced],
            )
            for rack in racks
        ]
        # Starts at a random broker: one broker would lead every topic with a single partition otherwise.
        self._turn = int.from_bytes(entropy(4), "big") if self._usable_count > 1 else 0

    def place(self, replica_count: int) -> tuple[NodeId, ...]:
        """The brokers of one partition, the first to lead; raises Refused with INVALID_REPLICATION_FACTOR."""
        self.check(replica_count)
        taken: list[NodeId] = []
        rack_count = len(self._racks)
        first = next(
            rack for offset in range(rack_count) if self._racks[rack := (self._turn + offset) % rack_count][0]
        )
        others = max(rack_count - 1, 1)
        shift, rack_shift = divmod(self._turn // rack_count // len(self._racks[first][0]), others)
        order = [first, *((first + 1 + (rack_shift + rank) % others) % rack_count for rank in range(others))]
        for rack in cycle(order[:rack_count]):
            unfenced, fenced = self._racks[rack]
            node = self._next_of(unfenced, taken, shift)
            if node is None and taken:
                node = self._next_of(fenced, taken, shift)
            if node is not None:
                taken.append(node)
            if len(taken) == replica_count:
                break
        self._turn += 1
        return tuple(taken)

    def check(self, replica_count: int) -> None:
        """Refuse a replication factor that this cluster cannot provide."""
        reason = None
        if replica_count <= 0:
            reason = f"Invalid replication factor {replica_count}: the replication factor must be positive."
        elif self._unfenced_count == 0:
            reason = "All brokers are currently fenced, or have all their log directories cordoned."
        elif replica_count > self._usable_count:
            reason = (
                f"The target replication factor of {replica_count} cannot be reached because only "
                f"{self._usable_count} broker(s) are "
                "registered or some brokers have all their log directories cordoned."
            )
        if reason is not None:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replica_count} time(s): {reason}",
            )

    def _next_of(self, nodes: list[NodeId], taken: list[NodeId], shift: int) -> NodeId | None:
        """The next free node of a rack: in rotation for the first replica, shifted for the followers."""
        start = self._turn // len(self._racks)
        free = [
            node
            for offset in range(len(nodes))
            if (node := nodes[(start + offset) % len(nodes)]) not in taken
        ]
        if not free:
            return None
        return free[shift % len(free)] if taken else free[0]


class SuccessorChooser:
    """Chooses the broker that takes over a replica of another one: in a rack without a replica of the
    partition if there is one, and there the broker with the fewest replicas, including those just given.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._counts: dict[NodeId, int] = {}
        for topic in image.topics_by_id.values():
            for partition in topic.partitions:
                for node in partition.replicas:
                    self._counts[node] = self._counts.get(node, 0) + 1
        self._able = [
            node for node, broker in image.brokers.items() if broker.is_active and image.takes_replicas(node)
        ]

    def choose(self, staying: Sequence[NodeId]) -> NodeId | None:
        """The successor for a partition whose other replicas are on `staying`; None if no broker has none."""
        free = [node for node in self._able if node not in staying]
        if not free:
            return None
        racks = {self._rack(node) for node in staying}
        chosen = min(free, key=lambda node: (self._rack(node) in racks, self._counts.get(node, 0), node))
        self._counts[chosen] = self._counts.get(chosen, 0) + 1
        return chosen

    def _rack(self, node: NodeId) -> str | None:
        broker = self._image.brokers.get(node)
        return None if broker is None else broker.rack


class DirectoryChooser:
    """Chooses the directory of each new replica: the one of its broker with the fewest partitions, including
    those just placed.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._brokers = image.brokers
        self._counts: dict[Uuid, int] | None = None
        self._image = image

    def choose(self, node_id: NodeId) -> Uuid:
        """The directory for one more replica on the broker."""
        broker = self._brokers[node_id]
        usable = [
            directory for directory in broker.directories if directory not in broker.cordoned_directories
        ]
        if len(usable) < 2:
            return usable[0] if usable else DIRECTORY_UNASSIGNED
        counts = self._counts_by_directory()
        chosen = min(usable, key=lambda directory: counts.get(directory, 0))
        counts[chosen] = counts.get(chosen, 0) + 1
        return chosen

    def _counts_by_directory(self) -> dict[Uuid, int]:
        if self._counts is None:
            self._counts = {}
            for topic in self._image.topics_by_id.values():
                for partition in topic.partitions:
                    for directory in partition.directories:
                        self._counts[directory] = self._counts.get(directory, 0) + 1
        return self._counts
