"""A topic's settings as its log uses them: plain values, replaced as a whole when the topic is
reconfigured.
"""

from typing import Literal

import msgspec

from sparklog.record.compression import DECOMPRESSED_BYTES_MAX, RATIO_MAX

CompressionType = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
INT64_MAX = (1 << 63) - 1
CHECKING_BYTES_MAX = 96 << 20


class LogConfig(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Named after Kafka's topic keys, units last; the defaults are Kafka's."""

    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1048588
    compression_type: CompressionType = "producer"
    timestamp_type: TimestampType = "CreateTime"
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    is_compacted: bool = False
    """`cleanup.policy` has `compact`: every record needs a key."""
    is_deleted: bool = True
    """`cleanup.policy` has `delete`."""
    validates_compressed: bool = True
    """`sparklog.validate.compressed`: decompress and walk compressed batches too; always so on a compacted
    topic.
    """
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
    decompressed_ratio_max: int = RATIO_MAX
    checking_bytes_max: int = CHECKING_BYTES_MAX
    """The most memory for the check of one batch: the share of large batches in
    `sparklog.decompress.memory.max`.
    """
    producer_id_expiration_ms: int = 86_400_000
    verifies_transactions: bool = False
    """`transaction.partition.verification.enable`: the first batch of a transaction must be verified by its
    coordinator.
    """
    retention_ms: int = 604_800_000
    """-1 keeps segments however old they are."""
    retention_bytes: int = -1
    """-1 keeps segments however many there are."""
    file_delete_delay_ms: int = 60_000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = 86_400_000
