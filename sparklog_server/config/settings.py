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

from .access_settings import AccessSettings, check_access
from .checks import check_exposure, validate_values
from .connection_settings import ConnectionSettings
from .group_settings import GroupDefaults
from .http_settings import HttpSettings, LineSettings, TelemetrySettings, collector_of, http_listener_of
from .keys import Key, Kind, Update, fields_of
from .keys import boolean as _boolean
from .keys import integer as _int
from .keys import long as _long
from .keys import several as _list
from .keys import text as _text
from .listeners import DEFAULT_PROTOCOL_MAP, Listener, derive_endpoints, with_ports
from .log_settings import CleanerSettings, InternalTopicSettings, MetadataLogSettings
from .quorum_settings import QuorumSettings
from .replica_settings import ElectionSettings, ReplicaSettings
from .roles import check_roles, is_alone
from .sasl_settings import SaslSettings, key_of_listener
from .tls_settings import PROTOCOL_KEY, TlsSettings, check_tls, listener_texts
from .topic_settings import TopicSettings, key_of_synonym, nearest, topic_defaults_of, topic_keys_of_broker
from .transaction_settings import TransactionDefaults


class QuotaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The windows over which quotas are measured."""

    quota_window_num: Annotated[
        int, _int("quota.window.num", "The number of samples kept for client quotas.", 1)
    ] = 11
    quota_window_size_seconds: Annotated[
        int, _int("quota.window.size.seconds", "The length of one sample of client quotas.", 1)
    ] = 1
    controller_quota_window_num: Annotated[
        int,
        _int(
            "controller.quota.window.num",
            "The number of samples kept for controller mutation quotas.",
            1,
        ),
    ] = 11
    controller_quota_window_size_seconds: Annotated[
        int,
        _int(
            "controller.quota.window.size.seconds",
            "The length of one sample of controller mutation quotas.",
            1,
        ),
    ] = 1


__all__ = ["BrokerSettings", "Listener", "TopicSettings", "broker_keys"]

_MIB = 1 << 20
_CLUSTER = Update.CLUSTER_WIDE


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one broker. Durations in ms unless the name says otherwise, sizes in bytes.

    Build it by `BrokerSettings.of`, which checks rules across keys; `given` keeps the texts passed there.
    """

    # Identity
    node_id: Annotated[int, _int("node.id", "The id of this node, unique in the cluster.", 0)] = 1
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
        _text(
            "broker.rack",
            "The rack of this broker. The controller spreads the replicas of a partition over racks.",
        ),
    ] = None

    # Storage
    log_dir: Annotated[
        tuple[str, ...], _list("log.dir", "The data directory when `log.dirs` is not set.")
    ] = ("./sparklog-data",)
    log_dirs_given: Annotated[
        tuple[str, ...] | None,
        _list(
            "log.dirs",
            "The data directories, comma separated, preferably one per disk. When not set, `log.dir` is "
            "used.",
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
            "The directory of the metadata log. When not set, the first data directory.",
        ),
    ] = None

    # Listeners
    listeners_given: Annotated[
        tuple[str, ...],
        _list(
            "listeners",
            "The addresses to listen on, as NAME://HOST:PORT, comma separated. With port 0, the system "
            "chooses a port.",
        ),
    ] = ("PLAINTEXT://127.0.0.1:9092",)
    advertised_listeners_given: Annotated[
        tuple[str, ...] | None,
        _list(
            "advertised.listeners",
            "The addresses that clients connect to, by listener name. When not set, those of `listeners`.",
        ),
    ] = None
    listener_security_protocol_map: Annotated[
        str,
        Key(
            "listener.security.protocol.map",
            Kind.STRING,
            "The protocol of each listener name, as NAME:PROTOCOL, comma separated. The protocols are "
            "PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
        ),
    ] = DEFAULT_PROTOCOL_MAP
    inter_broker_listener_name_given: Annotated[
        str | None,
        _text(
            "inter.broker.listener.name",
            "The listener that other brokers connect to. When not set, PLAINTEXT if it exists, else the "
            "first listener.",
        ),
    ] = None
    controller_listener_names: Annotated[
        tuple[str, ...],
        _list(
            "controller.listener.names",
            "The listeners that serve only controllers and brokers. A cluster of one node needs none.",
        ),
    ] = ()

    # Requests
    fetch_max_bytes: Annotated[
        int,
        _int(
            "fetch.max.bytes", "The maximum bytes in a Fetch response, even if the request allows more.", 1024
        ),
    ] = 57_671_680
    fetch_session_slots: Annotated[
        int,
        _int(
            "max.incremental.fetch.session.cache.slots",
            "The maximum number of fetch sessions of consumers. Those of followers do not count.",
            0,
        ),
    ] = 1000
    max_request_partition_size_limit: Annotated[
        int,
        _int(
            "max.request.partition.size.limit",
            "The maximum number of partitions in one DescribeTopicPartitions response.",
            1,
        ),
    ] = 2000

    # Limits of sparklog, each enforced by an error code, a muted session or a disconnect
    sparklog_partition_parked_max: Annotated[
        int,
        _int(
            "sparklog.partition.parked.max", "The maximum number of requests that wait on one partition.", 1
        ),
    ] = 10_000
    sparklog_log_dir_unsynced_max_bytes: Annotated[
        int,
        _long(
            "sparklog.log.dir.unsynced.max.bytes",
            "The maximum bytes appended but not yet synced in one data directory.",
            1 * _MIB,
        ),
    ] = 256 * _MIB
    sparklog_disk_reserve_bytes: Annotated[
        int,
        _long(
            "sparklog.disk.reserve.bytes",
            "The bytes of a data directory's disk that producers cannot use. When less is free, produce "
            "requests get KAFKA_STORAGE_ERROR and no topic is created; reads, offset commits, "
            "transactions and retention continue. -1 means 1 % of the disk, at most 1 GiB.",
            -1,
        ),
    ] = -1
    sparklog_log_dir_stall_ms: Annotated[
        int,
        _int(
            "sparklog.log.dir.stall.ms",
            "When a sync of a data directory or of the metadata log takes longer than this, a broker of "
            "a cluster asks to be fenced, so that other brokers lead its partitions.",
            1,
        ),
    ] = 3_000
    sparklog_partitions_max: Annotated[
        int,
        _int(
            "sparklog.partitions.max",
            "The maximum number of partitions in the cluster. Creating more is refused.",
            1,
        ),
    ] = 20_000
    sparklog_open_files_max: Annotated[
        int,
        _int(
            "sparklog.open.files.max",
            "The maximum number of open segment files. Beyond it, the least recently used are closed.",
            16,
        ),
    ] = 4096
    sparklog_decompress_ratio_max: Annotated[
        int,
        _int(
            "sparklog.decompress.ratio.max",
            "The maximum ratio of decompressed to compressed size of a batch larger than 4 MiB.",
            1,
        ),
    ] = 1024
    sparklog_decompress_max_bytes: Annotated[
        int,
        _int("sparklog.decompress.max.bytes", "The maximum decompressed size of one batch.", 65_536),
    ] = 256 * _MIB
    sparklog_decompress_memory_max: Annotated[
        int,
        _long(
            "sparklog.decompress.memory.max",
            "The maximum memory of all decompressed batches. A request waits for memory; a batch that "
            "needs more than this is refused.",
            32 * _MIB,
        ),
    ] = 128 * _MIB
    sparklog_validate_compressed: Annotated[
        bool,
        _boolean(
            "sparklog.validate.compressed",
            "Validate each record of a compressed batch, as Kafka does. If false, only the batch header "
            "is validated, except on compacted topics.",
        ),
    ] = True

    # Topics
    auto_create_topics_enable: Annotated[
        bool, _boolean("auto.create.topics.enable", "Create a topic when a client first requests it.")
    ] = True
    delete_topic_enable: Annotated[bool, _boolean("delete.topic.enable", "Allow topics to be deleted.")] = (
        True
    )
    num_partitions: Annotated[
        int, _int("num.partitions", "The number of partitions of a topic that is created without one.", 1)
    ] = 1
    default_replication_factor: Annotated[
        int,
        _int("default.replication.factor", "The replication factor of a topic that is created without one."),
    ] = 1
    topics: TopicSettings = TopicSettings()

    # The log
    log_retention_check_interval_ms: Annotated[
        int,
        _long("log.retention.check.interval.ms", "The interval between checks of segments for retention.", 1),
    ] = 300_000
    log_initial_task_delay_ms: Annotated[
        int,
        _long(
            "log.initial.task.delay.ms",
            "The delay between the start and the first check of segments for retention.",
            0,
        ),
    ] = 30_000
    log_flush_offset_checkpoint_interval_ms: Annotated[
        int,
        _int(
            "log.flush.offset.checkpoint.interval.ms",
            "The delay between a sync and the checkpoint of the recovery points; at most 500 ms.",
            0,
        ),
    ] = 60_000
    log_flush_start_offset_checkpoint_interval_ms: Annotated[
        int,
        _int(
            "log.flush.start.offset.checkpoint.interval.ms",
            "The interval between checkpoints of the log start offsets.",
            0,
        ),
    ] = 60_000
    replica_high_watermark_checkpoint_interval_ms: Annotated[
        int,
        _long(
            "replica.high.watermark.checkpoint.interval.ms",
            "The interval between checkpoints of the high watermarks.",
            1,
        ),
    ] = 5_000
    producer_id_expiration_ms: Annotated[
        int,
        _int(
            "producer.id.expiration.ms",
            "The state of an idempotent producer is kept for this long after its last write.",
            1,
            update=_CLUSTER,
        ),
    ] = 86_400_000

    offset_metadata_max_bytes: Annotated[
        int, _int("offset.metadata.max.bytes", "The maximum size of the metadata of a committed offset.")
    ] = 4096

    # The cluster
    broker_heartbeat_interval_ms: Annotated[
        int,
        _int(
            "broker.heartbeat.interval.ms", "The interval between a broker's heartbeats to the controller.", 1
        ),
    ] = 2_000
    broker_session_timeout_ms: Annotated[
        int, _int("broker.session.timeout.ms", "A broker that sends no heartbeat for this long is fenced.", 1)
    ] = 9_000
    initial_broker_registration_timeout_ms: Annotated[
        int,
        _int(
            "initial.broker.registration.timeout.ms",
            "A starting broker that cannot register with the controller within this time stops.",
            1,
        ),
    ] = 60_000

    # Derived by `of`
    listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    advertised_listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    inter_broker_listener_name: str = "PLAINTEXT"
    protocols: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By name of each listener, those of other nodes included."""
    given: Mapping[str, str] = msgspec.field(default_factory=dict)
    connections: ConnectionSettings = ConnectionSettings()
    access: AccessSettings = AccessSettings()
    cleaner: CleanerSettings = CleanerSettings()
    metadata_log: MetadataLogSettings = MetadataLogSettings()
    quorum: QuorumSettings = QuorumSettings()
    replica: ReplicaSettings = ReplicaSettings()
    elections: ElectionSettings = ElectionSettings()
    internal_topics: InternalTopicSettings = InternalTopicSettings()
    groups: GroupDefaults = GroupDefaults()
    transactions: TransactionDefaults = TransactionDefaults()
    sasl: SaslSettings = SaslSettings()
    tls: TlsSettings = TlsSettings()
    quotas: QuotaSettings = QuotaSettings()
    http: HttpSettings = HttpSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    lines: LineSettings = LineSettings()
    http_listener: Listener | None = None
    of_listeners: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The texts of keys with a listener's prefix, those set while running included."""

    def __repr__(self) -> str:
        return f"BrokerSettings(node_id={self.node_id})"  # `given` has passwords

    @staticmethod
    def of(given: Mapping[str, str], *, is_insecure_allowed: bool = False) -> "BrokerSettings":
        """The settings of these texts by Kafka's keys, checked together; raises SettingsError. Keys without
        effect are only checked.
        """
        changes: dict[str, Any] = {"given": dict(given), "of_listeners": listener_texts(given)}
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
    def is_alone(self) -> bool:
        """Whether this node is a cluster of one as far as the settings say: no other controller is named."""
        return is_alone(self)

    @property
    def stays_alone(self) -> bool:
        """Whether the node is alone, and without a listener of controllers no other one can join it."""
        return is_alone(self) and not self.controller_listener_names

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


