"""A part of `settings`: compaction, the metadata log, internal topics. Each field defines a broker key."""

from typing import Annotated

import msgspec

from .keys import DOUBLE_MAX, Key, Kind, Update
from .keys import boolean as _boolean
from .keys import integer as _int
from .keys import long as _long
from .keys import short as _short

_MIB = 1 << 20
_CLUSTER = Update.CLUSTER_WIDE


class CleanerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of log compaction. Durations in ms, sizes in bytes."""

    enable: Annotated[
        bool,
        _boolean(
            "log.cleaner.enable",
            "Enable compaction. If false, topics with `cleanup.policy=compact` grow without limit.",
        ),
    ] = True
    threads: Annotated[
        int, _int("log.cleaner.threads", "The number of logs compacted at the same time.", 0, update=_CLUSTER)
    ] = 1
    dedupe_buffer_size: Annotated[
        int,
        _long(
            "log.cleaner.dedupe.buffer.size",
            "The memory for the keys of a compaction, 24 bytes each, over all threads.",
            update=_CLUSTER,
        ),
    ] = 128 * _MIB
    io_buffer_load_factor: Annotated[
        float,
        Key(
            "log.cleaner.io.buffer.load.factor",
            Kind.DOUBLE,
            "The maximum load factor of the compaction's key table; below 1.",
            update=_CLUSTER,
        ),
    ] = 0.9
    io_max_bytes_per_second: Annotated[
        float,
        Key(
            "log.cleaner.io.max.bytes.per.second",
            Kind.DOUBLE,
            "The maximum bytes per second that compaction reads and writes.",
            update=_CLUSTER,
        ),
    ] = DOUBLE_MAX
    backoff_ms: Annotated[
        int,
        _long("log.cleaner.backoff.ms", "The pause of compaction when no log needs it.", 0, _CLUSTER),
    ] = 15_000


class MetadataLogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The segments and snapshots of the metadata log. Durations in ms, sizes in bytes."""

    segment_bytes: Annotated[
        int, _int("metadata.log.segment.bytes", "The segment size of the metadata log.", 8 * _MIB)
    ] = 1_073_741_824
    segment_ms: Annotated[
        int, _long("metadata.log.segment.ms", "The age at which a segment of the metadata log is rolled.")
    ] = 604_800_000
    retention_bytes_max: Annotated[
        int,
        _long(
            "metadata.max.retention.bytes",
            "The total size of the metadata log and its snapshots. Beyond it, the oldest are deleted.",
        ),
    ] = 104_857_600
    retention_ms_max: Annotated[
        int, _long("metadata.max.retention.ms", "The age at which snapshots are deleted.")
    ] = 604_800_000
    bytes_between_snapshots_max: Annotated[
        int,
        _long(
            "metadata.log.max.record.bytes.between.snapshots",
            "The bytes of new metadata records after which a snapshot is written.",
            1,
        ),
    ] = 20_971_520
    snapshot_interval_ms_max: Annotated[
        int,
        _long(
            "metadata.log.max.snapshot.interval.ms",
            "The maximum time between snapshots if there are new records. 0 disables this.",
            0,
        ),
    ] = 3_600_000
    idle_interval_ms_max: Annotated[
        int,
        _int(
            "metadata.max.idle.interval.ms",
            "In a cluster of several nodes, the active controller writes a NoOpRecord when the metadata log "
            "was idle for this long, so that the lag of each node is visible. 0 disables this.",
            0,
        ),
    ] = 500


class InternalTopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of `__consumer_offsets` and `__transaction_state` when they are created."""

    offsets_topic_num_partitions: Annotated[
        int,
        _int(
            "offsets.topic.num.partitions",
            "The number of partitions of `__consumer_offsets`. Do not change it after the first start.",
            1,
        ),
    ] = 50
    offsets_topic_replication_factor: Annotated[
        int,
        _short(
            "offsets.topic.replication.factor",
            "The replication factor of `__consumer_offsets`. Kafka's default is 3.",
            1,
        ),
    ] = 1
    offsets_topic_segment_bytes: Annotated[
        int, _int("offsets.topic.segment.bytes", "The segment size of `__consumer_offsets`.", 1)
    ] = 104_857_600
    transaction_state_log_num_partitions: Annotated[
        int,
        _int(
            "transaction.state.log.num.partitions",
            "The number of partitions of `__transaction_state`. Do not change it after the first start.",
            1,
        ),
    ] = 50
    transaction_state_log_replication_factor: Annotated[
        int,
        _short(
            "transaction.state.log.replication.factor",
            "The replication factor of `__transaction_state`. Kafka's default is 3.",
            1,
        ),
    ] = 1
    transaction_state_log_min_isr: Annotated[
        int,
        _int(
            "transaction.state.log.min.isr",
            "The minimum number of in-sync replicas of `__transaction_state`. Kafka's default is 2.",
            1,
        ),
    ] = 1
    transaction_state_log_segment_bytes: Annotated[
        int, _int("transaction.state.log.segment.bytes", "The segment size of `__transaction_state`.", 1)
    ] = 104_857_600
