"""The settings of a broker: each field is the definition of a key.

A field's annotation holds Kafka's key, kind, bounds and description; its value is the default. The parser,
DescribeConfigs, the sample file and `--set` derive from here. `topic_settings` defines the keys that supply
defaults of topics; `without_effect` lists Kafka's keys that have no effect yet.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, cast

import msgspec

from sparklog.errors import SettingsError

from .group_settings import GroupDefaults
from .keys import INT_MAX, Key, Kind, Update, fields_of
from .kinds import boolean as _boolean
from .kinds import integer as _int
from .kinds import long as _long
from .kinds import several as _list
from .kinds import short as _short
from .kinds import text as _text
from .listeners import DEFAULT_PROTOCOL_MAP, Listener, derive_endpoints, with_ports
from .synonyms import key_of_synonym, topic_defaults_of
from .together import check_together
from .topic_settings import TopicSettings, nearest, topic_keys_of_broker
from .transaction_settings import TransactionDefaults

__all__ = ["BrokerSettings", "Listener", "TopicSettings", "broker_keys"]

_MIB = 1 << 20
_CLUSTER = Update.CLUSTER_WIDE


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one broker. Durations in ms unless the name says otherwise, sizes in bytes.

    Build it by `BrokerSettings.of`, which checks rules across keys; `given` keeps the texts passed there.
    """

    # Identity
    node_id: Annotated[int, _int("node.id", "The number of this node, its own in the cluster.", 0)] = 1
    process_roles: Annotated[
        tuple[str, ...],
        _list(
            "process.roles",
            "The roles of this process: `broker`, `controller`, or both.",
            ("broker", "controller"),
        ),
    ] = ("broker", "controller")
    broker_rack: Annotated[
        str | None,
        _text("broker.rack", "Where this broker stands; replicas are spread over different racks."),
    ] = None

    # Where it keeps things
    log_dir: Annotated[
        tuple[str, ...], _list("log.dir", "The data directory when `log.dirs` is not set.")
    ] = ("./sparklog-data",)
    log_dirs_given: Annotated[
        tuple[str, ...] | None,
        _list(
            "log.dirs",
            "The data directories, comma separated; best one for each disk. When not set, `log.dir` is used.",
        ),
    ] = None
    cordoned_log_dirs: Annotated[
        tuple[str, ...],
        _list(
            "cordoned.log.dirs",
            "Data directories that get no new partitions; `*` means all (KIP-1066).",
            update=Update.PER_BROKER,
        ),
    ] = ()
    metadata_log_dir_given: Annotated[
        str | None,
        _text(
            "metadata.log.dir",
            "The directory of the cluster's metadata log; the first data directory when not set.",
        ),
    ] = None

    # Where it listens
    listeners_given: Annotated[
        tuple[str, ...],
        _list(
            "listeners",
            "Where to accept connections, as NAME://HOST:PORT, comma separated. Port 0 lets the system "
            "choose.",
        ),
    ] = ("PLAINTEXT://127.0.0.1:9092",)
    advertised_listeners_given: Annotated[
        tuple[str, ...] | None,
        _list(
            "advertised.listeners",
            "The addresses that clients connect to, by listener name; the same as `listeners` when not set.",
        ),
    ] = None
    listener_security_protocol_map: Annotated[
        str,
        Key(
            "listener.security.protocol.map",
            Kind.STRING,
            "The protocol each listener name speaks, as NAME:PROTOCOL, comma separated. Only PLAINTEXT can "
            "be served yet.",
        ),
    ] = DEFAULT_PROTOCOL_MAP
    inter_broker_listener_name_given: Annotated[
        str | None,
        _text(
            "inter.broker.listener.name",
            "The listener other brokers connect to; when not set, PLAINTEXT if there is one, else the first.",
        ),
    ] = None
    controller_listener_names: Annotated[
        tuple[str, ...],
        _list(
            "controller.listener.names",
            "The listeners that serve the controller quorum, not clients. None are needed in a cluster of "
            "one.",
        ),
    ] = ()

    # Sockets and requests
    socket_send_buffer_bytes: Annotated[
        int,
        _int(
            "socket.send.buffer.bytes", "The socket send buffer (SO_SNDBUF); -1 leaves it to the system.", -1
        ),
    ] = 102_400
    socket_receive_buffer_bytes: Annotated[
        int,
        _int(
            "socket.receive.buffer.bytes",
            "The socket receive buffer (SO_RCVBUF); -1 leaves it to the system.",
            -1,
        ),
    ] = 102_400
    socket_listen_backlog_size: Annotated[
        int,
        _int(
            "socket.listen.backlog.size",
            "How many connections may wait to be accepted, if the system allows as many.",
            1,
        ),
    ] = 1024
    socket_request_max_bytes: Annotated[
        int,
        _int(
            "socket.request.max.bytes",
            "The largest request frame, which only a Produce may reach; a larger one disconnects.",
            1,
        ),
    ] = 104_857_600
    sparklog_frame_other_max_bytes: Annotated[
        int,
        _int("sparklog.frame.other.max.bytes", "The largest frame of a request other than Produce.", 1024),
    ] = 8 * _MIB
    sparklog_frame_unauthenticated_max_bytes: Annotated[
        int,
        _int(
            "sparklog.frame.unauthenticated.max.bytes",
            "The largest frame before a SASL login; no SASL is served yet.",
            1024,
        ),
    ] = 64 << 10
    queued_max_request_bytes: Annotated[
        int,
        _long(
            "queued.max.request.bytes",
            "The bytes of requests, over all sessions, that are only partly here, behind a muted session or "
            "in a job. Beyond "
            "it, sessions in the middle of a request are not read on, the eldest excepted; beyond twice as "
            "much sessions are disconnected, "
            "the youngest requests first. -1 is without limit, which is Kafka's default.",
            -1,
        ),
    ] = 64 * _MIB
    sparklog_session_in_flight_max: Annotated[
        int,
        _int(
            "sparklog.session.in.flight.max",
            "The unanswered requests of one session beyond which it is no longer read.",
            1,
        ),
    ] = 64
    sparklog_session_unsent_max_bytes: Annotated[
        int,
        _int(
            "sparklog.session.unsent.max.bytes",
            "The bytes of replies waiting in one session beyond which it is no longer read.",
            65_536,
        ),
    ] = 64 * _MIB
    sparklog_reply_memory_max: Annotated[
        int,
        _int(
            "sparklog.reply.memory.max",
            "The bytes of replies held in memory, over all sessions: being made, or not yet read by their "
            "clients. Beyond half of it, "
            "sessions that hold replies are not served; beyond it, the session that has read nothing for "
            "longest is disconnected. Records "
            "sent from files do not count.",
            1 * _MIB,
        ),
    ] = 64 * _MIB
    max_connections: Annotated[
        int,
        _int(
            "max.connections",
            "The connections held at once. A new one takes the place of the one that has been idle longest; "
            "it waits while every one has a "
            "request in flight. Kafka has no limit by default.",
            0,
            update=_CLUSTER,
        ),
    ] = 10_000
    sparklog_inter_broker_connections_reserve: Annotated[
        int,
        _int(
            "sparklog.inter.broker.connections.reserve",
            "Where there are several listeners: the connections that only the inter-broker listener may use, "
            "at most a quarter of all.",
            0,
        ),
    ] = 64
    max_connections_per_ip: Annotated[
        int,
        _int("max.connections.per.ip", "The connections one address may hold at once.", 0, update=_CLUSTER),
    ] = INT_MAX
    max_connection_creation_rate: Annotated[
        int,
        _int(
            "max.connection.creation.rate",
            "The most new connections each second; beyond it accepting pauses for up to "
            "`quota.window.size.seconds`.",
            0,
            update=_CLUSTER,
        ),
    ] = INT_MAX
    connections_max_idle_ms: Annotated[
        int,
        _long(
            "connections.max.idle.ms",
            "How long a connection may stay silent before it is closed; negative is for ever.",
        ),
    ] = 600_000
    fetch_max_bytes: Annotated[
        int,
        _int(
            "fetch.max.bytes", "The most bytes in a Fetch response, also where the request allows more.", 1024
        ),
    ] = 57_671_680
    max_incremental_fetch_session_cache_slots: Annotated[
        int,
        _int(
            "max.incremental.fetch.session.cache.slots",
            "How many incremental fetch sessions are remembered.",
            0,
        ),
    ] = 1000
    max_request_partition_size_limit: Annotated[
        int,
        _int(
            "max.request.partition.size.limit",
            "The most partitions one DescribeTopicPartitions reply lists.",
            1,
        ),
    ] = 2000
    quota_window_num: Annotated[
        int, _int("quota.window.num", "How many samples client quotas remember.", 1)
    ] = 11
    quota_window_size_seconds: Annotated[
        int, _int("quota.window.size.seconds", "How long one sample of client quotas lasts.", 1)
    ] = 1
    controller_quota_window_num: Annotated[
        int,
        _int(
            "controller.quota.window.num",
            "How many samples the quota on changes to the cluster remembers.",
            1,
        ),
    ] = 11
    controller_quota_window_size_seconds: Annotated[
        int, _int("controller.quota.window.size.seconds", "How long one sample of that quota lasts.", 1)
    ] = 1

    # Limits of our own (each is enforced by an error code, a muted session or a disconnect)
    sparklog_partition_parked_max: Annotated[
        int, _int("sparklog.partition.parked.max", "The requests that may wait on one partition.", 1)
    ] = 10_000
    sparklog_log_dir_unsynced_max_bytes: Annotated[
        int,
        _long(
            "sparklog.log.dir.unsynced.max.bytes",
            "The bytes appended but not yet synced in one data directory.",
            1 * _MIB,
        ),
    ] = 256 * _MIB
    sparklog_disk_reserve_bytes: Annotated[
        int,
        _long(
            "sparklog.disk.reserve.bytes",
            "The bytes of a data directory's disk that producers may not use: below it they get "
            "KAFKA_STORAGE_ERROR and no topic is "
            "created, while reads, committed offsets, transactions and retention go on. -1 is 1 % of the "
            "disk, at most 1 GiB.",
            -1,
        ),
    ] = -1
    sparklog_partitions_max: Annotated[
        int,
        _int("sparklog.partitions.max", "The partitions the cluster may have; creating more is refused.", 1),
    ] = 20_000
    sparklog_open_files_max: Annotated[
        int,
        _int(
            "sparklog.open.files.max",
            "The segment files kept open; the least recently used are closed beyond it.",
            16,
        ),
    ] = 4096
    sparklog_decompress_ratio_max: Annotated[
        int,
        _int(
            "sparklog.decompress.ratio.max",
            "How many times its compressed size a batch of more than 4 MiB may have.",
            1,
        ),
    ] = 1024
    sparklog_decompress_max_bytes: Annotated[
        int,
        _int(
            "sparklog.decompress.max.bytes", "How many bytes one batch may become when decompressed.", 65_536
        ),
    ] = 256 * _MIB
    sparklog_decompress_memory_max: Annotated[
        int,
        _long(
            "sparklog.decompress.memory.max",
            "The bytes that decompressed batches may take together; a request waits for its share, and one "
            "that needs too much is refused.",
            32 * _MIB,
        ),
    ] = 128 * _MIB
    sparklog_validate_compressed: Annotated[
        bool,
        _boolean(
            "sparklog.validate.compressed",
            "Walk the records of compressed batches as Kafka does; false trusts the batch header, except on "
            "compacted topics.",
        ),
    ] = True

    # Topics
    auto_create_topics_enable: Annotated[
        bool, _boolean("auto.create.topics.enable", "Create a topic when a client first names it.")
    ] = True
    delete_topic_enable: Annotated[bool, _boolean("delete.topic.enable", "Allow topics to be deleted.")] = (
        True
    )
    num_partitions: Annotated[
        int, _int("num.partitions", "The partitions of a topic created without a number.", 1)
    ] = 1
    default_replication_factor: Annotated[
        int, _int("default.replication.factor", "The replicas of a topic created without a number.")
    ] = 1
    topics: TopicSettings = TopicSettings()

    # The log
    log_retention_check_interval_ms: Annotated[
        int, _long("log.retention.check.interval.ms", "How often segments are looked at for retention.", 1)
    ] = 300_000
    log_initial_task_delay_ms: Annotated[
        int,
        _long(
            "log.initial.task.delay.ms",
            "How long after the start segments are first looked at for retention.",
            0,
        ),
    ] = 30_000
    log_cleaner_enable: Annotated[
        bool,
        _boolean(
            "log.cleaner.enable", "Run compaction at all; without it topics with `compact` grow without end."
        ),
    ] = True
    log_cleaner_threads: Annotated[
        int, _int("log.cleaner.threads", "How many logs are compacted at once.", 0, update=_CLUSTER)
    ] = 1
    log_cleaner_dedupe_buffer_size: Annotated[
        int,
        _long(
            "log.cleaner.dedupe.buffer.size",
            "The memory for the keys of a round, 24 bytes each, over all threads.",
            update=_CLUSTER,
        ),
    ] = 128 * _MIB
    log_cleaner_io_buffer_load_factor: Annotated[
        float,
        Key(
            "log.cleaner.io.buffer.load.factor",
            Kind.DOUBLE,
            "How full compaction's table of keys may become; below 1.",
            update=_CLUSTER,
        ),
    ] = 0.9
    log_cleaner_io_max_bytes_per_second: Annotated[
        float,
        Key(
            "log.cleaner.io.max.bytes.per.second",
            Kind.DOUBLE,
            "The most compaction reads and writes each second.",
            update=_CLUSTER,
        ),
    ] = 1.7976931348623157e308
    log_cleaner_backoff_ms: Annotated[
        int,
        _long(
            "log.cleaner.backoff.ms", "How long compaction rests when it finds nothing to do.", 0, _CLUSTER
        ),
    ] = 15_000
    log_flush_offset_checkpoint_interval_ms: Annotated[
        int,
        _int(
            "log.flush.offset.checkpoint.interval.ms",
            "How long after a sync the recovery points are written down; 500 ms at most.",
            0,
        ),
    ] = 60_000
    log_flush_start_offset_checkpoint_interval_ms: Annotated[
        int,
        _int(
            "log.flush.start.offset.checkpoint.interval.ms",
            "How often the log start offsets are written down.",
            0,
        ),
    ] = 60_000
    replica_high_watermark_checkpoint_interval_ms: Annotated[
        int,
        _long(
            "replica.high.watermark.checkpoint.interval.ms",
            "How often the high watermarks are written down.",
            1,
        ),
    ] = 5_000
    replica_lag_time_max_ms: Annotated[
        int,
        _long(
            "replica.lag.time.max.ms",
            "How long a follower may fail to reach the leader's log end before it leaves the ISR.",
            1,
        ),
    ] = 30_000
    producer_id_expiration_ms: Annotated[
        int,
        _int(
            "producer.id.expiration.ms",
            "How long the state of a silent idempotent producer is kept.",
            1,
            update=_CLUSTER,
        ),
    ] = 86_400_000

    # Groups and transactions: their internal topics
    offsets_topic_num_partitions: Annotated[
        int,
        _int(
            "offsets.topic.num.partitions",
            "The partitions of `__consumer_offsets`; do not change it later.",
            1,
        ),
    ] = 50
    offsets_topic_replication_factor: Annotated[
        int,
        _short(
            "offsets.topic.replication.factor",
            "The replicas of `__consumer_offsets`; Kafka's own default is 3.",
            1,
        ),
    ] = 1
    offsets_topic_segment_bytes: Annotated[
        int, _int("offsets.topic.segment.bytes", "The segment size of `__consumer_offsets`.", 1)
    ] = 104_857_600
    offset_metadata_max_bytes: Annotated[
        int,
        _int("offset.metadata.max.bytes", "The most metadata a client may store with a committed offset."),
    ] = 4096
    transaction_state_log_num_partitions: Annotated[
        int,
        _int(
            "transaction.state.log.num.partitions",
            "The partitions of `__transaction_state`; do not change it later.",
            1,
        ),
    ] = 50
    transaction_state_log_replication_factor: Annotated[
        int,
        _short(
            "transaction.state.log.replication.factor",
            "The replicas of `__transaction_state`; Kafka's own default is 3.",
            1,
        ),
    ] = 1
    transaction_state_log_min_isr: Annotated[
        int,
        _int(
            "transaction.state.log.min.isr",
            "The in-sync replicas `__transaction_state` needs; Kafka's own default is 2.",
            1,
        ),
    ] = 1
    transaction_state_log_segment_bytes: Annotated[
        int, _int("transaction.state.log.segment.bytes", "The segment size of `__transaction_state`.", 1)
    ] = 104_857_600

    # The cluster
    broker_heartbeat_interval_ms: Annotated[
        int, _int("broker.heartbeat.interval.ms", "How often a broker tells the controller that it lives.", 1)
    ] = 2_000
    broker_session_timeout_ms: Annotated[
        int, _int("broker.session.timeout.ms", "How long a broker may be silent before it is fenced.", 1)
    ] = 9_000
    initial_broker_registration_timeout_ms: Annotated[
        int,
        _int(
            "initial.broker.registration.timeout.ms",
            "How long a starting broker tries to register before it gives up.",
            1,
        ),
    ] = 60_000
    metadata_log_segment_bytes: Annotated[
        int, _int("metadata.log.segment.bytes", "The segment size of the metadata log.", 8 * _MIB)
    ] = 1_073_741_824
    metadata_log_segment_ms: Annotated[
        int, _long("metadata.log.segment.ms", "The age at which a segment of the metadata log is closed.")
    ] = 604_800_000
    metadata_max_retention_bytes: Annotated[
        int,
        _long(
            "metadata.max.retention.bytes",
            "The size of metadata log and snapshots beyond which the oldest are dropped.",
        ),
    ] = 104_857_600
    metadata_max_retention_ms: Annotated[
        int, _long("metadata.max.retention.ms", "The age at which old snapshots go.")
    ] = 604_800_000
    metadata_log_max_record_bytes_between_snapshots: Annotated[
        int,
        _long(
            "metadata.log.max.record.bytes.between.snapshots",
            "How many bytes of new metadata call for a snapshot.",
            1,
        ),
    ] = 20_971_520
    metadata_log_max_snapshot_interval_ms: Annotated[
        int,
        _long(
            "metadata.log.max.snapshot.interval.ms",
            "How old metadata without a snapshot may become; 0 leaves it to the number of bytes.",
            0,
        ),
    ] = 3_600_000
    metadata_max_idle_interval_ms: Annotated[
        int,
        _int(
            "metadata.max.idle.interval.ms",
            "How often an idle metadata log gets a NoOp record; a cluster of one never does.",
            0,
        ),
    ] = 500
    controller_quorum_voters: Annotated[
        tuple[str, ...],
        _list(
            "controller.quorum.voters",
            "The voters of the metadata quorum, as id@host:port; only this node itself can be one yet.",
        ),
    ] = ()
    controller_quorum_bootstrap_servers: Annotated[
        tuple[str, ...],
        _list(
            "controller.quorum.bootstrap.servers",
            "Where to find the metadata quorum; not needed in a cluster of one.",
        ),
    ] = ()

    # Derived from the above by `of`
    listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    advertised_listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    inter_broker_listener_name: str = "PLAINTEXT"
    given: Mapping[str, str] = msgspec.field(default_factory=dict)
    groups: GroupDefaults = GroupDefaults()
    transactions: TransactionDefaults = TransactionDefaults()

    @staticmethod
    def of(given: Mapping[str, str], *, is_insecure_allowed: bool = False) -> "BrokerSettings":
        """The settings of these texts by Kafka's keys, checked together; raises SettingsError. Keys
        without effect are only checked.
        """
        changes: dict[str, Any] = {"given": dict(given)}
        parts: dict[str, dict[str, Any]] = {}
        for name, text in given.items():
            if name in broker_keys():
                field, key = broker_keys()[name]
                part, _, field = field.rpartition(".")
                (parts.setdefault(part, {}) if part else changes)[field] = key.parse(text)
            else:
                key_of(name).parse(text)
        if topic_changes := cast(dict[str, Any], topic_defaults_of(given)):
            changes["topics"] = TopicSettings.of(
                msgspec.structs.replace(TopicSettings(), **topic_changes), {}
            )
        changes |= {part: PARTS[part](**values) for part, values in parts.items()}
        return _connected(BrokerSettings(**changes), is_insecure_allowed=is_insecure_allowed)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The data directories."""
        return self.log_dir if self.log_dirs_given is None else self.log_dirs_given

    @property
    def metadata_log_dir(self) -> str:
        """The directory that holds the metadata log."""
        return self.metadata_log_dir_given or self.log_dirs[0]

    @property
    def sparklog_ack_flush(self) -> str:
        """The default of topics for `sparklog.ack.flush`."""
        return self.topics.sparklog_ack_flush

    @property
    def message_max_bytes(self) -> int:
        """The default of topics for the largest batch."""
        return self.topics.max_message_bytes

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        """The listeners that serve clients: all but the controller's."""
        return tuple(
            listener for listener in self.listeners if listener.name not in self.controller_listener_names
        )

    def topic_defaults(self) -> TopicSettings:
        """The settings of a topic without overrides."""
        return self.topics

    def advertised(self, listener_name: str) -> Listener:
        """The advertised address of that listener."""
        return next(listener for listener in self.advertised_listeners if listener.name == listener_name)

    def with_bound_ports(self, ports: Mapping[str, int]) -> "BrokerSettings":
        """The same settings with the ports the system chose, by listener name, in place of port 0."""
        return msgspec.structs.replace(
            self,
            listeners=with_ports(self.listeners, ports),
            advertised_listeners=with_ports(self.advertised_listeners, ports),
        )


