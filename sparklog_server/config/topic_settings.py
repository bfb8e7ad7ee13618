"""The settings of one topic: each field defines a topic key and the broker keys that supply its default."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

import msgspec

from sparklog.errors import SettingsError

from .keys import LONG_MAX, Key, Kind, Synonym, Update, Value, fields_of, invalid


def _boolean(name: str, broker_name: str, doc: str) -> Key:
    return Key(name, Kind.BOOLEAN, doc, update=Update.CLUSTER_WIDE, synonyms=_same(broker_name, Kind.BOOLEAN))


def _int(
    name: str,
    broker_name: str,
    doc: str,
    at_least: float,
    at_most: float | None = None,
    also: int | None = None,
) -> Key:
    return Key(
        name,
        Kind.INT,
        doc,
        at_least,
        at_most,
        also,
        update=Update.CLUSTER_WIDE,
        synonyms=_same(broker_name, Kind.INT),
    )


def _long(name: str, broker: str | tuple[Synonym, ...], doc: str, at_least: float | None = None) -> Key:
    synonyms = _same(broker, Kind.LONG) if isinstance(broker, str) else broker
    return Key(name, Kind.LONG, doc, at_least, update=Update.CLUSTER_WIDE, synonyms=synonyms)


def _choice(name: str, broker_name: str, doc: str, choices: tuple[str, ...], kind: Kind = Kind.STRING) -> Key:
    return Key(
        name, kind, doc, choices=choices, update=Update.CLUSTER_WIDE, synonyms=_same(broker_name, kind)
    )


def _throttled(name: str, doc: str) -> Key:
    return Key(name, Kind.LIST, doc, are_entries_free=True)


def _later(key: Key) -> Key:
    """A key without effect yet: it is checked, and setting it in a broker's file causes a warning."""
    return msgspec.structs.replace(key, has_effect=False)


def _same(broker_name: str, kind: Kind) -> tuple[Synonym, ...]:
    return (Synonym(broker_name, kind),) if broker_name else ()


