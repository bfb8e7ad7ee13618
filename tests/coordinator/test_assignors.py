"""The server-side assignors: one owner each, balance, few moves, and the same answer every time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.model import Uuid
from sparklog_server.coordinator.group.assignors import (
    ASSIGNORS,
    Subscriber,
    Target,
    assign_range,
    assign_uniform,
)
from tests.properties import examples

TOPICS = [Uuid(bytes([index]) * 16) for index in range(6)]
A, B, C = TOPICS[:3]


def members(*topics: set[Uuid], **targets: Target) -> list[Subscriber]:
    return [
        Subscriber(f"m{index}", frozenset(names), None, targets.get(f"m{index}", {}))
        for index, names in enumerate(topics)
    ]


def owners(targets: dict[str, Target]) -> dict[tuple[Uuid, int], list[str]]:
    owned: dict[tuple[Uuid, int], list[str]] = {}
    for member_id, target in targets.items():
        for topic, partitions in target.items():
            for partition in partitions:
                owned.setdefault((topic, partition), []).append(member_id)
    return owned


def sizes(targets: dict[str, Target]) -> list[int]:
    return sorted(sum(map(len, target.values())) for target in targets.values())


def moves(before: dict[str, Target], after: dict[str, Target]) -> int:
    """The number of partitions whose owner changed although their former owner is still a member."""
    were = {place: owner[0] for place, owner in owners(before).items() if owner[0] in after}
    return sum(1 for place, owner in owners(after).items() if place in were and were[place] != owner[0])


def test_range_gives_every_member_the_same_stretch_of_each_topic() -> None:
    assert assign_range(members({A, B}, {A, B}), {A: 3, B: 3}) == {
        "m0": {A: (0, 1), B: (0, 1)},
        "m1": {A: (2,), B: (2,)},
    }


def test_range_seats_static_members_first_by_instance_id() -> None:
    there = [
        Subscriber("a", frozenset({A})),
        Subscriber("z", frozenset({A}), "i2"),
        Subscriber("y", frozenset({A}), "i1"),
    ]
    assert assign_range(there, {A: 3}) == {"y": {A: (0,)}, "z": {A: (1,)}, "a": {A: (2,)}}


def test_range_leaves_members_without_when_partitions_run_out() -> None:
    assert assign_range(members({A}, {A}, {B}), {A: 1, B: 1}) == {"m0": {A: (0,)}, "m1": {}, "m2": {B: (0,)}}


def test_uniform_takes_from_a_member_no_more_than_a_new_one_needs() -> None:
    before = {"m0": {A: (0, 1, 2, 3)}}
    assert assign_uniform(members({A}, {A}, **before), {A: 4}) == {"m0": {A: (0, 1)}, "m1": {A: (2, 3)}}


def test_uniform_lets_those_keep_one_more_who_have_it() -> None:
    before = {"m0": {A: (0,)}, "m1": {A: (1, 2)}}
    assert assign_uniform(members({A}, {A}, **before), {A: 3}) == before


def test_uniform_forgets_partitions_and_topics_that_are_gone() -> None:
    before = {"m0": {A: (0, 7), C: (0,)}}
    assert assign_uniform(members({A}, **before), {A: 2}) == {"m0": {A: (0, 1)}}


def test_uniform_believes_the_first_of_two_owners() -> None:
    before = {"m0": {A: (0, 1)}, "m1": {A: (1, 2)}}
    assert assign_uniform(members({A}, {A}, **before), {A: 4}) == {"m0": {A: (0, 1)}, "m1": {A: (2, 3)}}


def test_uniform_evens_out_across_topics_where_subscriptions_differ() -> None:
    targets = assign_uniform(members({A}, {A, B}, {B}), {A: 6, B: 3})
    assert owners(targets).keys() == {(A, partition) for partition in range(6)} | {
        (B, partition) for partition in range(3)
    }
    assert sizes(targets) == [3, 3, 3]


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_no_members_and_no_topics_give_nothing(name: str) -> None:
    assert ASSIGNORS[name]([], {A: 3}) == {}
    assert ASSIGNORS[name](members(set(), set()), {}) == {"m0": {}, "m1": {}}


@st.composite
def groups(draw: st.DrawFn, *, alike: bool) -> tuple[list[Subscriber], dict[Uuid, int]]:
    counts = {topic: draw(st.integers(0, 12)) for topic in TOPICS}
    subscriptions = st.frozensets(st.sampled_from(TOPICS), min_size=1)
    common = draw(subscriptions)
    free = [(topic, partition) for topic in TOPICS for partition in range(counts[topic])]
    draw(st.randoms(use_true_random=False)).shuffle(free)
    group = []
    for index in range(draw(st.integers(1, 9))):
        had: dict[Uuid, list[int]] = {}
        for _ in range(min(len(free), draw(st.integers(0, 10)))):
            topic, partition = free.pop()
            had.setdefault(topic, []).append(partition)
        target = {topic: tuple(sorted(partitions)) for topic, partitions in had.items()}
        group.append(
            Subscriber(
                f"m{index}",
                common if alike else draw(subscriptions),
                draw(st.none() | st.just(f"i{index}")),
                target,
            )
        )
    return group, counts


def check_proofers(group: list[Subscriber], counts: dict[Uuid, int], targets: dict[str, Target]) -> None:
    wanted = {
        (topic, partition)
        for member in group
        for topic in member.topics
        for partition in range(counts[topic])
    }
    owned = owners(targets)
    assert owned.keys() == wanted
    topics_of = {member.member_id: member.topics for member in group}
    assert all(len(owner) == 1 and place[0] in topics_of[owner[0]] for place, owner in owned.items())
    assert all(
        list(partitions) == sorted(partitions) and partitions
        for target in targets.values()
        for partitions in target.values()
    )


@given(groups(alike=True))
@examples(150)
def test_uniform_is_balanced_and_moves_no_more_than_balance_takes(
    case: tuple[list[Subscriber], dict[Uuid, int]],
) -> None:
    group, counts = case
    targets = assign_uniform(group, counts)
    check_proofers(group, counts, targets)
    assert sizes(targets)[-1] - sizes(targets)[0] <= 1
    # A member can keep at most its quota; the larger quotas go first to the members that can use them.
    quota, longer = divmod(len(owners(targets)), len(group))
    had = [
        sum(len(partitions) for topic, partitions in member.target.items() if topic in member.topics)
        for member in group
    ]
    keepable = sum(min(size, quota) for size in had) + min(longer, sum(size > quota for size in had))
    before = {member.member_id: member.target for member in group}
    still = {place for place in owners(before) if place in owners(targets)}
    stayed = sum(1 for place in still if owners(before)[place] == owners(targets)[place])
    assert stayed == keepable
    again = [
        Subscriber(member.member_id, member.topics, member.instance_id, targets[member.member_id])
        for member in group
    ]
    assert assign_uniform(again, counts) == targets


@given(groups(alike=False))
@examples(150)
def test_uniform_with_uneven_subscriptions_leaves_no_topic_out_of_balance(
    case: tuple[list[Subscriber], dict[Uuid, int]],
) -> None:
    group, counts = case
    targets = assign_uniform(group, counts)
    check_proofers(group, counts, targets)
    load = {member_id: sum(map(len, target.values())) for member_id, target in targets.items()}
    for topic in TOPICS:
        able = [member.member_id for member in group if topic in member.topics]
        giving = [load[member_id] for member_id in able if topic in targets[member_id]]
        # No owner of a partition of the topic has two more partitions than another member that could own it.
        assert not giving or max(giving) - min(load[member_id] for member_id in able) <= 1
    again = [
        Subscriber(member.member_id, member.topics, member.instance_id, targets[member.member_id])
        for member in group
    ]
    assert moves(targets, assign_uniform(again, counts)) == 0


@given(groups(alike=False))
@examples(100)
def test_range_splits_each_topic_evenly_among_its_subscribers(
    case: tuple[list[Subscriber], dict[Uuid, int]],
) -> None:
    group, counts = case
    targets = assign_range(group, counts)
    check_proofers(group, counts, targets)
    for topic in TOPICS:
        shares = [len(targets[member.member_id].get(topic, ())) for member in group if topic in member.topics]
        assert not shares or max(shares) - min(shares) <= 1


@given(groups(alike=False), st.randoms(use_true_random=False), st.sampled_from(["uniform", "range"]))
@examples(60)
def test_the_order_in_which_members_are_listed_does_not_matter(
    case: tuple[list[Subscriber], dict[Uuid, int]], random: object, name: str
) -> None:
    group, counts = case
    shuffled = list(group)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ASSIGNORS[name](shuffled, counts) == ASSIGNORS[name](group, counts)
