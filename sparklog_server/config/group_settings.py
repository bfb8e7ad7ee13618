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
        _int("group.min.session.timeout.ms", "The shortest session timeout a classic member may ask for."),
    ] = 6_000
    max_session_timeout_ms: Annotated[
        int, _int("group.max.session.timeout.ms", "The longest session timeout a classic member may ask for.")
    ] = 1_800_000
    initial_rebalance_delay_ms: Annotated[
        int,
        _int(
            "group.initial.rebalance.delay.ms",
            "How long an empty classic group waits for more members before its first rebalance; 0 where it "
            "is not set and the cluster has "
            "one broker.",
        ),
    ] = 3_000
    max_size: Annotated[int, _int("group.max.size", "The most members of a classic group.", 1)] = INT_MAX

    consumer_session_timeout_ms: Annotated[
        int,
        _int(
            "group.consumer.session.timeout.ms",
            "How long a member of a consumer group may be silent before it is out.",
            1,
        ),
    ] = 45_000
    consumer_min_session_timeout_ms: Annotated[
        int,
        _int(
            "group.consumer.min.session.timeout.ms",
            "The shortest session timeout a consumer group may set.",
            1,
        ),
    ] = 45_000
    consumer_max_session_timeout_ms: Annotated[
        int,
        _int(
            "group.consumer.max.session.timeout.ms",
            "The longest session timeout a consumer group may set.",
            1,
        ),
    ] = 60_000
    consumer_heartbeat_interval_ms: Annotated[
        int,
        _int(
            "group.consumer.heartbeat.interval.ms",
            "How often the members of a consumer group are to report.",
            1,
        ),
    ] = 5_000
    consumer_min_heartbeat_interval_ms: Annotated[
        int,
        _int(
            "group.consumer.min.heartbeat.interval.ms",
            "The shortest heartbeat interval a consumer group may set.",
            1,
        ),
    ] = 5_000
    consumer_max_heartbeat_interval_ms: Annotated[
        int,
        _int(
            "group.consumer.max.heartbeat.interval.ms",
            "The longest heartbeat interval a consumer group may set.",
            1,
        ),
    ] = 15_000
    consumer_max_size: Annotated[
        int, _int("group.consumer.max.size", "The most members of a consumer group.", 1)
    ] = INT_MAX
    consumer_assignors: Annotated[
        tuple[str, ...],
        Key(
            "group.consumer.assignors",
            Kind.LIST,
            "How a consumer group shares partitions out: the first is the default.",
            choices=("uniform", "range"),
        ),
    ] = ("uniform", "range")
    consumer_migration_policy: Annotated[
        str,
        Key(
            "group.consumer.migration.policy",
            Kind.STRING,
            "Which way groups may change between the classic and the consumer protocol while they have "
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
            "How often subscriptions by pattern are matched against the topics again.",
            10_000,
        ),
    ] = 600_000
    consumer_assignment_interval_ms: Annotated[
        int,
        _int(
            "group.consumer.assignment.interval.ms",
            "The shortest time between two assignments of a consumer group.",
            0,
            Update.CLUSTER_WIDE,
        ),
    ] = 1_000

    offsets_retention_minutes: Annotated[
        int,
        _int("offsets.retention.minutes", "How long the offsets of a group are kept once it is empty.", 1),
    ] = 10_080
    offsets_retention_check_interval_ms: Annotated[
        int,
        Key("offsets.retention.check.interval.ms", Kind.LONG, "How often expired offsets are looked for.", 1),
    ] = 600_000