PARTS: dict[str, type[GroupDefaults] | type[TransactionDefaults]] = {
    "groups": GroupDefaults,
    "transactions": TransactionDefaults,
}
"""The fields of `BrokerSettings` that are settings of their own."""


@cache
def broker_keys() -> dict[str, tuple[str, Key]]:
    """(field, key) by broker key, in the order written; those of a part as `groups.…`; without the keys
    that supply defaults of topics.
    """
    parts = {
        key.name: (f"{part}.{field}", key)
        for part, defaults in PARTS.items()
        for field, key in fields_of(defaults)
    }
    return {key.name: (field, key) for field, key in fields_of(BrokerSettings)} | parts


def key_of(name: str) -> Key:
    """The definition of a broker key, with or without effect; raises SettingsError for an unknown key."""
    if name in broker_keys():
        return broker_keys()[name][1]
    if name in topic_keys_of_broker():
        return key_of_synonym(name)
    from .without_effect import (
        known_without_effect,
    )  # a table of hundreds, needed only when one of them is set

    key = known_without_effect(name)
    if key is None:
        raise SettingsError(f"unknown setting {name}{nearest_broker_key(name)}")
    return key


def nearest_broker_key(name: str) -> str:
    """`, did you mean x?` or nothing, over all keys that are known."""
    from .without_effect import KEYS

    return nearest(name, {**broker_keys(), **topic_keys_of_broker(), **KEYS})


def _connected(settings: BrokerSettings, *, is_insecure_allowed: bool) -> BrokerSettings:
    """The settings with their listeners derived and the keys checked against each other."""
    endpoints = derive_endpoints(
        settings.listeners_given,
        advertised=settings.advertised_listeners_given,
        protocol_map=settings.listener_security_protocol_map,
        is_map_given="listener.security.protocol.map" in settings.given,
        controller_names=settings.controller_listener_names,
        inter_broker_name=settings.inter_broker_listener_name_given,
        is_insecure_allowed=is_insecure_allowed,
    )
    _check_together(settings)
    return msgspec.structs.replace(
        settings,
        listeners=endpoints.listeners,
        advertised_listeners=endpoints.advertised,
        inter_broker_listener_name=endpoints.inter_broker_name,
    )


def _check_together(settings: BrokerSettings) -> None:
    check_together(settings)
    for field, key in fields_of(BrokerSettings):
        key.check(getattr(settings, field))
