"""The progress of a follower, as its leader knows it."""

from sparklog.model import Instant, Micros, Offset
from sparklog_server.metadata.entries import DIRECTORY_MIGRATING

NEVER: Micros = Micros(-1 << 62)
"""The time of a fetch that never was."""
_UNKNOWN = Offset(-1)


class FollowerProgress:
    """The offsets of one follower, proved by its last fetch.

    `log_end_offset` and `log_start_offset` are those of the incarnation `broker_epoch`, and -1 before its
    first fetch. They follow the fetches in both directions: a follower that lost records in a crash fetches
    from an earlier offset. `caught_up_us` is the last time at which the follower had every record that the
    leader had then.
    """

    __slots__ = (
        "_fetched_us",
        "_leader_end_at_fetch",
        "broker_epoch",
        "caught_up_us",
        "directory",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, caught_up_us: Micros) -> None:
        self.broker_epoch = -1
        self.directory = DIRECTORY_MIGRATING  # assigned to the replica
        self.log_end_offset = _UNKNOWN
        self.log_start_offset = _UNKNOWN
        self.caught_up_us = caught_up_us
        self._fetched_us = NEVER
        self._leader_end_at_fetch = _UNKNOWN

    def is_stale(self, broker_epoch: int) -> bool:
        """Whether a fetch comes from an earlier incarnation than the one that has fetched last (KIP-903)."""
        return 0 <= broker_epoch < self.broker_epoch

    def fetched(
        self,
        fetch_offset: Offset,
        log_start_offset: Offset,
        leader_end: Offset,
        broker_epoch: int,
        now: Instant,
    ) -> None:
        """A fetch from `fetch_offset` proves that the follower has every record below it, and no more.

        The follower is caught up now if it has reached the end of the leader's log, and was caught up at its
        previous fetch if it has reached what was the end then: under a steady load a follower is always one
        fetch behind.
        """
        if broker_epoch != self.broker_epoch and self.log_end_offset != _UNKNOWN:
            # Another incarnation: that the last one was caught up says nothing of this one.
            self.caught_up_us, self._leader_end_at_fetch = NEVER, _UNKNOWN
        if fetch_offset >= leader_end:
            self.caught_up_us = now.mono_us
        elif self._leader_end_at_fetch != _UNKNOWN and fetch_offset >= self._leader_end_at_fetch:
            self.caught_up_us = max(self.caught_up_us, self._fetched_us)
        self.broker_epoch = broker_epoch
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self._leader_end_at_fetch = leader_end
        self._fetched_us = now.mono_us

    def had_everything(self, at_us: Micros) -> None:
        """The follower asked for more at `at_us` and had every record of the leader. A fetch session does not
        name the partitions that have not changed (KIP-227).
        """
        self.caught_up_us = max(self.caught_up_us, at_us)

    def is_caught_up(self, leader_end: Offset, now: Instant, lag_max_us: int) -> bool:
        """Whether the follower has every record, or had every one within the last `lag_max_us`."""
        return self.log_end_offset >= leader_end or now.mono_us - self.caught_up_us <= lag_max_us
