"""Subscriptions of groups: patterns with bounded cost, their slices, and the hash over topics."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import ErrorCode
from sparklog.model import Millis
from sparklog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.group.subscriptions import (
    PATTERN_CHARS_MAX,
    SLICE_MATCHES,
    Pattern,
    Resolution,
    metadata_hash,
    topic_ids,
)
from sparklog_server.outcome import Refused
from tests.coordinator.modern_world import ModernWorld

COMMAND = Command(ConsumerGroupHeartbeatRequest(), 1)


def world(**topics: int) -> ModernWorld:
    made = ModernWorld()
    for name, partitions in topics.items():
        made.create(name, partitions)
    return made


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a", "a", "aa"),
        ("a|b", "b", "ab"),
        ("logs-.*", "logs-", "my-logs-1"),
        ("^x$", "x", "xx"),
        (r"t\.\d+", "t.1", "t-1"),
        ("(?i)Big", "bIG", "bigger"),
        (r"\pL+", "é", "1"),
        (".{3}", "abc", "abcd"),
    ],
)
def test_a_pattern_has_to_match_the_whole_name(pattern: str, matching: str, other: str) -> None:
    assert Pattern(pattern).matches(matching)
    assert not Pattern(pattern).matches(other)


@pytest.mark.parametrize(
    "pattern",
    [
        "[",
        "(",
        "a**",
        "(?=a)",
        r"\1",
        "((a{100}){100}){100}",
        "(a{1000}){1000}",
        r"(\pL{500}){2}",
        "\ud800",
        "a" * (PATTERN_CHARS_MAX + 1),
    ],
)
def test_what_is_no_pattern_or_would_take_too_much_memory_is_refused(pattern: str) -> None:
    with pytest.raises(Refused) as refused:
        Pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.message is not None
    assert len(refused.value.message) < 400


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a|aa)+c", "(.*)*x", "(a?){200}a{200}"])
def test_patterns_made_to_explode_take_no_longer_than_others(pattern: str) -> None:
    # Backtracking would not end here; the time limit of the test run would end the test.
    assert not Pattern(pattern).matches("a" * 199 + "!" + "a" * 49)


@given(st.text(max_size=40))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with suppress(Refused):  # no other exception may be raised
        Pattern(text).matches("a-topic")


def test_a_resolution_looks_at_every_name_in_slices() -> None:
    made = world()
    names = [f"t{index}" for index in range(2 * SLICE_MATCHES + 50)]
    made.change([record for name in names for record in made.cluster.create(name, 1)])
    resolution = Resolution(["t1.", "t.*9", "nothing"], made.cluster.image, COMMAND, Millis(7))
    slices = 0
    while not resolution.is_done:
        resolution.advance()
        slices += 1
    found = resolution.resolved(lambda _, names: names)
    assert slices == -(-len(names) // (SLICE_MATCHES // 3))
    assert found["t1."].topics == tuple(f"t1{digit}" for digit in range(10))
    assert found["t.*9"].topics == tuple(sorted(name for name in names if name.endswith("9")))
    assert found["nothing"].topics == ()
    assert {resolved.timestamp_ms for resolved in found.values()} == {7}


def test_a_resolution_leaves_out_what_may_not_be_described_and_patterns_of_other_brokers() -> None:
    made = world(a=1, b=1)
    resolution = Resolution([".", "(?=stored by another release)"], made.cluster.image, COMMAND, Millis(0))
    resolution.advance()
    assert {pattern: one.topics for pattern, one in resolution.resolved(lambda _, _names: ["b"]).items()} == {
        ".": ("b",)
    }


def test_the_hash_changes_when_a_topic_comes_goes_or_grows_and_only_then() -> None:
    made = world(a=1, b=1)
    before = metadata_hash(["a", "b", "c"], made.cluster.image)
    assert metadata_hash(["c", "b", "a"], made.cluster.image) == before
    made.create("x", 1)
    assert metadata_hash(["a", "b", "c"], made.cluster.image) == before
    seen = {before}
    for records in (made.cluster.create("c", 1), made.cluster.grow("a", 2)):
        made.change(records)
        seen.add(metadata_hash(["a", "b", "c"], made.cluster.image))
    made.change(made.cluster.delete("b"))
    seen.add(metadata_hash(["a", "b", "c"], made.cluster.image))
    made.create("b", 1)
    seen.add(metadata_hash(["a", "b", "c"], made.cluster.image))
    assert len(seen) == 5
    assert all(-(2**63) <= value < 2**63 for value in seen)
    assert metadata_hash(["y"], made.cluster.image) == 0


def test_topics_that_do_not_exist_have_no_id() -> None:
    made = world(a=1)
    assert topic_ids(["a", "b"], made.cluster.image) == {made.cluster.image.topics_by_name["a"].topic_id}
