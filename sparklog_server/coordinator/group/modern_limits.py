"""The timeouts and intervals of one KIP-848 group, from the broker's settings and its own, and the heartbeat
interval that it advises.
"""

from collections.abc import Mapping

import msgspec

from sparklog.model import Instant, Micros

from .group_config import GroupConfig

GROUP_RESOURCE = 32
"""Kafka's number for settings of a group."""

_ASSIGNMENT_INTERVAL_MAX_MS = 15_000
_ADVICE_MIN_MS = 100
_ADVICE_MEMBERS_PER_MS = 1
_ADVICE_SHARE = 4


class GroupTimes(msgspec.Struct, frozen=True, gc=False):
    """The timeouts and intervals of a group, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def times_of(settings: GroupConfig, config: Mapping[str, str] | None) -> GroupTimes:
    """The times of a group with these settings of its own, limited to the broker's bounds; a setting that is
    not a number is ignored.
    """
    own = config or {}
    return GroupTimes(
        session_timeout_ms=_within(
            own.get("consumer.session.timeout.ms"),
            settings.consumer_session_timeout_ms,
            settings.consumer_session_timeout_min_ms,
            settings.consumer_session_timeout_max_ms,
        ),
        heartbeat_interval_ms=_within(
            own.get("consumer.heartbeat.interval.ms"),
            settings.consumer_heartbeat_interval_ms,
            settings.consumer_heartbeat_interval_min_ms,
            settings.consumer_heartbeat_interval_max_ms,
        ),
        assignment_interval_ms=_within(
            own.get("consumer.assignment.interval.ms"),
            settings.consumer_assignment_interval_ms,
            0,
            _ASSIGNMENT_INTERVAL_MAX_MS,
        ),
    )


def _within(text: str | None, default: int, least: int, most: int) -> int:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 10:
        return default
    return min(max(int(text), least), most)


def advised_interval_ms(
    times: GroupTimes, *, members: int, changed_us: Micros | None, target_due_ms: int, now: Instant
) -> int:
    """The interval after which a member should send its next heartbeat: shorter than the setting while the
    group changes.

    A member learns of its part in a rebalance from the answer to a heartbeat, so each step of the rebalance
    takes one heartbeat interval. After a change (`changed_us`, None if it is not known) the interval is a
    quarter of the time since the change. A member therefore learns of each step at most a quarter later than
    possible, and sends about twenty heartbeats until the interval is that of the setting again. The interval
    is never shorter than a thousand heartbeats per second and group allow, and never ends before the next
    target may be computed.
    """
    interval_ms = times.heartbeat_interval_ms
    if changed_us is None:
        return interval_ms
    since_ms = (now.mono_us - changed_us) // 1_000
    soon_ms = max(_ADVICE_MIN_MS, members // _ADVICE_MEMBERS_PER_MS, since_ms // _ADVICE_SHARE, target_due_ms)
    return min(interval_ms, soon_ms)
