"""The times that bind one KIP-848 group: the broker's, or the group's own where it has settings, and the
heartbeat that it is advised.
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
    """In milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def times_of(settings: GroupConfig, config: Mapping[str, str] | None) -> GroupTimes:
    """The times of a group with these settings of its own, within what the broker allows; one that is no
    number counts as none.
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
    """After which time a member is to send its next heartbeat: sooner than it is set to while the group
    changes.

    A member learns of its part in a rebalance from the answer to a heartbeat, so one heartbeat interval
    passes for each step of it. For a while after a change (`changed_us`, None if it is not known) the
    interval is a quarter of the time that has passed since, and so a member learns of each step at most a
    quarter later than it could: about twenty heartbeats in all until it is back to its interval. It is
    never below what keeps a group to a thousand heartbeats a second, nor before the moment when the next
    target may be computed.
    """
    interval_ms = times.heartbeat_interval_ms
    if changed_us is None:
        return interval_ms
    since_ms = (now.mono_us - changed_us) // 1_000
    soon_ms = max(_ADVICE_MIN_MS, members // _ADVICE_MEMBERS_PER_MS, since_ms // _ADVICE_SHARE, target_due_ms)
    return min(interval_ms, soon_ms)
