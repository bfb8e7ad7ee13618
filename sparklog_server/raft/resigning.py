"""A leader that gave up its epoch: it tells the voters, the best successor first (KIP-595)."""

from collections.abc import Sequence

from sparklog.model import Instant, Micros, NodeId

_RETRY_US = 50_000


class Resigning:
    """The voters that have not acknowledged the end of the epoch yet. `successors` are ordered by log end."""

    def __init__(self, successors: list[NodeId], ends_us: Micros) -> None:
        self.successors = successors
        self.ends_us = ends_us  # then this node stands for election again
        self._tell_at_us: dict[NodeId, Micros] = dict.fromkeys(successors, Micros(0))

    def lost(self, voter: NodeId, now: Instant) -> None:
        """A voter could not be told: tell it again shortly."""
        self._tell_at_us[voter] = Micros(now.mono_us + _RETRY_US)

    def take_untold(self, now: Instant) -> list[NodeId]:
        """The voters to tell now; each is told once, until `lost`."""
        due = [voter for voter, at_us in self._tell_at_us.items() if at_us <= now.mono_us]
        for voter in due:
            del self._tell_at_us[voter]
        return due

    def deadline(self) -> Micros:
        """When a voter is to be told again, or the role ends."""
        return min(*self._tell_at_us.values(), self.ends_us, self.ends_us)


def delay_us_of(node_id: NodeId, successors: Sequence[int], limit_us: int) -> int:
    """How long a voter waits after the end of an epoch: the best successor not at all, the last one longest
    (KIP-595).
    """
    if node_id not in successors:
        return limit_us
    position = successors.index(node_id)
    return 0 if position == 0 else min(limit_us, (limit_us >> (len(successors) - 1)) << (position - 1))