_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_HINTED_LENGTH_MAX = 100  # a longer comparison takes milliseconds
_THROTTLED = r"([0-9]+:[0-9]+)?"
_DELETES_NOTHING: dict[str, object] = {"cleanup.policy": (), "retention.bytes": -1, "retention.ms": -1}
"""The value, by key, with which a stored override that cannot be read deletes no record."""
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a topic, and their defaults. Durations in ms, sizes in bytes; -1 means no limit."""

    cleanup_policy: Annotated[
        tuple[str, ...],
        _choice(
            "cleanup.policy",
            "log.cleanup.policy",
            "How old records are removed: `delete` deletes segments by age or size, `compact` keeps the "
            "last record of each key. Both can be set; an empty list keeps all records.",
            ("compact", "delete"),
            Kind.LIST,
        ),
    ] = ("delete",)
    compression_type: Annotated[
        str,
        _choice(
            "compression.type",
            "compression.type",
            "The codec in which records are stored. `producer` keeps the producer's codec.",
            _CODECS,
        ),
    ] = "producer"
    compression_gzip_level: Annotated[
        int,
        _later(
            _int(
                "compression.gzip.level",
                "compression.gzip.level",
                "The compression level of gzip. -1 means the default of gzip.",
                1,
                9,
                -1,
            )
        ),
    ] = -1
    compression_lz4_level: Annotated[
        int,
        _later(
            _int(
                "compression.lz4.level",
                "compression.lz4.level",
                "The compression level of lz4.",
                1,
                17,
            )
        ),
    ] = 9
    compression_zstd_level: Annotated[
        int,
        _later(
            _int(
                "compression.zstd.level",
                "compression.zstd.level",
                "The compression level of zstd.",
                -131072,
                22,
            )
        ),
    ] = 3
    delete_retention_ms: Annotated[
        int,
        _long(
            "delete.retention.ms",
            "log.cleaner.delete.retention.ms",
            "The time that a tombstone is kept in a compacted topic, so that a reader from the start sees "
            "the deletion.",
            0,
        ),
    ] = 86_400_000
    file_delete_delay_ms: Annotated[
        int,
        _long(
            "file.delete.delay.ms",
            "log.segment.delete.delay.ms",
            "The delay before the files of a removed segment are deleted.",
            0,
        ),
    ] = 60_000
    flush_messages: Annotated[
        int,
        _long(
            "flush.messages",
            "log.flush.interval.messages",
            "The number of records after which the log is synced, in addition to syncs for acknowledgements.",
            1,
        ),
    ] = LONG_MAX
    flush_ms: Annotated[
        int,
        _long(
            "flush.ms",
            (
                Synonym("log.flush.interval.ms", Kind.LONG),
                Synonym("log.flush.scheduler.interval.ms", Kind.LONG, default=LONG_MAX),
            ),
            "The age of the oldest unsynced record at which the log is synced, in addition to syncs for "
            "acknowledgements.",
            0,
        ),
    ] = LONG_MAX
    follower_replication_throttled_replicas: Annotated[
        tuple[str, ...],
        _throttled(
            "follower.replication.throttled.replicas",
            "The replicas that `follower.replication.throttled.rate` of their broker applies to, as "
            "`partition:broker`; `*` means all.",
        ),
    ] = ()
    index_interval_bytes: Annotated[
        int,
        _int(
            "index.interval.bytes",
            "log.index.interval.bytes",
            "The bytes of log between two entries of the offset index.",
            0,
        ),
    ] = 4096
    leader_replication_throttled_replicas: Annotated[
        tuple[str, ...],
        _throttled(
            "leader.replication.throttled.replicas",
            "The partitions that `leader.replication.throttled.rate` of a broker applies to while it leads "
            "them, as `partition:broker`; `*` means all.",
        ),
    ] = ()
    local_retention_bytes: Annotated[
        int,
        _later(
            _long(
                "local.retention.bytes",
                "log.local.retention.bytes",
                "The bytes of a tiered partition kept on local disk. -2 means `retention.bytes`.",
                -2,
            )
        ),
    ] = -2
    local_retention_ms: Annotated[
        int,
        _later(
            _long(
                "local.retention.ms",
                "log.local.retention.ms",
                "The time that a tiered segment is kept on local disk. -2 means `retention.ms`.",
                -2,
            )
        ),
    ] = -2
    max_compaction_lag_ms: Annotated[
        int,
        _long(
            "max.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
            "The maximum time that a record stays uncompacted.",
            1,
        ),
    ] = LONG_MAX
    max_message_bytes: Annotated[
        int,
        _int(
            "max.message.bytes",
            "message.max.bytes",
            "The maximum size of a record batch, after compression by the producer.",
            0,
        ),
    ] = 1_048_588
    message_timestamp_after_max_ms: Annotated[
        int,
        _long(
            "message.timestamp.after.max.ms",
            "log.message.timestamp.after.max.ms",
            "The maximum time by which a record's CreateTime may be ahead of the broker's clock.",
            0,
        ),
    ] = 3_600_000
    message_timestamp_before_max_ms: Annotated[
        int,
        _long(
            "message.timestamp.before.max.ms",
            "log.message.timestamp.before.max.ms",
            "The maximum time by which a record's CreateTime may be behind the broker's clock.",
            0,
        ),
    ] = LONG_MAX
    message_timestamp_type: Annotated[
        str,
        _choice(
            "message.timestamp.type",
            "log.message.timestamp.type",
            "The timestamp of a record: the producer's (CreateTime) or the broker's at the append "
            "(LogAppendTime).",
            ("CreateTime", "LogAppendTime"),
        ),
    ] = "CreateTime"
    min_cleanable_dirty_ratio: Annotated[
        float,
        Key(
            "min.cleanable.dirty.ratio",
            Kind.DOUBLE,
            "The minimum ratio of uncompacted bytes to the size of the log at which it is compacted.",
            0,
            1,
            update=Update.CLUSTER_WIDE,
            synonyms=(Synonym("log.cleaner.min.cleanable.ratio", Kind.DOUBLE),),
        ),
    ] = 0.5
    min_compaction_lag_ms: Annotated[
        int,
        _long(
            "min.compaction.lag.ms",
            "log.cleaner.min.compaction.lag.ms",
            "The minimum time that a record stays uncompacted.",
            0,
        ),
    ] = 0
    min_insync_replicas: Annotated[
        int,
        _int(
            "min.insync.replicas",
            "min.insync.replicas",
            "The minimum number of in-sync replicas, including the leader, for a write with acks=all.",
            1,
        ),
    ] = 1
    preallocate: Annotated[
        bool,
        _later(
            _boolean("preallocate", "log.preallocate", "Allocate the full size of a new segment on disk.")
        ),
    ] = False
    remote_log_copy_disable: Annotated[
        bool,
        _later(
            _boolean("remote.log.copy.disable", "", "Stop copying segments of this topic to tiered storage.")
        ),
    ] = False
    remote_log_delete_on_disable: Annotated[
        bool,
        _later(
            _boolean(
                "remote.log.delete.on.disable",
                "",
                "Delete the tiered segments when tiered storage is disabled.",
            )
        ),
    ] = False
    remote_storage_enable: Annotated[
        bool,
        _later(_boolean("remote.storage.enable", "", "Keep old segments of this topic in tiered storage.")),
    ] = False
    retention_bytes: Annotated[
        int,
        _long(
            "retention.bytes",
            "log.retention.bytes",
            "The maximum size of a partition. Beyond it, the oldest segments are deleted.",
        ),
    ] = -1
    retention_ms: Annotated[
        int,
        _long(
            "retention.ms",
            (
                Synonym("log.retention.ms", Kind.LONG),
                Synonym("log.retention.minutes", Kind.INT, _MINUTE_MS),
                Synonym("log.retention.hours", Kind.INT, _HOUR_MS, default=168),
            ),
            "The age of a segment's newest record at which the segment is deleted.",
            -1,
        ),
    ] = 604_800_000
    segment_bytes: Annotated[
        int,
        _int(
            "segment.bytes",
            "log.segment.bytes",
            "The size at which a segment is rolled.",
            1_048_576,
        ),
    ] = 1_073_741_824
    segment_index_bytes: Annotated[
        int,
        _int(
            "segment.index.bytes",
            "log.index.size.max.bytes",
            "The size of the offset index at which a segment is rolled.",
            4,
        ),
    ] = 10_485_760
    segment_jitter_ms: Annotated[
        int,
        _long(
            "segment.jitter.ms",
            (
                Synonym("log.roll.jitter.ms", Kind.LONG),
                Synonym("log.roll.jitter.hours", Kind.INT, _HOUR_MS, default=0, at_least=0),
            ),
            "The maximum time subtracted from `segment.ms`, by partition, so that segments are not all "
            "rolled at once.",
            0,
        ),
    ] = 0
    segment_ms: Annotated[
        int,
        _long(
            "segment.ms",
            (
                Synonym("log.roll.ms", Kind.LONG),
                Synonym("log.roll.hours", Kind.INT, _HOUR_MS, default=168, at_least=1),
            ),
            "The age at which a segment is rolled even if it is small, so that retention and compaction "
            "can process it.",
            1,
        ),
    ] = 604_800_000
    unclean_leader_election_enable: Annotated[
        bool,
        _boolean(
            "unclean.leader.election.enable",
            "unclean.leader.election.enable",
            "Elect a replica outside the ISR as leader if no in-sync replica is left. Acknowledged "
            "records may be lost.",
        ),
    ] = False
    internal_segment_bytes: Annotated[
        int | None,
        Key(
            "internal.segment.bytes",
            Kind.INT,
            "A segment size below the public minimum, for tests.",
            1,
        ),
    ] = None
    sparklog_ack_flush: Annotated[
        str,
        _choice(
            "sparklog.ack.flush",
            "sparklog.ack.flush",
            "Whether a record must be synced to disk before it counts as committed: `always`; `never`, "
            "where the memory of the replicas is enough, as in Kafka; or `auto`, which syncs if the topic "
            "has one replica.",
            ("auto", "always", "never"),
        ),
    ] = "auto"

    @staticmethod
    def of(defaults: "TopicSettings", overrides: Mapping[str, str | None]) -> "TopicSettings":
        """The settings of a topic with these overrides by key; raises SettingsError with the text of
        Kafka's INVALID_CONFIG.
        """
        changes: dict[str, Any] = {}
        for name, text in overrides.items():
            known = topic_keys().get(name)
            if known is None:
                raise SettingsError(f"Unknown topic config name: {name}{nearest(name, topic_keys())}")
            if text is not None:
                changes[known[0]] = known[1].parse(text)
        settings = msgspec.structs.replace(defaults, **changes) if changes else defaults
        _validate_values(settings)
        return settings

    @staticmethod
    def kept(defaults: "TopicSettings", overrides: Mapping[str, str]) -> "TopicSettings":
        """The settings of a topic whose overrides were valid when they were set, perhaps by another release
        or with other defaults.

        Overrides unknown to this release are left out; two that contradict each other both apply, as in
        Kafka. If one that decides what is deleted has a value that this release cannot read, it deletes
        nothing.
        """
        changes: dict[str, Any] = {}
        for name, text in overrides.items():
            if name in topic_keys():
                field, key = topic_keys()[name]
                try:
                    changes[field] = key.parse(text)
                except SettingsError:
                    if name in _DELETES_NOTHING:
                        changes[field] = _DELETES_NOTHING[name]
        return msgspec.structs.replace(defaults, **changes) if changes else defaults

    @staticmethod
    def unreadable(overrides: Mapping[str, str]) -> list[str]:
        """The keys of stored overrides whose values this release cannot read, sorted."""
        found = []
        for name in sorted(overrides.keys() & topic_keys().keys()):
            try:
                topic_keys()[name][1].parse(overrides[name])
            except SettingsError:
                found.append(name)
        return found

    @property
    def segment_bytes_effective(self) -> int:
        """The size at which a segment is rolled, including the internal key."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes


