"""The server-side assignors of KIP-848: they compute the new target assignment from the subscriptions and the
previous target assignment.

Pure functions. `uniform` gives every member as many partitions as any other (within one) and moves as few
as possible; where subscriptions differ it balances topic by topic (see `assignors_uneven.py`). `range`
gives each member the same range of every topic, so topics of equal size are co-partitioned. Neither looks
at racks: Kafka's do not either (KIP-1101 dropped it).
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from sparklog.model import Uuid

from .assignors_uneven import assign_uneven

Partitions = tuple[int, ...]
Target = Mapping[Uuid, Partitions]

NOTHING_ASSIGNED: Target = {}


class Subscriber(msgspec.Struct, frozen=True):
    """A member as an assignor sees it: `topics` are the ids of subscribed topics that exist, `target` is its
    previous target assignment.
    """

    member_id: str
    topics: frozenset[Uuid]
    instance_id: str | None = None
    target: Target = NOTHING_ASSIGNED


Assignor = Callable[[Sequence[Subscriber], Mapping[Uuid, int]], dict[str, Target]]


def assign_range(members: Sequence[Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, Target]:
    """Give each subscriber of a topic one range of it, the first subscribers a partition more;
    `partition_counts` by topic id.

    Static members come first, by instance id, so that they keep their ranges over restarts.
    """
    ordered = sorted(
        members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id)
    )
    subscribers: dict[Uuid, list[int]] = {}
    for index, member in enumerate(ordered):
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(index)
    targets: list[dict[Uuid, Partitions]] = [{} for _ in ordered]
    for topic in sorted(subscribers):
        seated = subscribers[topic]
        count = partition_counts[topic]
        quota, longer = divmod(count, len(seated))
        limit = 0
        for seat, index in enumerate(seated[:count]):
            start, limit = limit, limit + quota + (seat < longer)
            targets[index][topic] = tuple(range(start, limit))
    return {
        member.member_id: _unless_same(targets[index], member.target) for index, member in enumerate(ordered)
    }


def assign_uniform(members: Sequence[Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, Target]:
    """Give the members partitions in numbers that differ by at most one where their subscriptions allow
    it, moving as few as possible.
    """
    if not members:
        return {}
    ordered = sorted(members, key=lambda member: member.member_id)
    topics = ordered[0].topics
    if all(member.topics is topics or member.topics == topics for member in ordered):
        return _assign_even(ordered, {topic: partition_counts[topic] for topic in sorted(topics)})
    return assign_uneven(
        [member.member_id for member in ordered],
        [member.topics for member in ordered],
        [member.target for member in ordered],
        partition_counts,
    )


def _assign_even(members: Sequence[Subscriber], partition_counts: Mapping[Uuid, int]) -> dict[str, Target]:
    """All members subscribe to the same topics: each gets the quota, and some get one more, preferably
    members that have it already.
    """
    taken = {topic: bytearray(count) for topic, count in partition_counts.items()}
    kept = [_kept(member.target, taken) for member in members]
    sizes = [sum(map(len, target.values())) for target in kept]
    quota, longer = divmod(sum(partition_counts.values()), len(members))
    over = [index for index, size in enumerate(sizes) if size > quota][:longer]
    under = [index for index, size in enumerate(sizes) if size <= quota][: longer - len(over)]
    quotas = [quota] * len(members)
    for index in (*over, *under):
        quotas[index] += 1
    for index, target in enumerate(kept):
        if sizes[index] > quotas[index]:
            kept[index] = _cut(target, quotas[index], taken)
            sizes[index] = quotas[index]
    free = iter(
        [
            (topic, partition)
            for topic, owned in taken.items()
            for partition, is_owned in enumerate(owned)
            if not is_owned
        ]
    )
    targets: dict[str, Target] = {}
    for index, member in enumerate(members):
        missing = quotas[index] - sizes[index]
        targets[member.member_id] = (
            _with(kept[index], [next(free) for _ in range(missing)]) if missing else kept[index]
        )
    return targets


def _kept(target: Target, taken: dict[Uuid, bytearray]) -> Target:
    """The partitions of a previous target that exist, belong to a subscribed topic and are not taken by an
    earlier member; marks them as taken. Returns the same object if all of them are kept.
    """
    kept = {}
    is_whole = True
    for topic, partitions in target.items():
        owned = taken.get(topic)
        if owned is None:
            is_whole = False
            continue
        if not any(owned):
            fitting = (
                partitions
                if max(partitions, default=-1) < len(owned)
                else tuple(p for p in partitions if p < len(owned))
            )
        else:
            fitting = tuple(p for p in partitions if p < len(owned) and not owned[p])
        is_whole = is_whole and len(fitting) == len(partitions)
        for partition in fitting:
            owned[partition] = 1
        if fitting:
            kept[topic] = fitting
    return target if is_whole else kept


def _cut(target: Target, quota: int, taken: dict[Uuid, bytearray]) -> Target:
    """The first `quota` partitions of a target; the others become free."""
    kept = {}
    for topic in sorted(target):
        partitions = target[topic]
        for partition in partitions[quota:]:
            taken[topic][partition] = 0
        if quota:
            kept[topic] = partitions[:quota]
        quota -= min(quota, len(partitions))
    return kept


def _with(target: Target, partitions: list[tuple[Uuid, int]]) -> Target:
    added: dict[Uuid, list[int]] = {}
    for topic, partition in partitions:
        added.setdefault(topic, []).append(partition)
    return {
        **target,
        **{topic: tuple(sorted((*target.get(topic, ()), *more))) for topic, more in added.items()},
    }


def _unless_same(target: Target, before: Target) -> Target:
    """The previous target object if nothing changed, so that a caller can compare by identity."""
    return before if target == before else target


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
