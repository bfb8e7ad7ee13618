"""The group coordinator of this broker: its shards over the partitions of `__consumer_offsets` that this node
leads.

A request goes to the shard of its group as a command with a token; the answer has the same token, which
identifies the call to answer.
"""

from collections.abc import Callable, Sequence
from functools import partial

from sparklog.record.batch import HEADER_SIZE, record_size_max
from sparklog_server.agenda import Agenda
from sparklog_server.broker.access.authorization import Authorization
from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards, compacted_topic
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.group.group_config import GroupConfig
from sparklog_server.coordinator.group.joining_clients import JoiningClients
from sparklog_server.coordinator.placement import OFFSETS_TOPIC
from sparklog_server.coordinator.shard import Shard
from sparklog_server.replica.directory import Trace

_INITIAL_DELAY = "group.initial.rebalance.delay.ms"
_AROUND_A_RECORD = HEADER_SIZE + record_size_max(b"", b"", ())
"""The bytes of a batch of one record besides its key and value, including a few for their length fields."""


def open_groups(
    live: DynamicBrokerConfig,
    authorization: Authorization,
    continuations: Continuations,
    agenda: Agenda,
    *,
    entropy: Callable[[int], bytes],
    trace: Trace,
) -> CoordinatorShards:
    """Open the group coordinator."""
    settings = live.settings
    group_settings = group_settings_of(settings)

    def describable(command: Command, topics: Sequence[str]) -> list[str]:
        return [topic for topic in topics if authorization.describes(command, topic)]

    topic = compacted_topic(
        OFFSETS_TOPIC,
        partition_count=settings.internal_topics.offsets_topic_num_partitions,
        replication_factor=settings.internal_topics.offsets_topic_replication_factor,
        configs={"segment.bytes": str(settings.internal_topics.offsets_topic_segment_bytes)},
    )

    crowds = JoiningClients()
    is_delay_set = _INITIAL_DELAY in settings.given

    def initial_delay_ms() -> int:
        # Kafka's 3 s are for consumers that start together in a fleet; a cluster of one does not wait for
        # them (decision 0014).
        return group_settings.initial_rebalance_delay_ms if is_delay_set or not live.is_only_broker else 0

    def make_shard() -> Shard:
        # Imported here, because a start without groups does not need these modules.
        from sparklog_server.coordinator.group.modern_kind import ModernGroupKind
        from sparklog_server.coordinator.group.shard import RECORD_BYTES_MAX, GroupShard

        def record_bytes_max() -> int:
            return min(RECORD_BYTES_MAX, live.log(OFFSETS_TOPIC).max_message_bytes - _AROUND_A_RECORD)

        make_modern = partial(
            ModernGroupKind,
            settings=lambda: group_settings_of(live.settings),
            entropy=entropy,
            describable=describable,
            record_bytes_max=record_bytes_max,
        )
        return GroupShard(
            group_settings,
            entropy=entropy,
            trace=trace,
            record_bytes_max=record_bytes_max,
            make_modern=make_modern,
            crowds=crowds,
            initial_delay_ms=initial_delay_ms,
        )

    return CoordinatorShards(
        topic,
        make_shard,
        continuations,
        agenda,
        node_id=settings.node_id,
        entropy=entropy,
        trace=trace,
        sought=crowds.sought,
    )


def group_settings_of(settings: BrokerSettings) -> GroupConfig:
    """The limits of groups, from the broker's settings."""
    keys = settings.groups
    return GroupConfig(
        session_timeout_min_ms=keys.min_session_timeout_ms,
        session_timeout_max_ms=keys.max_session_timeout_ms,
        initial_rebalance_delay_ms=keys.initial_rebalance_delay_ms,
        size_max=keys.max_size,
        consumer_session_timeout_ms=keys.consumer_session_timeout_ms,
        consumer_session_timeout_min_ms=keys.consumer_min_session_timeout_ms,
        consumer_session_timeout_max_ms=keys.consumer_max_session_timeout_ms,
        consumer_heartbeat_interval_ms=keys.consumer_heartbeat_interval_ms,
        consumer_heartbeat_interval_min_ms=keys.consumer_min_heartbeat_interval_ms,
        consumer_heartbeat_interval_max_ms=keys.consumer_max_heartbeat_interval_ms,
        consumer_size_max=keys.consumer_max_size,
        consumer_assignors=keys.consumer_assignors,
        consumer_migration_policy=keys.consumer_migration_policy.lower(),
        consumer_regex_refresh_interval_ms=keys.consumer_regex_refresh_interval_ms,
        consumer_assignment_interval_ms=keys.consumer_assignment_interval_ms,
        offset_metadata_bytes_max=settings.offset_metadata_max_bytes,
        offsets_retention_ms=keys.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=keys.offsets_retention_check_interval_ms,
    )