@cache
def topic_keys() -> dict[str, tuple[str, Key]]:
    """(field, key) by topic key, in alphabetical order of the keys."""
    return {
        key.name: (field, key)
        for field, key in sorted(fields_of(TopicSettings), key=lambda pair: pair[1].name)
    }


@cache
def topic_keys_of_broker() -> dict[str, tuple[str, Key, Synonym]]:
    """(topic field, its key, the synonym) for every broker key that supplies the default of a topic key."""
    return {
        synonym.name: (field, key, synonym)
        for field, key in fields_of(TopicSettings)
        for synonym in key.synonyms
    }


def nearest(name: str, known: Mapping[str, object]) -> str:
    """`, did you mean x?` or nothing."""
    if len(name) > _HINTED_LENGTH_MAX:
        return ""
    from difflib import get_close_matches  # only a mistake pays for its import

    matches = get_close_matches(name, known, n=1)
    return f", did you mean {matches[0]}?" if matches else ""


def _validate_values(settings: TopicSettings) -> None:
    """The rules that bind two keys of one topic (LogConfig.validateValues)."""
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
        raise SettingsError(
            f"conflict topic config setting min.compaction.lag.ms ({settings.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({settings.max_compaction_lag_ms})"
        )
    for name, replicas in (
        ("leader.replication.throttled.replicas", settings.leader_replication_throttled_replicas),
        ("follower.replication.throttled.replicas", settings.follower_replication_throttled_replicas),
    ):
        if replicas != ("*",) and not all(re.fullmatch(_THROTTLED, replica) for replica in replicas):
            raise invalid(
                name, replicas, "it is the literal '*', or a list of partition:broker, both by their numbers"
            )
    if settings.remote_storage_enable:
        raise SettingsError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote "
            "log storage."
        )


