"""The assignors that the leader of a classic group runs, with the names and results of the Java client's.

Pure functions from members and partition counts to assignments. `range` and `roundrobin` use no other input;
`sticky` and `cooperative-sticky` (KIP-54, KIP-429) keep the partitions that members have. Replica
racks are not considered.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from sparklog.errors import DecodeError, SettingsError
from sparklog.model import TopicPartition
from sparklog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CooperativeUserData,
    StickyUserData,
    TopicPartitions,
    decode_prefixed,
    decode_user_data,
    encode_prefixed,
    encode_user_data,
)

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


SUBSCRIPTION_VERSION: Final = 3
_JAVA_NAMES: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
} | {"CooperativeStickyAssignor": "cooperative-sticky"}


Assignor = Callable[[Sequence[Subscriber], Mapping[str, int]], Shares]
"""(members, partitions of each topic that exists) -> the partitions of every member."""


def assign_range(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Shares:
    """Give each subscriber of a topic one contiguous range of it, the first subscribers one
    partition more.
    """
    ordered = sorted(members, key=_order)
    shares: Shares = {member.member_id: [] for member in ordered}
    wanting = subscribers(ordered)
    for topic in sorted(partition_counts):
        seated = wanting.get(topic, [])
        quota, longer = divmod(partition_counts[topic], len(seated)) if seated else (0, 0)
        limit = 0
        for seat, member_id in enumerate(seated):
            start, limit = limit, limit + quota + (seat < longer)
            shares[member_id] += [TopicPartition(topic, number) for number in range(start, limit)]
    return shares


def assign_roundrobin(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Shares:
    """Assign all partitions one by one, skipping members that do not subscribe to the topic."""
    ordered = sorted(members, key=_order)
    shares: Shares = {member.member_id: [] for member in ordered}
    wanting, turn = subscribers(ordered), 0
    for topic in sorted(wanting):
        wants = dict.fromkeys(wanting[topic])
        for number in range(partition_counts.get(topic, 0)):
            while ordered[turn % len(ordered)].member_id not in wants:
                turn += 1
            shares[ordered[turn % len(ordered)].member_id].append(TopicPartition(topic, number))
            turn += 1
    return shares


def _sticky(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Shares:
    return assign_sticky(members, partition_counts)[0]


def _cooperative_sticky(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Shares:
    shares, moved = assign_sticky(members, partition_counts)
    return withhold(members, shares, moved)


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    "sticky": _sticky,
    "cooperative-sticky": _cooperative_sticky,
}


def assignor_names(given: Sequence[str]) -> tuple[str, ...]:
    """The assignors of a setting, which may contain Java class names; raises SettingsError."""
    names = tuple(dict.fromkeys(_JAVA_NAMES.get(name.rpartition(".")[2], name) for name in given))
    for name in names:
        if name not in ASSIGNORS:
            raise SettingsError(
                f"partition.assignment.strategy={name}: there are only {', '.join(ASSIGNORS)}"
            )
    if not names:
        raise SettingsError(
            f"partition.assignment.strategy is empty: name at least one of {', '.join(ASSIGNORS)}"
        )
    return names


def is_cooperative(names: Sequence[str]) -> bool:
    """Whether members keep their partitions during a rebalance: only if every assignor supports it
    (KIP-429).
    """
    return all(name == "cooperative-sticky" for name in names)


def subscription(
    name: str,
    topics: Sequence[str],
    owned: Sequence[TopicPartition],
    generation: int,
    *,
    had: Sequence[TopicPartition],
    rack: str,
) -> bytes:
    """A member's metadata for one assignor; `had` is its last assignment, `owned` the part that it still
    owns.
    """
    user_data: bytes | None = None
    if name == "sticky" and had:
        user_data = encode_user_data(StickyUserData(previous_assignment=by_topic(had), generation=generation))
    elif name == "cooperative-sticky":
        user_data = encode_user_data(CooperativeUserData(generation=generation))
    metadata = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=by_topic(owned),
        generation_id=generation,
        rack_id=rack or None,
    )
    return encode_prefixed(metadata, SUBSCRIPTION_VERSION)


def subscriber(
    name: str, member_id: str, instance_id: str | None, metadata: bytes | memoryview
) -> Subscriber:
    """The input of an assignor for one member, from the member's metadata; raises DecodeError if it is
    invalid.
    """
    decoded = decode_prefixed(ConsumerProtocolSubscription, metadata)
    owned, generation = flat(decoded.owned_partitions), decoded.generation_id
    if name == "sticky":
        # Eager members own nothing while they join: their former partitions are only in the assignor's own
        # data.
        kept = decode_user_data(StickyUserData, decoded.user_data) if decoded.user_data else None
        owned, generation = (flat(kept.previous_assignment), kept.generation) if kept else ((), -1)
    elif generation < 0 and decoded.user_data:
        older = decode_user_data(CooperativeUserData, decoded.user_data)
        generation = older.generation if older else -1
    return Subscriber(member_id, tuple(dict.fromkeys(decoded.topics)), instance_id, owned, generation)


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """A member's assignment, as encoded in SyncGroup."""
    return encode_prefixed(
        ConsumerProtocolAssignment(assigned_partitions=by_topic(partitions)), SUBSCRIPTION_VERSION
    )


def decode_assignment(value: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """The partitions of an encoded assignment; none if it is empty. Raises DecodeError."""
    if not len(value):
        return ()
    partitions = flat(decode_prefixed(ConsumerProtocolAssignment, value).assigned_partitions)
    if any(partition < 0 for _, partition in partitions):
        raise DecodeError("a negative partition is assigned")
    return tuple(dict.fromkeys(partitions))


def by_topic(partitions: Sequence[TopicPartition]) -> list[TopicPartitions]:
    """Partitions grouped by topic, as in the protocol."""
    topics: dict[str, TopicPartitions] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, TopicPartitions(topic=topic, partitions=[])).partitions.append(partition)
    return list(topics.values())


def flat(topics: Sequence[TopicPartitions]) -> tuple[TopicPartition, ...]:
    """Partitions as a flat list."""
    return tuple(TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions)


def _order(member: Subscriber) -> tuple[bool, str]:
    """Static members first, so that their order survives restarts."""
    return (member.instance_id is None, member.instance_id or member.member_id)


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
