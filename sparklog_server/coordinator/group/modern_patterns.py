"""Resolution of the patterns of KIP-848 groups: when a pattern is new, when topics are created, and at
intervals.

If names and patterns are few, they are matched within the heartbeat, so that its answer has an assignment
already. Otherwise they are matched in slices, one group after the other, and the result is applied to the
group when the last slice is done.
"""

from collections.abc import Callable, Mapping

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros
from sparklog_server.coordinator.command import Command
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.outcome import Refused

from .group_config import GroupConfig
from .modern import ModernGroup
from .modern_change import Change
from .modern_soft import GroupSoft
from .subscriptions import Describable, Resolution, Resolved, compiled

_REFRESH_MIN_MS = 10_000
"""The shortest interval between resolutions of a group's patterns against new topics, as in Kafka."""
_AT_ONCE_MAX = 2_000
"""Names times patterns that a heartbeat resolves itself: five milliseconds, once per pattern."""


class Patterns:
    """The patterns of a shard's groups, and the resolution in progress."""

    def __init__(
        self, settings: GroupConfig, describable: Describable, record_bytes_max: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._describable = describable
        self._record_bytes_max = record_bytes_max
        self._under_way: dict[str, Resolution] = {}
        self._topics_created_us: Micros | None = None

    @property
    def is_busy(self) -> bool:
        """Whether `advance` has names left to match."""
        return bool(self._under_way)

    def topics_created(self, now: Instant) -> None:
        """Mark every group for a new resolution: topics were created."""
        self._topics_created_us = now.mono_us

    def settle(
        self, change: Change, soft: GroupSoft, image: MetadataImage, command: Command, now: Instant
    ) -> bool:
        """Apply the pattern to which the member subscribes now, and resolve the patterns that are due.
        Returns whether the member's pattern changed.

        Raises Refused with INVALID_REGULAR_EXPRESSION, or with UNKNOWN_SERVER_ERROR for a pattern that
        matches more topics than a record can hold.
        """
        group, before, after = change.group, change.before, change.after
        assert after is not None
        old, new = "" if before is None else before.pattern, after.pattern
        wanted = dict.fromkeys(group.patterns())
        if old != new:
            if old and group.subscribers_of(old) == 1:
                change.forget_pattern(old)
                del wanted[old]
            if new and not group.subscribers_of(new):
                compiled(new)
                wanted[new] = None
            elif not new or new in group.resolved:
                change.bumps_epoch = True
        if wanted:
            self._resolve(change, soft, wanted, image, command, now)
        else:
            soft.recheck_us = None
        return old != new

    def _resolve(
        self,
        change: Change,
        soft: GroupSoft,
        wanted: Mapping[str, None],
        image: MetadataImage,
        command: Command,
        now: Instant,
    ) -> None:
        group_id = change.group.group_id
        is_refresh = soft.refreshed_us is None or now.mono_us >= self._recheck_us(soft.refreshed_us)
        patterns = (
            list(wanted)
            if is_refresh
            else [one for one in wanted if one not in change.group.resolved and one not in soft.too_wide]
        )
        if patterns and group_id not in self._under_way:
            resolution = Resolution(patterns, image, command, now.wall_ms)
            if len(patterns) * len(image.topics_by_name) > _AT_ONCE_MAX:
                self._under_way[group_id] = resolution
                soft.changed_us = now.mono_us  # as good as: the members are to come back soon
            else:
                while not resolution.is_done:
                    resolution.advance()
                self._take_in(change, soft, resolution.resolved(self._describable), wanted)
                if change.after is not None and change.after.pattern in soft.too_wide:
                    raise Refused(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        f"the topics that {change.after.pattern[:80]!r} matches do not fit a record of "
                        f"{self._record_bytes_max()} bytes",
                    )
            if is_refresh:
                soft.refreshed_us = now.mono_us
        soft.recheck_us = None if soft.refreshed_us is None else self._recheck_us(soft.refreshed_us)

    def _take_in(
        self, change: Change, soft: GroupSoft, found: Mapping[str, Resolved], wanted: Mapping[str, None]
    ) -> None:
        for pattern, resolved in found.items():
            if pattern not in wanted:
                continue
            if len(pattern) + sum(len(topic) + 2 for topic in resolved.topics) > self._record_bytes_max():
                soft.too_wide[pattern] = None
            else:
                soft.too_wide.pop(pattern, None)
                change.resolve_pattern(pattern, resolved)

    def _recheck_us(self, refreshed_us: Micros) -> Micros:
        """The time at which patterns that were resolved at that time are due again."""
        has_new_topics = self._topics_created_us is not None and self._topics_created_us >= refreshed_us
        interval_ms = _REFRESH_MIN_MS if has_new_topics else self._settings.consumer_regex_refresh_interval_ms
        return Micros(refreshed_us + interval_ms * 1_000)

    def advance(self) -> tuple[str, Resolution] | None:
        """Match the next slice for the group that has waited longest. Returns its id and its resolution if
        that is done.
        """
        group_id, resolution = next(iter(self._under_way.items()))
        del self._under_way[group_id]
        if resolution.is_done:
            return group_id, resolution
        resolution.advance()
        self._under_way[group_id] = resolution  # at the end of the queue
        return None

    def finish(
        self, group: ModernGroup, soft: GroupSoft, resolution: Resolution, image: MetadataImage
    ) -> Change:
        """Apply the result of a finished resolution to its group."""
        change = Change(group, image, [])
        self._take_in(change, soft, resolution.resolved(self._describable), dict.fromkeys(group.patterns()))
        return change
