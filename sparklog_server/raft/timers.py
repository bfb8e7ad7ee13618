"""The times of elections."""

import msgspec


class Timers(msgspec.Struct, frozen=True):
    """The times of an election, in microseconds, with Kafka's defaults."""

    election_timeout_us: int = 1_000_000
    fetch_timeout_us: int = 2_000_000
    request_timeout_us: int = 2_000_000
    backoff_us_max: int = 1_000_000
