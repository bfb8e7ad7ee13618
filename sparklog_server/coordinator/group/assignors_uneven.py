"""The uniform assignor where members subscribe to different topics.

Members keep the partitions to which they still subscribe. Free partitions go, topic by topic, to the
subscriber with the fewest. Then partitions move, topic by topic, from the subscriber with the most to the
one with the fewest, until a round moves none or the rounds are used up. As with Kafka's assignor, the
result is exactly balanced only where the subscribers of a topic have equal subscriptions.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from sparklog.model import Uuid

# Each round about halves the imbalance, so sixteen are enough for any group that fits a coordinator; Kafka
# stops there too.
ROUNDS_MAX = 16
UNASSIGNED = -1


def assign_uneven(
    member_ids: Sequence[str],
    subscriptions: Sequence[frozenset[Uuid]],
    targets: Sequence[Mapping[Uuid, tuple[int, ...]]],
    partition_counts: Mapping[Uuid, int],
) -> dict[str, Mapping[Uuid, tuple[int, ...]]]:
    """The target of each member, by id; the three sequences run in parallel, members in a fixed order."""
    subscribers: dict[Uuid, list[int]] = {}
    for member, topics in enumerate(subscriptions):
        for topic in topics:
            subscribers.setdefault(topic, []).append(member)
    # Topics with many partitions for few subscribers come first; the id makes the order deterministic.
    topics_sorted = sorted(
        subscribers,
        key=lambda topic: (
            -partition_counts[topic] / len(subscribers[topic]),
            len(subscribers[topic]),
            topic,
        ),
    )
    owners = {topic: [UNASSIGNED] * partition_counts[topic] for topic in topics_sorted}
    sizes = _keep(subscriptions, targets, owners)
    for topic in topics_sorted:
        _fill(owners[topic], subscribers[topic], sizes)
    _balance([topic for topic in topics_sorted if len(subscribers[topic]) > 1], owners, subscribers, sizes)
    return _targets(member_ids, targets, owners)


def _keep(
    subscriptions: Sequence[frozenset[Uuid]],
    targets: Sequence[Mapping[Uuid, tuple[int, ...]]],
    owners: dict[Uuid, list[int]],
) -> list[int]:
    """Keep the partitions to which members still subscribe; returns the number that each has."""
    sizes = [0] * len(subscriptions)
    for member, target in enumerate(targets):
        for topic, partitions in target.items():
            if topic not in subscriptions[member]:
                continue
            owner_of = owners[topic]
            for partition in partitions:
                if partition < len(owner_of) and owner_of[partition] == UNASSIGNED:
                    owner_of[partition] = member
                    sizes[member] += 1
    return sizes


def _fill(owner_of: list[int], subscribers: list[int], sizes: list[int]) -> None:
    """Give every free partition of a topic to the subscriber that has the least."""
    if UNASSIGNED not in owner_of:
        return
    least = [(sizes[member], member) for member in subscribers]
    heapify(least)
    for partition, owner in enumerate(owner_of):
        if owner == UNASSIGNED:
            size, member = least[0]
            owner_of[partition] = member
            sizes[member] = size + 1
            heapreplace(least, (size + 1, member))


def _balance(
    topics: list[Uuid], owners: dict[Uuid, list[int]], subscribers: dict[Uuid, list[int]], sizes: list[int]
) -> None:
    untouched = 0
    for _ in range(ROUNDS_MAX):
        for topic in topics:
            if untouched == len(topics):
                return
            untouched = 0 if _balance_topic(owners[topic], subscribers[topic], sizes) else untouched + 1


def _balance_topic(owner_of: list[int], subscribers: list[int], sizes: list[int]) -> bool:
    """Move partitions of one topic from the member with the most to the one with the fewest; returns
    whether any moved.

    Entries of the heaps are not updated when their member gives (`least`) or takes (`most`) a partition. Such
    a member cannot cross to the other side before the tops of both heaps are within one partition of each
    other, which ends the loop.
    """
    loads = [sizes[member] for member in subscribers]
    if max(loads) - min(loads) <= 1:
        return False
    owned: dict[int, list[int]] = {}
    for partition, owner in enumerate(owner_of):
        owned.setdefault(owner, []).append(partition)
    least = [(sizes[member], member) for member in subscribers]
    most = [(-sizes[member], member) for member in owned]
    heapify(least)
    heapify(most)
    has_moved = False
    while most and -most[0][0] - least[0][0] > 1:
        giver, (taken_size, taker) = most[0][1], least[0]
        if not owned[giver]:
            heappop(most)
            continue
        owner_of[owned[giver].pop()] = taker
        sizes[giver] -= 1
        sizes[taker] += 1
        heapreplace(most, (-sizes[giver], giver))
        heapreplace(least, (taken_size + 1, taker))
        has_moved = True
    return has_moved


def _targets(
    member_ids: Sequence[str], before: Sequence[Mapping[Uuid, tuple[int, ...]]], owners: dict[Uuid, list[int]]
) -> dict[str, Mapping[Uuid, tuple[int, ...]]]:
    """The target of each member; the previous target object where nothing changed."""
    after: list[dict[Uuid, list[int]]] = [{} for _ in member_ids]
    for topic in sorted(owners):
        for partition, owner in enumerate(owners[topic]):
            after[owner].setdefault(topic, []).append(partition)
    targets: dict[str, Mapping[Uuid, tuple[int, ...]]] = {}
    for member, member_id in enumerate(member_ids):
        target = {topic: tuple(partitions) for topic, partitions in after[member].items()}
        targets[member_id] = before[member] if target == before[member] else target
    return targets
