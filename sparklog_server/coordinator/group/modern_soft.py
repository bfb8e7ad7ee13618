"""The soft state of KIP-848 groups: deadlines and the times of the last checks."""

from enum import Enum, auto
from typing import NamedTuple

from sparklog.model import Instant, Micros
from sparklog_server.coordinator.timers import Timer, Timers

from .modern_limits import GroupTimes


class ModernDue(Enum):
    """The kinds of deadlines of a KIP-848 group."""

    SESSION = auto()
    """The session of a member expires."""
    REVOCATION = auto()
    """A member has not revoked its partitions in time."""
    CLASSIC_JOIN = auto()
    """A classic member has not rejoined in time."""
    CLASSIC_SYNC = auto()
    """A classic member has joined, and not synced in time."""


class ModernDeadline(NamedTuple):
    """The subject of a timer; a REVOCATION counts only while the member is still in `epoch`."""

    due: ModernDue
    group_id: str
    member_id: str
    epoch: int = 0


class GroupSoft:
    """The soft state of one group. `checked` is the version of the topics that the group was last compared
    with, `changed_us` the time at which its epoch began, `refreshed_us` the time at which its patterns were
    resolved, `recheck_us` the time from which a heartbeat resolves them again. `too_wide` has the patterns
    that matched more topics than a record can hold.
    """

    __slots__ = (
        "changed_us",
        "checked",
        "others",
        "recheck_us",
        "refreshed_us",
        "sessions",
        "times",
        "too_wide",
    )

    def __init__(self, times: GroupTimes) -> None:
        self.sessions: dict[str, Timer[ModernDeadline]] = {}
        self.others: dict[tuple[ModernDue, str], Timer[ModernDeadline]] = {}
        self.checked = -1
        self.changed_us: Micros | None = None
        self.refreshed_us: Micros | None = None
        self.recheck_us: Micros | None = None
        self.too_wide: dict[str, None] = {}
        self.times = times


class Deadlines:
    """The timers of all groups of a shard, by group, member and kind."""

    __slots__ = ("_timers",)

    def __init__(self) -> None:
        self._timers: Timers[ModernDeadline] = Timers()

    def heard(self, soft: GroupSoft, group_id: str, member_id: str, timeout_ms: int, now: Instant) -> None:
        """Restart the session of a member that has sent a request."""
        timer = soft.sessions.get(member_id)
        if timer is None:
            timer = soft.sessions[member_id] = Timer(ModernDeadline(ModernDue.SESSION, group_id, member_id))
        self._timers.arm(timer, Micros(now.mono_us + timeout_ms * 1_000))

    def arm(
        self,
        soft: GroupSoft,
        deadline: ModernDeadline,
        timeout_ms: int,
        now: Instant,
        *,
        keeps_earlier: bool = False,
    ) -> None:
        """Set a deadline; with `keeps_earlier`, an existing one stays."""
        key = (deadline.due, deadline.member_id)
        timer = soft.others.get(key)
        if timer is not None and timer.deadline is not None and keeps_earlier:
            return
        if timer is None:
            timer = soft.others[key] = Timer(deadline)
        timer.subject = deadline
        self._timers.arm(timer, Micros(now.mono_us + max(0, timeout_ms) * 1_000))

    def cancel(self, soft: GroupSoft, due: ModernDue, member_id: str) -> None:
        """Cancel a deadline of a member."""
        timer = soft.others.pop((due, member_id), None)
        if timer is not None:
            self._timers.cancel(timer)

    def forget_member(self, soft: GroupSoft, member_id: str) -> None:
        """Cancel all deadlines of a member."""
        timer = soft.sessions.pop(member_id, None)
        if timer is not None:
            self._timers.cancel(timer)
        for due in ModernDue:
            if due is not ModernDue.SESSION:
                self.cancel(soft, due, member_id)

    def forget_group(self, soft: GroupSoft) -> None:
        """Cancel all deadlines of a group."""
        for timer in (*soft.sessions.values(), *soft.others.values()):
            self._timers.cancel(timer)

    def due(self, now: Micros, most: int) -> list[ModernDeadline]:
        """Remove the deadlines that have expired by `now`, the earliest first, at most `most`; the others
        stay.
        """
        fired: list[ModernDeadline] = []
        while len(fired) < most and (deadline := self._timers.pop(now)) is not None:
            fired.append(deadline)
        return fired

    def next(self) -> Micros | None:
        """The time of the next deadline."""
        return self._timers.deadline()
