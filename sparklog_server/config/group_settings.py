"""The settings of consumer groups: each field is the definition of a broker key, as in `settings`, of
which this is a part.

A group can set the keys of `GROUP_KEYS` for itself (KIP-848), within `group.consumer.min…` and `…max…` here.
"""

from typing import Annotated

import msgspec

from .keys import INT_MAX, Key, Kind, Update


def _int(name: str, doc: str, at_least: int | None = None, update: Update = Update.READ_ONLY) -> Key:
    return Key(name, Kind.INT, doc, at_least, update=update)


class GroupDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of every group of this broker. Durations in ms unless the name says otherwise."""

    min_session_timeout_ms: Annotated[
        int,
        _int("group.min.session.timeout.ms", "The minimum session timeout of a classic member."),
    ] = 6_000
    max_session_timeout_ms: Annotated[
        int, _int("group.max.session.timeout.ms", "The maximum session timeout of a classic member.")
    ] = 1_800_000
    initial_rebalance_delay_ms: Annotated[
        int,
        _int(
            "group.initial.rebalance.delay.ms",
            "The time that an empty classic group waits for more members before its first rebalance. When "
            "not set and the cluster has one broker, 0.",
        ),
    ] = 3_000
    max_size: Annotated[
        int, _int("group.max.size", "The maximum number of members of a classic group.", 1)
    ] = INT_MAX

    consumer_session_timeout_ms: Annotated[
        int,
        _int(
            "group.consumer.session.timeout.ms",
            "A member of a consumer group that sends no heartbeat for this long is removed.",
            1,
        ),
    ] = 45_000
    consumer_min_session_timeout_ms: Annotated[
        int,
        _int(
            "group.consumer.min.session.timeout.ms",
            "The minimum session timeout that a consumer group can set.",
            1,
        ),
    ] = 45_000
    consumer_max_session_timeout_ms: Annotated[
        int,
        _int(
            "group.consumer.max.session.timeout.ms",
            "The maximum session timeout that a consumer group can set.",
            1,
        ),
    ] = 60_000
    consumer_heartbeat_interval_ms: Annotated[
        int,
        _int(
            "group.consumer.heartbeat.interval.ms",
            "The heartbeat interval of the members of a consumer group.",
            1,
        ),
    ] = 5_000
    consumer_min_heartbeat_interval_ms: Annotated[
        int,
        _int(
            "group.consumer.min.heartbeat.interval.ms",
            "The minimum heartbeat interval that a consumer group can set.",
            1,
        ),
    ] = 5_000
    consumer_max_heartbeat_interval_ms: Annotated[
        int,
        _int(
            "group.consumer.max.heartbeat.interval.ms",
            "The maximum heartbeat interval that a consumer group can set.",
            1,
        ),
    ] = 15_000
    consumer_max_size: Annotated[
        int, _int("group.consumer.max.size", "The maximum number of members of a consumer group.", 1)
    ] = INT_MAX
    consumer_assignors: Annotated[
        tuple[str, ...],
        Key(
            "group.consumer.assignors",
            Kind.LIST,
            "The assignors of consumer groups. The first is the default.",
            choices=("uniform", "range"),
        ),
    ] = ("uniform", "range")
    consumer_migration_policy: Annotated[
        str,
        Key(
            "group.consumer.migration.policy",
            Kind.STRING,
            "The permitted conversions between the classic and the consumer protocol of a group with "
            "members.",
            choices=tuple(
                word
                for name in ("disabled", "downgrade", "upgrade", "bidirectional")
                for word in (name, name.upper())
            ),
        ),
    ] = "bidirectional"
    consumer_regex_refresh_interval_ms: Annotated[
        int,
        _int(
            "group.consumer.regex.refresh.interval.ms",
            "The interval between evaluations of pattern subscriptions against the topics.",
            10_000,
        ),
    ] = 600_000
    consumer_assignment_interval_ms: Annotated[
        int,
        _int(
            "group.consumer.assignment.interval.ms",
            "The minimum time between two assignments of a consumer group.",
            0,
            Update.CLUSTER_WIDE,
        ),
    ] = 1_000

    offsets_retention_minutes: Annotated[
        int,
        _int("offsets.retention.minutes", "The time that the offsets of an empty group are kept.", 1),
    ] = 10_080
    offsets_retention_check_interval_ms: Annotated[
        int,
        Key(
            "offsets.retention.check.interval.ms",
            Kind.LONG,
            "The interval between checks for expired offsets.",
            1,
        ),
    ] = 600_000
