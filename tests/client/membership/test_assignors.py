"""Assignors of classic groups: the assignments, and errors for malformed bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.membership.assignors import (
    ASSIGNORS,
    Shares,
    Subscriber,
    assignor_names,
    decode_assignment,
    is_cooperative,
    subscriber,
    subscription,
)
from sparklog.errors import DecodeError, SettingsError
from sparklog.model import TopicPartition


def text(shares: Shares) -> dict[str, str]:
    return {member_id: " ".join(map(str, sorted(share))) for member_id, share in shares.items()}


def parts(*names: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(name[:-1], int(name[-1])) for name in names)


def test_range_gives_the_first_members_a_partition_more_of_every_topic() -> None:
    members = [Subscriber("b", ("t", "u")), Subscriber("a", ("t", "u"))]
    assert text(ASSIGNORS["range"](members, {"t": 3, "u": 3})) == {"a": "t-0 t-1 u-0 u-1", "b": "t-2 u-2"}


def test_static_members_come_first_in_the_order_of_their_names() -> None:
    members = [Subscriber("a", ("t",)), Subscriber("z", ("t",), "one")]
    assert text(ASSIGNORS["range"](members, {"t": 3})) == {"z": "t-0 t-1", "a": "t-2"}


def test_roundrobin_deals_past_members_that_do_not_subscribe() -> None:
    members = [Subscriber("a", ("t",)), Subscriber("b", ("t", "u"))]
    assert text(ASSIGNORS["roundrobin"](members, {"t": 2, "u": 2})) == {"a": "t-0", "b": "t-1 u-0 u-1"}


def test_sticky_moves_no_more_than_a_new_member_needs() -> None:
    members = [
        Subscriber("a", ("t",), owned=parts("t0", "t1", "t2", "t3"), generation=1),
        Subscriber("b", ("t",)),
    ]
    assert text(ASSIGNORS["sticky"](members, {"t": 4})) == {"a": "t-0 t-1", "b": "t-2 t-3"}


def test_cooperative_sticky_withholds_what_another_has_still_to_give_up() -> None:
    members = [
        Subscriber("a", ("t",), owned=parts("t0", "t1", "t2", "t3"), generation=1),
        Subscriber("b", ("t",)),
    ]
    assert text(ASSIGNORS["cooperative-sticky"](members, {"t": 4})) == {"a": "t-0 t-1", "b": ""}


def test_of_two_that_claim_a_partition_the_newer_generation_has_it() -> None:
    members = [
        Subscriber("a", ("t",), owned=parts("t0", "t1"), generation=1),
        Subscriber("b", ("t",), owned=parts("t1"), generation=2),
    ]
    assert text(ASSIGNORS["cooperative-sticky"](members, {"t": 2})) == {"a": "t-0", "b": "t-1"}


def test_a_partition_that_two_claim_in_one_generation_is_withheld_from_both() -> None:
    members = [
        Subscriber("a", ("t",), owned=parts("t0"), generation=2),
        Subscriber("b", ("t",), owned=parts("t0"), generation=2),
    ]
    assert text(ASSIGNORS["cooperative-sticky"](members, {"t": 1})) == {"a": "", "b": ""}


@given(
    st.sampled_from(sorted(ASSIGNORS)),
    st.dictionaries(st.sampled_from("tuv"), st.integers(0, 6), min_size=1),
    st.lists(st.sets(st.sampled_from("tuvw")), min_size=1, max_size=6),
    st.data(),
)
def test_every_partition_that_somebody_wants_has_one_reader_who_wants_it(
    name: str, counts: dict[str, int], wishes: list[set[str]], data: st.DataObject
) -> None:
    everything = [
        TopicPartition(topic, number) for topic, count in counts.items() for number in range(count + 1)
    ]
    owned = [
        tuple(
            data.draw(st.lists(st.sampled_from(everything), unique=True))
            if name == "sticky" and everything
            else ()
        )
        for _ in wishes
    ]
    members = [
        Subscriber(f"m{number}", tuple(sorted(wish)), None, owned[number], data.draw(st.integers(-1, 3)))
        for number, wish in enumerate(wishes)
    ]
    shares = ASSIGNORS[name](members, counts)
    wanted = sorted(
        p for p in everything if p.partition < counts[p.topic] and any(p.topic in wish for wish in wishes)
    )
    assert sorted(partition for share in shares.values() for partition in share) == wanted
    assert all(
        partition.topic in wishes[int(member_id[1:])]
        for member_id, share in shares.items()
        for partition in share
    )


@given(st.sampled_from(sorted(ASSIGNORS)), st.binary(max_size=60))
def test_bytes_that_are_no_subscription_are_refused_as_such(name: str, garbage: bytes) -> None:
    whole = subscription(name, ["t"], parts("t1"), 3, had=parts("t1"), rack="r")
    for given_bytes in (garbage, whole[:-4] + garbage, whole[:9] + garbage):
        try:
            subscriber(name, "m", None, given_bytes)
            decode_assignment(given_bytes)
        except DecodeError:
            continue


def test_javas_class_names_mean_the_same_and_unknown_ones_are_refused() -> None:
    names = assignor_names(
        ["org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky"]
    )
    assert names == ("cooperative-sticky",)
    assert is_cooperative(names)
    assert not is_cooperative(("range", "cooperative-sticky"))
    with pytest.raises(SettingsError, match="there are only range"):
        assignor_names(["fair"])
    with pytest.raises(SettingsError, match="empty"):
        assignor_names([])
