"""Times, durations and starting points as people write them."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.settings import ClientSettings
from sparklog.spark.positions import duration_ms as duration_of_an_option
from sparklog_server.cli.option_values import Position, duration_ms, position, time_ms

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        *(
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
            ("90s", 90_000),
        ),
        *(("PT10M", 600_000), ("P1DT12H", 129_600_000), ("PT0.5S", 500), ("pt1s", 1_000)),
        *(("p1d", 86_400_000), ("PT1,5S", 1_500), ("PT0.0019S", 1)),
    ],
)
def test_durations_are_short_or_as_in_iso_8601(text: str, ms: int) -> None:
    assert duration_ms(text, "--by-duration") == ms
    assert duration_of_an_option(text) == ms
    if text[0] in "Pp":
        settings = ClientSettings.from_kafka({"auto.offset.reset": f"by_duration:{text}"})
        assert settings.reset_duration_ms == ms


@pytest.mark.parametrize("text", ["", "10", "m", "10x", "P", "PT", "-10m", "10m ", "1.5h", "P1Y"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 10m"):
        duration_ms(text, "--by-duration")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T02:00:00.500+02:00", 500),
        ("1700000000000", NOW_MS),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, ms: int) -> None:
    assert time_ms(text, "--to-datetime") == ms


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("beginning", Position("earliest")),
        ("oldest", Position("earliest")),
        ("end", Position("latest")),
        ("0", Position("offset", 0)),
        ("1234", Position("offset", 1234)),
        ("-5", Position("last", 5)),
        ("-10m", Position("time", NOW_MS - 600_000)),
        ("s@1000", Position("time", 1000)),
        ("1970-01-02", Position("time", 86_400_000)),
        ("-999999d", Position("time", 0)),
    ],
)
def test_a_position_is_a_landmark_an_offset_so_many_back_or_a_time(text: str, meant: Position) -> None:
    assert position(text, "--from", NOW_MS) == meant


@pytest.mark.parametrize("text", ["", "yesterday", "-", "--5", "s@", "5m", "-5x", "2026-13-01"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        position(text, "--from", NOW_MS)


@given(st.text())
def test_any_text_is_either_a_position_or_refused_as_one(text: str) -> None:
    try:
        assert position(text, "--from", NOW_MS).number >= 0
    except click.BadParameter:
        return
