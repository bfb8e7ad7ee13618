"""The settings of this broker while it runs: the static ones, and the changes in the metadata.

Objects that depend on a setting read it here each time, or the broker updates them when `follow` reports a
change. A topic's settings become the configuration of its log here.
"""

from collections.abc import Callable
from typing import Final, cast

import msgspec

from sparklog_server.config.keys import LONG_MAX
from sparklog_server.config.layers import (
    FOLLOWER_RATE,
    LEADER_RATE,
    MOVE_RATE,
    REASSIGNMENT_RATE,
    Layers,
    dynamic_key,
)
from sparklog_server.config.settings import BrokerSettings, TopicSettings
from sparklog_server.controller.configs import layers_in
from sparklog_server.log.log_config import CompressionType, LogConfig, TimestampType
from sparklog_server.loggers import Level, Loggers
from sparklog_server.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataDelta, MetadataImage
from sparklog_server.replica.log_cleaner import CleaningLimits

CertificatesRefusal = Callable[[BrokerSettings], str | None]
"""Why this node cannot use the certificates of these settings; None if it can. Reads files: for jobs."""


def any_certificates(settings: BrokerSettings) -> None:
    """The refusal of a node without certificates."""


class DynamicBrokerConfig:
    """The settings of the broker and its topics as of the newest published metadata."""

    def __init__(
        self,
        static: BrokerSettings,
        trace: Callable[..., None],
        certificates_refusal: CertificatesRefusal = any_certificates,
    ) -> None:
        self.certificates_refusal = certificates_refusal
        self._image = MetadataImage()
        self._trace = trace
        self._resources = (BROKER_RESOURCE, ""), (BROKER_RESOURCE, str(static.node_id))
        self.layers = Layers.of(static)
        self.loggers = Loggers()
        self.followers: list[Callable[[], None]] = []
        """Called after each change of the settings."""
        self.settings: BrokerSettings = self.layers.effective
        """The broker's settings."""
        self._log_defaults = log_settings(static.topics, static)

    @property
    def is_only_broker(self) -> bool:
        """Whether this broker is the only registered one, counting fenced ones."""
        return len(self._image.brokers) <= 1

    def topic(self, name: str) -> TopicSettings:
        """The settings of a topic."""
        return TopicSettings.kept(self.settings.topics, self._image.topic_config(name))

    def log(self, topic: str) -> LogConfig:
        """The log configuration of a topic; topics without overrides share one object."""
        overrides = self._image.topic_config(topic)
        return (
            log_settings(TopicSettings.kept(self.settings.topics, overrides), self.settings)
            if overrides
            else self._log_defaults
        )

    def follow(self, delta: MetadataDelta) -> bool:
        """Apply published metadata; returns whether settings of this broker changed."""
        self._image = delta.after
        for resource_type, name in delta.configs_changed:
            if resource_type == TOPIC_RESOURCE and (
                keys := TopicSettings.unreadable(delta.after.topic_config(name))
            ):
                self._trace("topic-settings-unreadable", topic=name, keys=",".join(keys))
        if not any(resource in delta.configs_changed for resource in self._resources):
            return False
        before = self.layers
        self._set(layers_in(delta.after, before.static))
        self._tell(before)
        return True

    def reload(self, static: BrokerSettings) -> None:
        """Replace the static settings."""
        self._set(layers_in(self._image, static))

    def _set(self, layers: Layers) -> None:
        self.layers = layers
        self.settings = layers.effective
        self._log_defaults = log_settings(self.settings.topics, self.settings)
        for changed in self.followers:
            changed()

    def set_level(self, logger: str, level: Level | None, principal: str) -> None:
        """Change the level of a logger until the broker stops; None takes its own level away."""
        self.loggers.set(logger, level)
        in_force = self.loggers.level_of(logger).name
        self._trace("logger-level-changed", of=logger, to=in_force, principal=principal)

    def _tell(self, before: Layers) -> None:
        """One log line for a change, without the values, because some are secrets."""
        after = self.layers
        pairs = ((before.cluster, after.cluster), (before.broker, after.broker))
        names = sorted(
            {name for old, new in pairs for name in {**old, **new} if old.get(name) != new.get(name)}
        )
        idle = [name for name in names if (key := dynamic_key(name)) is not None and not key.has_effect]
        more = {"without_effect": ",".join(idle)} if idle else {}
        if after.conflict:
            more["ignored"] = after.conflict
        self._trace("settings-changed", keys=",".join(names), **more)


INLINE_BYTES_MAX: Final = 256 << 10
"""The bytes to which the batches of one request may decompress without a job."""


