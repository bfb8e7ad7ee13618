"""Stored offsets: one text per position, on every way to it. No Spark here."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.model import Offset, TopicPartition, Uuid
from sparklog.spark.offsets import OffsetUnreadable, StreamOffset

PARTITIONS = st.builds(TopicPartition, st.text(min_size=1, max_size=8), st.integers(0, 2**31 - 1))
OFFSETS = st.integers(0, 2**63 - 1)
IDS = st.none() | st.binary(min_size=16, max_size=16).filter(any)
POSITIONS = st.dictionaries(PARTITIONS, st.tuples(OFFSETS, OFFSETS, IDS, st.none() | OFFSETS), max_size=12)


def offset_of(position: dict[TopicPartition, tuple[int, int, bytes | None, int | None]]) -> StreamOffset:
    ids: dict[str, Uuid] = {}
    for tp in sorted(position):
        topic_id = position[tp][2]
        if topic_id is not None:
            ids.setdefault(tp.topic, Uuid(topic_id))
    return StreamOffset(
        began={tp: Offset(began) for tp, (began, _, _, _) in position.items()},
        reached={tp: Offset(reached) for tp, (_, reached, _, _) in position.items()},
        ids=ids,
        lost={tp: lost for tp, (_, _, _, lost) in position.items() if lost is not None},
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


FLIGHTS = TopicPartition("flights", 0), TopicPartition("flights", 1)


def test_the_text_is_the_one_that_is_documented() -> None:
    one, two = FLIGHTS
    offset = StreamOffset(
        began={two: Offset(0), one: Offset(0)},
        reached={two: Offset(298), one: Offset(311)},
        ids={"flights": Uuid(bytes(range(16)))},
    )
    assert json.dumps(offset.to_json()) == (
        '{"from": {"flights": {"0": 0, "1": 0}}, "ids": {"flights": "AAECAwQFBgcICQoLDA0ODw"},'
        ' "off": {"flights": {"0": 311, "1": 298}}, "v": 2}'
    )


def test_the_first_version_knew_neither_ids_nor_losses() -> None:
    stored = {"v": 1, "from": {"flights": {"0": 1}}, "off": {"flights": {"0": 5}}}
    assert StreamOffset.from_json(stored) == StreamOffset(
        began={FLIGHTS[0]: Offset(1)}, reached={FLIGHTS[0]: Offset(5)}
    )


def test_what_sparks_kafka_connector_stored_is_a_position_without_a_beginning() -> None:
    offset = StreamOffset.from_json({"flights": {"1": 7, "0": 5}, "v": {"0": 1}})
    assert offset.reached == {FLIGHTS[0]: 5, FLIGHTS[1]: 7, TopicPartition("v", 0): 1}
    assert (offset.began, offset.is_foreign) == ({}, True)


def test_a_batch_that_sparks_kafka_connector_planned_is_replayed_as_it_was() -> None:
    start, end = (StreamOffset.from_json({"flights": told}) for told in ({"0": 5}, {"0": 9, "1": 4}))
    assert start.start_in(end, FLIGHTS[0]) == 5
    assert start.start_in(end, FLIGHTS[1]) is None


def test_a_topic_made_anew_starts_where_it_began_though_the_offsets_would_fit() -> None:
    at = {FLIGHTS[0]: Offset(3)}
    old = StreamOffset(began={FLIGHTS[0]: Offset(0)}, reached=at, ids={"flights": Uuid(b"1" * 16)})
    new = StreamOffset(
        began={FLIGHTS[0]: Offset(0)}, reached={FLIGHTS[0]: Offset(9)}, ids={"flights": Uuid(b"2" * 16)}
    )
    assert old.start_in(new, FLIGHTS[0]) == 0
    assert old.start_in(StreamOffset(began=new.began, reached=new.reached), FLIGHTS[0]) == 3


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"v": "1"},
        {"topic": {"0": -1}},
        {"topic": {"0": 2**63}},
        {"topic": {"99999999999": 1}},
        {"topic": 5},
        {"v": 1, "from": {"t": {"0": 1}}, "off": {"t": {"0": 1}}, "ids": 5},
        {"v": 2, "from": {"t": {"0": 1}}, "off": {"t": {"0": 1}}, "ids": {"t": "AAAA"}},
        {"v": 2, "from": {"t": {"0": 1}}, "off": {"t": {"0": 1}}, "ids": {}, "lost": {"t": 5}},
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
    with pytest.raises(OffsetUnreadable, match="offset version 3, known is 2"):
        StreamOffset.from_json({"v": 3})
