"""How long a supervisor waits before it starts a node again: longer each time, unless the node ran well."""

from typing import Final

FIRST_PAUSE_S: Final = 0.25
PAUSE_S_MAX: Final = 30.0
RAN_WELL_S: Final = 60.0


class Restarts:
    """The restarts of one node."""

    def __init__(self) -> None:
        self._started_at_s = 0.0
        self._pause_s = FIRST_PAUSE_S

    def started(self, now_s: float) -> None:
        """The node was started."""
        self._started_at_s = now_s

    def ended(self, now_s: float) -> float:
        """The node ended: the pause before it is started again."""
        if now_s - self._started_at_s >= RAN_WELL_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, PAUSE_S_MAX)
        return pause_s
