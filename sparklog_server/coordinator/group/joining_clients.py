"""Clients that are about to join a group: they look up its coordinator first.

If the first generation begins with the first member, the second member triggers another rebalance, which
the first member notices at its next heartbeat, seconds later. If several clients looked up the coordinator
recently, a short initial delay avoids this.
"""

from sparklog.model import Instant, Micros

ASKED_MIN = 3
"""librdkafka sends the request twice, over its bootstrap connection and over its next one. Three requests are
from more than one client.
"""
LATELY_US = 1_000_000
_GROUPS_MAX = 4_096


class JoiningClients:
    """The number of coordinator lookups per group within the last second. Soft state; the oldest entries
    are dropped first.
    """

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[str, tuple[Micros, int]] = {}

    def sought(self, group_id: str, now: Instant) -> None:
        """Record a FindCoordinator request for a group."""
        since, count = self._asked.pop(group_id, (now.mono_us, 0))
        if now.mono_us - since > LATELY_US:
            since, count = now.mono_us, 0
        self._asked[group_id] = since, count + 1
        if len(self._asked) > _GROUPS_MAX:
            del self._asked[next(iter(self._asked))]

    def is_coming(self, group_id: str, now: Instant) -> bool:
        """Whether more than one client is about to join."""
        since, count = self._asked.get(group_id, (now.mono_us, 0))
        return count >= ASKED_MIN and now.mono_us - since <= LATELY_US
