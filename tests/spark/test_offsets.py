"""Stored offsets: one text per position, whatever way it was reached. No Spark here."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.model import Offset, TopicPartition
from sparklog.spark.offsets import OffsetUnreadable, StreamOffset

PARTITIONS = st.builds(TopicPartition, st.text(min_size=1, max_size=8), st.integers(0, 2**31 - 1))
POSITIONS = st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), max_size=12)


def offset_of(position: dict[TopicPartition, tuple[int, int]]) -> StreamOffset:
    return StreamOffset(
        began={tp: Offset(began) for tp, (began, _) in position.items()},
        reached={tp: Offset(reached) for tp, (_, reached) in position.items()},
    )


@given(POSITIONS, st.randoms(use_true_random=False))
def test_equal_positions_have_equal_text_however_they_were_built(position, shuffler) -> None:
    entries = list(position.items())
    shuffler.shuffle(entries)
    text = json.dumps(offset_of(position).to_json())
    assert json.dumps(offset_of(dict(entries)).to_json()) == text
    assert json.dumps(json.loads(text), sort_keys=True) == text


@given(POSITIONS)
def test_a_position_survives_storing_and_its_text_stays_the_same(position) -> None:
    offset = offset_of(position)
    text = json.dumps(offset.to_json())
    again = StreamOffset.from_json(json.loads(text))
    assert again == offset
    assert json.dumps(again.to_json()) == text


def test_the_text_is_the_one_that_is_documented() -> None:
    offset = StreamOffset(
        began={TopicPartition("flights", 1): Offset(0), TopicPartition("flights", 0): Offset(0)},
        reached={TopicPartition("flights", 1): Offset(298), TopicPartition("flights", 0): Offset(311)},
    )
    assert json.dumps(offset.to_json()) == '{"from": {"flights": {"0": 0, "1": 0}}, "off": {"flights": {"0": 311, "1": 298}}, "v": 1}'


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"v": "1"},
        {"topic": {"0": 5}},
        {"v": 1, "off": {}},
        {"v": 1, "from": {}, "off": {"t": {"0": 1}}},
        {"v": 1, "from": {"t": 1}, "off": {"t": 1}},
        {"v": 1, "from": {"t": {"0": True}}, "off": {"t": {"0": 1}}},
        {"v": 1, "from": {"t": {"x": 1}}, "off": {"t": {"x": 1}}},
    ],
)
def test_what_sparklog_did_not_write_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(OffsetUnreadable):
        StreamOffset.from_json(stored)


def test_a_newer_offset_asks_for_an_upgrade() -> None:
    with pytest.raises(OffsetUnreadable, match="offset version 2, known is 1"):
        StreamOffset.from_json({"v": 2})
