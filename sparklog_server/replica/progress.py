"""How far a follower has come, as its leader knows it."""

from sparklog.model import Instant, Micros, Offset


class FollowerProgress:
    """What a follower proved by its last fetch.

    `log_end_offset` never moves back within one leader epoch; `caught_up_us` is the last time it had
    everything the leader had.
    """

    __slots__ = ("caught_up_us", "log_end_offset")

    def __init__(self, now: Instant) -> None:
        self.log_end_offset = Offset(0)
        self.caught_up_us: Micros = now.mono_us

    def fetched_to(self, fetch_offset: Offset, leader_end: Offset, now: Instant) -> None:
        """A fetch at `fetch_offset` proves the follower holds every record below it."""
        self.log_end_offset = max(self.log_end_offset, fetch_offset)
        if fetch_offset >= leader_end:
            self.caught_up_us = now.mono_us
