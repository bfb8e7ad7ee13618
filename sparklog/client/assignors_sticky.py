"""The sticky assignors of classic groups (KIP-54, KIP-429): as balanced as subscriptions allow, with as few
moved partitions as possible.

If all members subscribe to the same topics, every member keeps up to its quota and the rest is assigned in
turn, as in Java. If subscriptions differ, partitions move one by one from the member with the most to one
with at least two fewer.
"""

from collections.abc import Mapping, Sequence

import msgspec

from sparklog.model import TopicPartition

Shares = dict[str, list[TopicPartition]]


class Subscriber(msgspec.Struct, frozen=True):
    """One member by its subscription: its topics, the partitions that it owns, and the generation of that
    assignment (-1: none).
    """

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


def subscribers(members: Sequence[Subscriber]) -> dict[str, list[str]]:
    """The member ids that subscribe to each topic, in the order of the members."""
    wanting: dict[str, list[str]] = {}
    for member in members:
        for topic in member.topics:
            wanting.setdefault(topic, []).append(member.member_id)
    return wanting


def assign_sticky(
    members: Sequence[Subscriber], partition_counts: Mapping[str, int]
) -> tuple[Shares, dict[TopicPartition, str]]:
    """The assignments, and the new owner of each partition that two members claimed."""
    ordered = sorted(members, key=lambda member: member.member_id)
    owned, claimed_twice = _owned(ordered, partition_counts)
    wanting = subscribers(ordered)
    wanted = {topic: count for topic, count in partition_counts.items() if topic in wanting}
    if all(sorted(member.topics) == sorted(ordered[0].topics) for member in ordered):
        shares = _even(owned, wanted)
    else:
        shares = _Uneven(ordered, owned, wanted).balanced()
    moved = {p: member_id for member_id, share in shares.items() for p in share if p in claimed_twice}
    return shares, moved


def withhold(members: Sequence[Subscriber], shares: Shares, moved: Mapping[TopicPartition, str]) -> Shares:
    """Withhold partitions that another member still owns: it revokes them first, and the next rebalance
    assigns them (KIP-429).
    """
    owners: dict[TopicPartition, str] = {}
    newest: dict[TopicPartition, int] = {}
    for member in members:
        for partition in member.owned:
            if member.generation >= newest.get(partition, -1):
                owners[partition], newest[partition] = member.member_id, member.generation
    return {
        member_id: [p for p in share if p not in moved and owners.get(p, member_id) == member_id]
        for member_id, share in shares.items()
    }


def _owned(
    members: Sequence[Subscriber], partition_counts: Mapping[str, int]
) -> tuple[dict[str, list[TopicPartition]], dict[TopicPartition, None]]:
    """The partitions that each member keeps: of two claims the one with the newer generation is valid, and
    neither if both are equally new.
    """
    owner: dict[TopicPartition, Subscriber] = {}
    claimed_twice: dict[TopicPartition, None] = {}
    for member in members:
        topics = dict.fromkeys(member.topics)
        for partition in member.owned:
            if (
                partition.partition >= partition_counts.get(partition.topic, 0)
                or partition.topic not in topics
            ):
                continue
            other = owner.get(partition)
            if other is None or member.generation > other.generation:
                owner[partition] = member
                claimed_twice.pop(partition, None)
            elif member.generation == other.generation and other is not member:
                claimed_twice[partition] = None
    kept: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for partition, member in owner.items():
        if partition not in claimed_twice:
            kept[member.member_id].append(partition)
    return kept, claimed_twice


def _even(owned: Mapping[str, list[TopicPartition]], partition_counts: Mapping[str, int]) -> Shares:
    """Assign if all subscriptions are equal: quotas differ by one at most."""
    partitions = [
        TopicPartition(topic, number)
        for topic in sorted(partition_counts)
        for number in range(partition_counts[topic])
    ]
    quota, longer = divmod(len(partitions), len(owned)) if owned else (0, 0)
    shares: Shares = {}
    for member_id, had in owned.items():
        has_one_more = len(had) > quota and longer > 0
        longer -= has_one_more
        shares[member_id] = sorted(had, key=lambda p: (p.partition, p.topic))[: quota + has_one_more]
    taken = dict.fromkeys(p for share in shares.values() for p in share)
    free = iter([p for p in partitions if p not in taken])
    short = [member_id for member_id, share in shares.items() if len(share) < quota]
    while short:
        for member_id in short:
            shares[member_id].append(next(free))
        short = [member_id for member_id in short if len(shares[member_id]) < quota]
    at_quota = (share for share in shares.values() if len(share) == quota)
    for partition, share in zip(free, list(at_quota), strict=False):
        share.append(partition)
    return shares


class _Uneven:
    """Members with different subscriptions. Invariant: from the second step on, every partition is assigned
    to exactly one member.
    """

    def __init__(
        self,
        members: Sequence[Subscriber],
        owned: Mapping[str, list[TopicPartition]],
        partition_counts: Mapping[str, int],
    ) -> None:
        self._shares: dict[str, dict[TopicPartition, None]] = {
            member_id: dict.fromkeys(had) for member_id, had in owned.items()
        }
        self._wanting = subscribers(members)
        topics = sorted(partition_counts, key=lambda topic: (len(self._wanting[topic]), topic))
        self._partitions = [
            TopicPartition(topic, number) for topic in topics for number in range(partition_counts[topic])
        ]

    def balanced(self) -> Shares:
        owner = {p: member_id for member_id, share in self._shares.items() for p in share}
        for partition in self._partitions:
            if partition not in owner:
                owner[partition] = self._emptiest(partition)
                self._shares[owner[partition]][partition] = None
        has_moved = True
        while has_moved:  # each move reduces the difference of two members, so the loop ends
            has_moved = False
            for partition in self._partitions:
                giver, taker = owner[partition], self._emptiest(partition)
                if len(self._shares[giver]) > len(self._shares[taker]) + 1:
                    del self._shares[giver][partition]
                    self._shares[taker][partition] = None
                    owner[partition] = taker
                    has_moved = True
        return {member_id: sorted(share) for member_id, share in self._shares.items()}

    def _emptiest(self, partition: TopicPartition) -> str:
        return min(
            self._wanting[partition.topic], key=lambda member_id: (len(self._shares[member_id]), member_id)
        )
