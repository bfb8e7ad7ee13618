"""The assignors that the leader of a classic group runs, with the names and results of the Java client's.

Pure functions from members and partition counts to assignments. `range` and `roundrobin` use no other input;
`sticky` and `cooperative-sticky` (see `assignors_sticky.py`) keep the partitions that members have. Replica
racks are not considered.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sparklog.client.assignors_sticky import Shares, Subscriber, assign_sticky, subscribers, withhold
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
    told = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=by_topic(owned),
        generation_id=generation,
        rack_id=rack or None,
    )
    return encode_prefixed(told, SUBSCRIPTION_VERSION)


def subscriber(
    name: str, member_id: str, instance_id: str | None, metadata: bytes | memoryview
) -> Subscriber:
    """The input of an assignor for one member, from the member's metadata; raises DecodeError if it is
    invalid.
    """
    told = decode_prefixed(ConsumerProtocolSubscription, metadata)
    owned, generation = flat(told.owned_partitions), told.generation_id
    if name == "sticky":
        # Eager members own nothing while they join: their former partitions are only in the assignor's own
        # data.
        kept = decode_user_data(StickyUserData, told.user_data) if told.user_data else None
        owned, generation = (flat(kept.previous_assignment), kept.generation) if kept else ((), -1)
    elif generation < 0 and told.user_data:
        older = decode_user_data(CooperativeUserData, told.user_data)
        generation = older.generation if older else -1
    return Subscriber(member_id, tuple(dict.fromkeys(told.topics)), instance_id, owned, generation)


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
    return tuple(TopicPartition(told.topic, partition) for told in topics for partition in told.partitions)


def _order(member: Subscriber) -> tuple[bool, str]:
    """Static members first, so that their order survives restarts."""
    return (member.instance_id is None, member.instance_id or member.member_id)