PARTS: dict[str, type[msgspec.Struct]] = {
    field: type(default)
    for field, default in zip(
        BrokerSettings.__struct_fields__, BrokerSettings.__struct_defaults__, strict=True
    )
    if isinstance(default, msgspec.Struct) and field != "topics"
}
"""The fields of `BrokerSettings` that hold a struct of settings."""


@cache
def broker_keys() -> dict[str, tuple[str, Key]]:
    """(field, key) by broker key, in order of definition; those of a part as `groups.…`; without the keys
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
    if (of_listener := key_of_listener(name, broker_keys())) is not None:
        return of_listener
    from .without_effect import known_without_effect  # a table of hundreds of keys, rarely needed

    key = known_without_effect(name)
    if key is None:
        raise SettingsError(f"unknown setting {name}{nearest_broker_key(name)}")
    return key


def nearest_broker_key(name: str) -> str:
    """`, did you mean x?` or nothing, over all known keys."""
    from .without_effect import KEYS

    return nearest(name, {**broker_keys(), **topic_keys_of_broker(), **KEYS})


def _connected(settings: BrokerSettings, *, is_insecure_allowed: bool) -> BrokerSettings:
    """The settings with derived listeners, after the checks across keys."""
    controller_names = tuple(name.upper() for name in settings.controller_listener_names)
    named_by_protocol = (
        settings.tls.security_inter_broker_protocol if PROTOCOL_KEY in settings.given else None
    )
    if settings.inter_broker_listener_name_given and named_by_protocol:
        raise SettingsError(f"set inter.broker.listener.name or {PROTOCOL_KEY}, not both")
    endpoints = derive_endpoints(
        settings.listeners_given,
        advertised=settings.advertised_listeners_given,
        protocol_map=settings.listener_security_protocol_map,
        is_map_given="listener.security.protocol.map" in settings.given,
        controller_names=controller_names,
        inter_broker_name=settings.inter_broker_listener_name_given or named_by_protocol,
        is_broker="broker" in settings.process_roles,
    )
    validate_values(settings)
    check_access(settings.access)
    collector_of(settings.telemetry)
    http = http_listener_of(settings.http, endpoints.listeners, is_insecure_allowed=is_insecure_allowed)
    connected = msgspec.structs.replace(
        settings,
        controller_listener_names=controller_names,
        listeners=endpoints.listeners,
        advertised_listeners=endpoints.advertised,
        inter_broker_listener_name=endpoints.inter_broker_name,
        protocols=endpoints.protocols,
        http_listener=http,
    )
    check_roles(connected)
    check_tls(connected)
    if not is_insecure_allowed and not all(one.is_loopback for one in connected.listeners):
        check_exposure(connected)
    return connected
