"""The progress of a follower, as its leader knows it."""

from sparklog.model import Instant, Micros, Offset


class FollowerProgress:
    """The log end offset of one follower, proved by its last fetch.

    `log_end_offset` never moves back within one leader epoch; `caught_up_us` is the last time at which the
    follower had every record of the leader.
    """

    __slots__ = ("caught_up_us", "log_end_offset")

    def __init__(self, now: Instant) -> None:
        self.log_end_offset = Offset(0)
        self.caught_up_us: Micros = now.mono_us

    def fetched_to(self, fetch_offset: Offset, leader_end: Offset, now: Instant) -> None:
        """A fetch from `fetch_offset` proves that the follower has every record below it."""
        self.log_end_offset = max(self.log_end_offset, fetch_offset)
        if fetch_offset >= leader_end:
            self.caught_up_us = now.mono_us
