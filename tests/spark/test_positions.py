"""Positions: what users say, what is looked up, which offsets come of it. No Spark here."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import SettingsError
from sparklog.model import Offset, TopicPartition
from sparklog.spark.positions import (
    EARLIEST,
    LATEST,
    Ago,
    AtTime,
    ByOffset,
    ByTimestamp,
    Landmark,
    Place,
    Position,
    duration_ms,
    moments,
    position,
    resolve,
    timestamps_of,
)

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ENDS = {
    "earliest": {A: Offset(1), B: Offset(2), C: Offset(3)},
    "latest": {A: Offset(8), B: Offset(9), C: Offset(10)},
}


def resolved(where: Position, at_time: dict[TopicPartition, int] | None = None, **how: bool) -> list[int]:
    return list(resolve(where, option="startingOffsets", at_time=at_time, **ENDS, **how).values())


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Earliest", EARLIEST),
        (" latest ", LATEST),
        ("latest-1000", Landmark(Place.LATEST, 1000)),
        ("latest - 5", Landmark(Place.LATEST, 5)),
        ("-10m", Ago(600_000)),
        ("-90s", Ago(90_000)),
        ("-2d", Ago(172_800_000)),
        ("1970-01-01T00:00:01Z", AtTime(1000, or_latest=True)),
        ("1970-01-02", AtTime(86_400_000, or_latest=True)),
        ("1970-01-01 01:00:00.5+01:00", AtTime(500, or_latest=True)),
        ('{"a":"earliest","b":{"0":-1}}', ByOffset({C: -1}, {"a": -2})),
        ('{"a":7}', ByOffset({}, {"a": 7})),
    ],
)
def test_a_position_is_said_in_many_ways(text: str, meant: Position) -> None:
    assert position(text) == meant


MOMENTS = st.datetimes(
    datetime.datetime(1970, 1, 2), datetime.datetime(9999, 12, 30), timezones=st.just(datetime.UTC)
)
ZONES = st.integers(-14 * 60, 14 * 60).map(
    lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes))
)


@given(MOMENTS, ZONES)
def test_times_are_those_of_the_standard_library(moment: datetime.datetime, zone: datetime.timezone) -> None:
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    text = moment.astimezone(zone).isoformat()
    assert position(text) == AtTime(since // datetime.timedelta(milliseconds=1), or_latest=True)


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "1969-12-31",
        "-1x",
        "latest-",
        "10m",
        "0000-01-01",
        "[1]",
    ],
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|no such|before 1970"):
        position(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2 h", 7_200_000), ("1min", 60_000), ("250", 250)],
)
def test_lengths_of_time_have_units(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


def test_positions_become_offsets() -> None:
    assert resolved(EARLIEST) == [1, 2, 3]
    assert resolved(LATEST) == [8, 9, 10]
    assert resolved(Landmark(Place.LATEST, 7)) == [1, 2, 3]
    assert resolved(Landmark(Place.LATEST, 2)) == [6, 7, 8]
    assert resolved(ByOffset({A: -1, B: -2, C: 5})) == [8, 2, 5]
    assert resolved(ByOffset({B: 4}, {"a": -2, "b": -1})) == [1, 4, 10]


def test_moments_are_looked_up_by_partition_or_topic() -> None:
    asked = {"option": "startingOffsets", "now_ms": 1000}
    assert timestamps_of(AtTime(5), ENDS["latest"], **asked) == {A: 5, B: 5, C: 5}
    assert timestamps_of(Ago(400), ENDS["latest"], **asked) == {A: 600, B: 600, C: 600}
    assert timestamps_of(Ago(4000), ENDS["latest"], **asked) == {A: 0, B: 0, C: 0}
    assert timestamps_of(moments('{"a":5,"b":{"0":7}}'), ENDS["latest"], **asked) == {A: 5, B: 5, C: 7}
    assert timestamps_of(LATEST, ENDS["latest"], **asked) == {}


def test_a_time_after_the_last_record_is_an_error_or_the_end_as_the_strategy_says() -> None:
    found = {A: 4, B: -1, C: 3}
    assert resolved(AtTime(5), found) == [4, 9, 3]
    with pytest.raises(
        SettingsError,
        match="no record of a-1 is at or after that time; set startingOffsetsByTimestampStrategy to latest",
    ):
        resolved(ByTimestamp(topics={"a": 5, "b": 5}), found, must_match=True)
    assert resolved(Ago(5), found, must_match=True) == [4, 9, 3]
    assert resolved(AtTime(5, or_latest=True), found, must_match=True) == [4, 9, 3]


def test_json_must_name_every_partition_and_no_other() -> None:
    with pytest.raises(SettingsError, match=r"missing: a-1, b-0; not among those read: c-0$"):
        resolved(ByOffset({A: 4, TopicPartition("c", 0): 5}))
    with pytest.raises(SettingsError, match=r"missing: a-0, a-1; not among those read: c$"):
        resolved(ByOffset({}, {"b": -1, "c": -1}))
    with pytest.raises(SettingsError, match=r"must name every partition that is read, missing: b-0"):
        timestamps_of(
            ByTimestamp(topics={"a": 1}), ENDS["latest"], option="startingOffsetsByTimestamp", now_ms=0
        )
