"""The limits of groups: Kafka's keys, resolved to plain values by the broker."""

import msgspec


class GroupConfig(msgspec.Struct, frozen=True):
    """Times are in milliseconds; the defaults are Kafka's. The settings of a single group (KIP-848) lie
    within `*_min` and `*_max`.
    """

    # classic groups
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    size_max: int = 2**31 - 1
    # KIP-848 groups
    consumer_session_timeout_ms: int = 45_000
    consumer_session_timeout_min_ms: int = 45_000
    consumer_session_timeout_max_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_heartbeat_interval_min_ms: int = 5_000
    consumer_heartbeat_interval_max_ms: int = 15_000
    consumer_size_max: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_assignment_interval_ms: int = 1_000
    # offsets
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
