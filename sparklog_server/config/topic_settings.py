"""The settings of one topic: each field is the definition of a topic key, and of the broker keys that
supply its default.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

import msgspec

from sparklog.errors import SettingsError

from .keys import LONG_MAX, Key, Kind, Synonym, Update, fields_of, invalid

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_HINTED_LENGTH_MAX = 100  # to compare more costs milliseconds
_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


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
    return Key(name, Kind.LIST, doc)


def _later(key: Key) -> Key:
    """A key that has no effect yet: known, checked, and said to do nothing where a broker's file sets it."""
    return msgspec.structs.replace(key, has_effect=False)


def _same(broker_name: str, kind: Kind) -> tuple[Synonym, ...]:
    return (Synonym(broker_name, kind),) if broker_name else ()


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a topic, and their defaults. Durations in ms, sizes in bytes; -1 means without
    limit.
    """

    cleanup_policy: Annotated[
        tuple[str, ...],
        _choice(
            "cleanup.policy",
            "log.cleanup.policy",
            "How old records are removed: `delete` drops whole segments by age or size, `compact` keeps the "
            "last record of each key; "
            "both may be given, and none keeps everything.",
            ("compact", "delete"),
            Kind.LIST,
        ),
    ] = ("delete",)
    compression_type: Annotated[
        str,
        _choice(
            "compression.type",
            "compression.type",
            "The codec records are stored in; `producer` keeps the producer's codec.",
            _CODECS,
        ),
    ] = "producer"
    compression_gzip_level: Annotated[
        int,
        _later(
            _int(
                "compression.gzip.level",
                "compression.gzip.level",
                "The effort of gzip when the broker compresses; -1 is its own default.",
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
                "The effort of lz4 when the broker compresses.",
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
                "The effort of zstd when the broker compresses.",
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
            "How long a tombstone stays readable in a compacted topic, so that a reader from the start "
            "learns of the deletion.",
            0,
        ),
    ] = 86_400_000
    file_delete_delay_ms: Annotated[
        int,
        _long(
            "file.delete.delay.ms",
            "log.segment.delete.delay.ms",
            "How long a dropped segment's files wait before they are unlinked.",
            0,
        ),
    ] = 60_000
    flush_messages: Annotated[
        int,
        _long(
            "flush.messages",
            "log.flush.interval.messages",
            "Sync the log after this many records, in addition to syncs for acknowledgements.",
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
            "Sync the log when its oldest unsynced record is this old, in addition to syncs for "
            "acknowledgements.",
            0,
        ),
    ] = LONG_MAX
    follower_replication_throttled_replicas: Annotated[
        tuple[str, ...],
        _later(
            _throttled(
                "follower.replication.throttled.replicas",
                "The `partition:broker` pairs whose catching up is throttled on the follower's side; `*` "
                "means all.",
            )
        ),
    ] = ()
    index_interval_bytes: Annotated[
        int,
        _int(
            "index.interval.bytes",
            "log.index.interval.bytes",
            "How many bytes of log lie between two entries of the offset index.",
            0,
        ),
    ] = 4096
    leader_replication_throttled_replicas: Annotated[
        tuple[str, ...],
        _later(
            _throttled(
                "leader.replication.throttled.replicas",
                "The `partition:broker` pairs whose catching up is throttled on the leader's side; `*` means "
                "all.",
            )
        ),
    ] = ()
    local_retention_bytes: Annotated[
        int,
        _later(
            _long(
                "local.retention.bytes",
                "log.local.retention.bytes",
                "Bytes of a tiered partition kept on local disk; -2 follows retention.bytes.",
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
                "How long a tiered segment stays on local disk; -2 follows retention.ms.",
                -2,
            )
        ),
    ] = -2
    max_compaction_lag_ms: Annotated[
        int,
        _long(
            "max.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
            "The longest a record may stay out of reach of compaction.",
            1,
        ),
    ] = LONG_MAX
    max_message_bytes: Annotated[
        int,
        _int(
            "max.message.bytes",
            "message.max.bytes",
            "The largest record batch accepted, compressed as it came.",
            0,
        ),
    ] = 1_048_588
    message_timestamp_after_max_ms: Annotated[
        int,
        _long(
            "message.timestamp.after.max.ms",
            "log.message.timestamp.after.max.ms",
            "How far a record's CreateTime may lie ahead of the broker's clock before it is refused.",
            0,
        ),
    ] = 3_600_000
    message_timestamp_before_max_ms: Annotated[
        int,
        _long(
            "message.timestamp.before.max.ms",
            "log.message.timestamp.before.max.ms",
            "How far a record's CreateTime may lie behind the broker's clock before it is refused.",
            0,
        ),
    ] = LONG_MAX
    message_timestamp_type: Annotated[
        str,
        _choice(
            "message.timestamp.type",
            "log.message.timestamp.type",
            "Whose time a record carries: the producer's (CreateTime) or the broker's at the append "
            "(LogAppendTime).",
            ("CreateTime", "LogAppendTime"),
        ),
    ] = "CreateTime"
    min_cleanable_dirty_ratio: Annotated[
        float,
        Key(
            "min.cleanable.dirty.ratio",
            Kind.DOUBLE,
            "The share of a log that must be uncompacted before compaction takes it up.",
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
            "How long a record is at least left uncompacted.",
            0,
        ),
    ] = 0
    min_insync_replicas: Annotated[
        int,
        _int(
            "min.insync.replicas",
            "min.insync.replicas",
            "With acks=all: how many replicas must be in sync, the leader counted, for a write to be taken.",
            1,
        ),
    ] = 1
    preallocate: Annotated[
        bool,
        _later(
            _boolean("preallocate", "log.preallocate", "Reserve a new segment's full size on disk at once.")
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
                "remote.log.delete.on.disable", "", "Drop the tiered segments when tiering is switched off."
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
            "The size a partition may reach before its oldest segments are dropped.",
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
            "How old a segment's newest record may become before the segment is dropped.",
            -1,
        ),
    ] = 604_800_000
    segment_bytes: Annotated[
        int,
        _int(
            "segment.bytes",
            "log.segment.bytes",
            "The size at which a segment is closed and the next begun.",
            1_048_576,
        ),
    ] = 1_073_741_824
    segment_index_bytes: Annotated[
        int,
        _int(
            "segment.index.bytes",
            "log.index.size.max.bytes",
            "The size of an offset index at which its segment is closed.",
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
            "Up to this much is taken off segment.ms, by partition, so that segments are not all closed at "
            "once.",
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
            "The age at which a segment is closed even if small, so that retention and compaction can reach "
            "it.",
            1,
        ),
    ] = 604_800_000
    unclean_leader_election_enable: Annotated[
        bool,
        _boolean(
            "unclean.leader.election.enable",
            "unclean.leader.election.enable",
            "Let a replica lead that may lack acknowledged records, when no replica in sync is left.",
        ),
    ] = False
    internal_segment_bytes: Annotated[
        int | None,
        Key(
            "internal.segment.bytes",
            Kind.INT,
            "A segment size below the public minimum, for tests of the log.",
            1,
        ),
    ] = None
    sparklog_ack_flush: Annotated[
        str,
        _choice(
            "sparklog.ack.flush",
            "sparklog.ack.flush",
            "Whether a record counts as committed only once it is on disk: `always`, `never` (in memory of "
            "the replicas is enough, "
            "as in Kafka), or `auto`, which syncs where a topic has one replica.",
            ("auto", "always", "never"),
        ),
    ] = "auto"

    @staticmethod
    def of(defaults: "TopicSettings", overrides: Mapping[str, str | None]) -> "TopicSettings":
        """The settings of a topic with these overrides by key; raises SettingsError with the words of
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
        _check_together(settings)
        return settings

    @staticmethod
    def kept(defaults: "TopicSettings", overrides: Mapping[str, str]) -> "TopicSettings":
        """The settings of a topic whose overrides were checked when they were set, perhaps by another release
        or against other defaults.

        Overrides unknown to this release are left out; two that now contradict each other both apply, as in
        Kafka.
        """
        changes: dict[str, Any] = {}
        for name, text in overrides.items():
            if name in topic_keys():
                field, key = topic_keys()[name]
                with suppress(SettingsError):
                    changes[field] = key.parse(text)
        return msgspec.structs.replace(defaults, **changes) if changes else defaults

    @property
    def segment_bytes_effective(self) -> int:
        """The size at which a segment is closed, the internal key considered."""
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
    """(topic field, its key, the synonym) by broker key, for every broker key that supplies the default of
    a topic key.
    """
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


def _check_together(settings: TopicSettings) -> None:
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
        if replicas != ("*",) and not all(_THROTTLED.fullmatch(replica) for replica in replicas):
            raise invalid(
                name, replicas, "it is the literal '*', or a list of partition:broker, both by their numbers"
            )
    if settings.remote_storage_enable:
        raise SettingsError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote "
            "log storage."
        )