class DecompressMemory(msgspec.Struct, frozen=True):
    """The division of `sparklog.decompress.memory.max`; the remainder is for batches that the loop
    decompresses, one request at a time.
    """

    jobs_bytes: int
    """The limit for the jobs of all requests together."""
    job_bytes_max: int
    """The limit for one job; the rest stays free for smaller ones."""
    cleaned_batch_bytes_max: int
    """The largest batch that compaction may decompress. It needs this twice: for the old and the new
    batch.
    """


def decompress_memory(broker: BrokerSettings) -> DecompressMemory:
    """The shares of the memory for decompressed batches."""
    whole = broker.sparklog_decompress_memory_max
    cleaning = whole * 3 // 8
    jobs = whole - cleaning - INLINE_BYTES_MAX
    return DecompressMemory(jobs, jobs * 3 // 4, cleaning // (2 * max(broker.cleaner.threads, 1)))


def log_settings(topic: TopicSettings, broker: BrokerSettings) -> LogConfig:
    """The settings of a topic's log on this broker."""
    is_compacted = "compact" in topic.cleanup_policy
    memory = decompress_memory(broker)
    decompressed_bytes_max = broker.sparklog_decompress_max_bytes
    return LogConfig(
        segment_bytes=topic.segment_bytes_effective,
        segment_index_bytes=topic.segment_index_bytes,
        # Compaction skips the active segment, so a segment that must be compacted in time must roll in time.
        segment_ms=min(topic.segment_ms, topic.max_compaction_lag_ms) if is_compacted else topic.segment_ms,
        segment_jitter_ms=topic.segment_jitter_ms,
        index_interval_bytes=topic.index_interval_bytes,
        max_message_bytes=topic.max_message_bytes,
        compression_type=cast("CompressionType", topic.compression_type),
        timestamp_type=cast("TimestampType", topic.message_timestamp_type),
        timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        is_compacted=is_compacted,
        is_deleted="delete" in topic.cleanup_policy,
        validates_compressed=broker.sparklog_validate_compressed,
        # A batch that compaction cannot decompress would stop the compaction of its log.
        decompressed_bytes_max=min(decompressed_bytes_max, memory.cleaned_batch_bytes_max)
        if is_compacted
        else decompressed_bytes_max,
        decompressed_ratio_max=broker.sparklog_decompress_ratio_max,
        checking_bytes_max=memory.job_bytes_max,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        verifies_transactions=broker.transactions.partition_verification_enable,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        file_delete_delay_ms=topic.file_delete_delay_ms,
        flush_messages=topic.flush_messages,
        flush_ms=topic.flush_ms,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        delete_retention_ms=topic.delete_retention_ms,
    )


def cleaning_limits(broker: BrokerSettings) -> CleaningLimits:
    """The resources of this broker that compaction may use."""
    return CleaningLimits(
        is_enabled=broker.cleaner.enable and broker.cleaner.threads > 0,
        threads=max(broker.cleaner.threads, 1),
        table_bytes_max=broker.cleaner.dedupe_buffer_size,
        # Kafka has no bounds for these two; a table must have an empty slot, and a rate must be finite.
        load_factor=min(max(broker.cleaner.io_buffer_load_factor, 0.01), 0.99),
        io_bytes_per_second_max=max(broker.cleaner.io_max_bytes_per_second, 1.0),
        backoff_ms=broker.cleaner.backoff_ms,
    )


def move_rate_max(layers: Layers) -> float:
    """The bytes per second at which replicas may move between directories; infinite if nothing is set."""
    text = layers.broker.get(MOVE_RATE, layers.cluster.get(MOVE_RATE))
    return float("inf") if text is None else max(float(text), 1.0)


class ReplicationRates(msgspec.Struct, frozen=True):
    """The bytes per second of throttled replication; None: not bounded. `leader` and `follower` apply to the
    replicas that topics list (KIP-73), `reassignment` to all that are outside the ISR, on either side.
    """

    leader: int | None = None
    follower: int | None = None
    reassignment: int | None = None


UNTHROTTLED: Final = ReplicationRates()


def replication_rates(layers: Layers) -> ReplicationRates:
    """The rates in force."""

    def rate(name: str) -> int | None:
        text = layers.broker.get(name, layers.cluster.get(name))
        return None if text is None or int(text) == LONG_MAX else int(text)

    return ReplicationRates(rate(LEADER_RATE), rate(FOLLOWER_RATE), rate(REASSIGNMENT_RATE))


def throttled_partitions(listed: tuple[str, ...], node_id: int) -> frozenset[int] | None:
    """The partitions of which a topic lists the replica on a node, as `partition:broker`; None: `*`, all."""
    if listed == ("*",):
        return None
    pairs = [one.partition(":") for one in listed if one]
    return frozenset(int(index) for index, _, broker in pairs if int(broker) == node_id)
