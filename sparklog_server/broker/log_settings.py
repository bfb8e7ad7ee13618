"""From what a topic is told to what its log needs."""

from typing import cast

from sparklog_server.config.settings import BrokerSettings, TopicSettings
from sparklog_server.log.settings import CompressionType, LogSettings, TimestampType


def log_settings(topic: TopicSettings, broker: BrokerSettings) -> LogSettings:
    """The settings of a topic's log on this broker."""
    return LogSettings(
        segment_bytes=topic.segment_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        max_message_bytes=topic.max_message_bytes,
        compression_type=cast("CompressionType", topic.compression_type),
        timestamp_type=cast("TimestampType", topic.message_timestamp_type),
        timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        is_compacted="compact" in topic.cleanup_policy,
        is_deleted="delete" in topic.cleanup_policy,
        validates_compressed=broker.sparklog_validate_compressed,
        decompressed_bytes_max=broker.sparklog_decompress_max_bytes,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
    )