def key_of_synonym(name: str) -> Key:
    """The definition of a broker key that supplies the default of a topic key."""
    _, key, synonym = topic_keys_of_broker()[name]
    at_least, at_most = (key.at_least, key.at_most) if synonym.factor == 1 else (synonym.at_least, None)
    # In Kafka, only the first of several synonyms can be changed while the broker runs.
    update = Update.CLUSTER_WIDE if synonym is key.synonyms[0] else Update.READ_ONLY
    return Key(
        name,
        synonym.kind,
        key.doc,
        at_least,
        at_most,
        also=key.also,
        choices=key.choices,
        update=update,
        has_effect=key.has_effect,
    )


def topic_defaults_of(given: Mapping[str, str]) -> dict[str, Value]:
    """Values by topic field for which a broker key is set; the first synonym wins, as in Kafka."""
    found: dict[str, Value] = {}
    for name, (field, _, synonym) in topic_keys_of_broker().items():
        if name in given:
            value = key_of_synonym(name).parse(given[name])
            found.setdefault(field, _scaled(value, synonym.factor))
    return found


def _scaled(value: Value, factor: int) -> Value:
    """Minutes or hours in ms; a negative value means no limit and stays -1."""
    return value if factor == 1 or not isinstance(value, int) else -1 if value < 0 else value * factor
