"""Who is on the way to a group: clients ask who keeps it before they join it.

A group whose first generation begins with the first who joins is rebalanced again when the second does,
and the first learns of that with its next heartbeat, seconds later. Where several have asked for the
coordinator lately, a moment of patience spares them all of that.
"""

from sparklog.model import Instant, Micros

ASKED_MIN = 3
"""librdkafka asks twice: by the connection that it knows the cluster from, and by the one it has then.
Three are more than one client.
"""
LATELY_US = 1_000_000
_GROUPS_MAX = 4_096


class JoiningClients:
    """How often the coordinator of each group was asked for within a second; soft, and forgotten first for
    whom was asked first.
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
