"""The metrics of /metrics, each declared once: name, kind, labels, documentation. `docs/metrics.md` is
generated from here.

    kafka_server_*, kafka_controller_*, …   as the JMX exporter names Kafka's with the rules of Strimzi
    kafka_topic_*, kafka_consumergroup_*    as kafka_exporter names them
    sparklog_*, process_*                   ours, and those of every Prometheus client

The values are integers of the objects that own them, read at a scrape. A series of something that several
nodes know comes from one of them, so that a sum over the nodes is right.
"""

from enum import StrEnum
from typing import Final, NamedTuple

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
QUANTILE_TEXTS: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""As the rules of Strimzi write them."""
OTHERS: Final = "(others)"
"""The label value of the sum of topics or groups beyond the bound; no topic can have that name."""


class Kind(StrEnum):
    """The types of Prometheus' text format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    UNTYPED = "untyped"


class Metric(NamedTuple):
    """One metric. Without a value for a label of it, a sample is the sum over the others."""

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...] = ()


METRICS: Final[dict[str, Metric]] = {}
"""By name, in the order of the declarations."""


def _declared(name: str, kind: Kind, doc: str, labels: tuple[str, ...]) -> Metric:
    assert name not in METRICS, name
    metric = METRICS[name] = Metric(name, kind, doc, labels)
    return metric


def _counter(name: str, doc: str, *labels: str) -> Metric:
    return _declared(name, Kind.COUNTER, doc, labels)


def _gauge(name: str, doc: str, *labels: str) -> Metric:
    return _declared(name, Kind.GAUGE, doc, labels)


# -- records and requests by topic

_TOPIC = "kafka_server_brokertopicmetrics"
MESSAGES_IN = _counter(
    f"{_TOPIC}_messagesin_total", "Records appended by this leader, in all and by topic.", "topic"
)
BYTES_IN = _counter(f"{_TOPIC}_bytesin_total", "Bytes of batches appended by this leader.", "topic")
BYTES_OUT = _counter(f"{_TOPIC}_bytesout_total", "Bytes of batches in responses to consumers.", "topic")
BYTES_REJECTED = _counter(
    f"{_TOPIC}_bytesrejected_total", "Bytes of batches whose content was refused.", "topic"
)
PRODUCE_REQUESTS = _counter(
    f"{_TOPIC}_totalproducerequests_total", "Batches that Produce requests had for a partition here.", "topic"
)
FAILED_PRODUCE_REQUESTS = _counter(
    f"{_TOPIC}_failedproducerequests_total", "Those of them that were refused, for any reason.", "topic"
)
FETCH_REQUESTS = _counter(
    f"{_TOPIC}_totalfetchrequests_total", "Partitions here that Fetch requests of consumers named.", "topic"
)
FAILED_FETCH_REQUESTS = _counter(
    f"{_TOPIC}_failedfetchrequests_total", "Those of them that were answered with an error.", "topic"
)
REPLICATION_BYTES_IN = _counter(
    f"{_TOPIC}_replicationbytesin_total", "Bytes of batches fetched from leaders."
)
REPLICATION_BYTES_OUT = _counter(
    f"{_TOPIC}_replicationbytesout_total", "Bytes of batches in responses to followers."
)
REASSIGNMENT_BYTES_IN = _counter(
    f"{_TOPIC}_reassignmentbytesin_total",
    "Those of them for replicas of this node that a reassignment adds.",
)
REASSIGNMENT_BYTES_OUT = _counter(
    f"{_TOPIC}_reassignmentbytesout_total",
    "Bytes of batches in responses to replicas that a reassignment adds.",
)

# -- replicas of this node

_REPLICAS = "kafka_server_replicamanager"
LEADER_COUNT = _gauge(f"{_REPLICAS}_leadercount", "Partitions that this node leads.")
PARTITION_COUNT = _gauge(f"{_REPLICAS}_partitioncount", "Replicas of this node.")
OFFLINE_REPLICAS = _gauge(
    f"{_REPLICAS}_offlinereplicacount", "Replicas of this node that a disk failure keeps offline."
)
UNDER_REPLICATED = _gauge(
    f"{_REPLICAS}_underreplicatedpartitions",
    "Partitions that this node leads, with a replica that is not in sync.",
)
UNDER_MIN_ISR = _gauge(
    f"{_REPLICAS}_underminisrpartitioncount",
    "Partitions that this node leads, with fewer replicas in sync than min.insync.replicas.",
)
AT_MIN_ISR = _gauge(
    f"{_REPLICAS}_atminisrpartitioncount",
    "Partitions that this node leads, with exactly min.insync.replicas in sync.",
)
REASSIGNING = _gauge(
    f"{_REPLICAS}_reassigningpartitions", "Partitions that this node leads and that are reassigned."
)
REASSIGNMENT_BEHIND = _gauge(
    "sparklog_reassignment_behind_records",
    "Records that replicas lack whose reassignments wait for them; of partitions that this node leads.",
)
REASSIGNMENT_STALLED = _gauge(
    "sparklog_reassignment_stalled_seconds",
    "Seconds since one of these replicas joined the ISR, or lacked fewer records than ever before; 0 if no "
    "reassignment waits.",
)
ISR_EXPANDS = _counter(
    f"{_REPLICAS}_isrexpands_total", "Replicas that joined the ISR of a partition led here."
)
ISR_SHRINKS = _counter(
    f"{_REPLICAS}_isrshrinks_total", "Changes by which the ISR of a partition led here shrank."
)
FAILED_ISR_UPDATES = _counter(
    f"{_REPLICAS}_failedisrupdates_total", "Changes of the ISR that the controller refused."
)
LEADER_THROTTLED_RATE = _gauge(
    "kafka_server_leaderreplication_byte_rate",
    "Bytes a second sent to throttled replicas, of the last half a minute.",
)
FOLLOWER_THROTTLED_RATE = _gauge(
    "kafka_server_followerreplication_byte_rate",
    "Bytes a second received by throttled replicas of this node, of the last half a minute.",
)
THROTTLE_SET = _gauge(
    "sparklog_replication_throttle_set",
    "1 if this rate of a throttle of replication applies to this node, by its setting.",
    "setting",
)

_PARTITION = "kafka_cluster_partition"
PARTITION_UNDER_REPLICATED = _gauge(
    f"{_PARTITION}_underreplicated",
    "1 if a replica is not in sync; of partitions that this node leads.",
    "topic",
    "partition",
)
PARTITION_IN_SYNC = _gauge(f"{_PARTITION}_insyncreplicascount", "Replicas in sync.", "topic", "partition")
PARTITION_REPLICAS = _gauge(f"{_PARTITION}_replicascount", "Replicas.", "topic", "partition")
PARTITION_UNDER_MIN_ISR = _gauge(
    f"{_PARTITION}_underminisr",
    "1 if fewer replicas than min.insync.replicas are in sync.",
    "topic",
    "partition",
)
PARTITION_AT_MIN_ISR = _gauge(
    f"{_PARTITION}_atminisr", "1 if exactly min.insync.replicas are in sync.", "topic", "partition"
)
LAST_STABLE_OFFSET_LAG = _gauge(
    f"{_PARTITION}_laststableoffsetlag",
    "Records between the last stable offset and the high watermark.",
    "topic",
    "partition",
)

# -- logs

LOG_SIZE = _gauge(
    "kafka_log_log_size", "Bytes of the segments of a replica of this node.", "topic", "partition"
)
LOG_START_OFFSET = _gauge("kafka_log_log_logstartoffset", "The log start offset.", "topic", "partition")
LOG_END_OFFSET = _gauge("kafka_log_log_logendoffset", "The log end offset.", "topic", "partition")
LOG_SEGMENTS = _gauge("kafka_log_log_numlogsegments", "Segments.", "topic", "partition")
OFFLINE_DIRECTORIES = _gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "Log directories that are offline."
)
DIRECTORY_OFFLINE = _gauge(
    "kafka_log_logmanager_logdirectoryoffline", "1 if the log directory is offline.", "logDirectory"
)
LOG_FLUSHES = _counter("kafka_log_logflushstats_logflushrateandtimems_count", "Syncs of log directories.")
LOG_FLUSH_MS = _gauge(
    "kafka_log_logflushstats_logflushrateandtimems",
    "Milliseconds that a sync took, of the last minutes.",
    "quantile",
)

# -- the controller

_CONTROLLER = "kafka_controller_kafkacontroller"
ACTIVE_CONTROLLERS = _gauge(
    f"{_CONTROLLER}_activecontrollercount", "1 if this node is the active controller."
)
ACTIVE_BROKERS = _gauge(
    f"{_CONTROLLER}_activebrokercount", "Brokers that are not fenced; of the active controller."
)
FENCED_BROKERS = _gauge(
    f"{_CONTROLLER}_fencedbrokercount", "Brokers that are fenced; of the active controller."
)
GLOBAL_TOPICS = _gauge(f"{_CONTROLLER}_globaltopiccount", "Topics of the cluster; of the active controller.")
GLOBAL_PARTITIONS = _gauge(
    f"{_CONTROLLER}_globalpartitioncount", "Partitions of the cluster; of the active controller."
)
OFFLINE_PARTITIONS = _gauge(
    f"{_CONTROLLER}_offlinepartitionscount", "Partitions without a leader; of the active controller."
)
IMBALANCED_PARTITIONS = _gauge(
    f"{_CONTROLLER}_preferredreplicaimbalancecount",
    "Partitions that another replica than the preferred one leads; of the active controller.",
)
LAST_APPLIED_OFFSET = _gauge(
    f"{_CONTROLLER}_lastappliedrecordoffset", "The offset of the last published record."
)
LAST_COMMITTED_OFFSET = _gauge(
    f"{_CONTROLLER}_lastcommittedrecordoffset", "The offset of the last committed record."
)
UNCLEAN_ELECTIONS = _counter(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "Leaders elected that may lack records; of the active controller.",
)
APPLIED_OFFSET = _gauge(
    "kafka_server_brokermetadatametrics_last_applied_record_offset",
    "The offset of the last metadata record that this broker has published.",
)

# -- requests

_REQUESTS = "kafka_network_requestmetrics"
REQUESTS = _counter(f"{_REQUESTS}_requests_total", "Requests that ended.", "request", "version")

REQUEST_ERRORS = _counter(
    f"{_REQUESTS}_errors_total",
    "Errors in responses: of a partition, a topic or a group, or of the whole response. NONE is not counted.",
    "request",
    "error",
)


def _time(name: str, what: str) -> tuple[Metric, Metric]:
    """The quantiles of one part of the time of requests, and their count."""
    return (
        _gauge(f"{_REQUESTS}_{name}ms", f"Milliseconds: {what}; of the last minutes.", "request", "quantile"),
        _counter(f"{_REQUESTS}_{name}ms_count", f"Requests whose {name} was measured.", "request"),
    )


REQUEST_PARTS: Final = {
    "total": _time("totaltime", "from the arrival of a request to its response"),
    "queue": _time("requestqueuetime", "the wait behind other requests"),
    "local": _time("localtime", "the work of the handler"),
    "remote": _time("remotetime", "the wait for followers, the disk, records or other nodes"),
    "throttle": _time("throttletime", "the rest of a client that exceeded a quota"),
    "send": _time("responsesendtime", "until the socket had taken the response"),
}
"""By the name of the part in `sparklog_request_seconds`."""
QUEUED_REQUESTS = _gauge(
    "kafka_network_requestchannel_requestqueuesize", "Whole requests that wait on muted sessions."
)
NETWORK_IDLE = _gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "The part of the time, 0 to 1, that the event loop waits. Sockets and handlers share the one loop.",
)
HANDLER_IDLE = _gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "The same figure: Kafka's boards show both.",
)
_SOCKETS = "kafka_server_socket_server_metrics"
CONNECTIONS = _gauge(f"{_SOCKETS}_connection_count", "Open connections.", "listener", "networkProcessor")
CONNECTIONS_BEGUN = _counter(
    f"{_SOCKETS}_connection_creation_total", "Connections accepted.", "listener", "networkProcessor"
)
PURGATORY_SIZE = _gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Shares of parked requests, one for each partition that they wait for.",
    "delayedOperation",
)
DELAYED_OPERATIONS = _gauge(
    "kafka_server_delayedoperationpurgatory_numdelayedoperations", "Parked requests with a timeout."
)
FETCH_SESSIONS = _gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions of consumers."
)
FETCH_SESSION_PARTITIONS = _gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", "Partitions in these sessions."
)

# -- this node

BROKER_STATE = _gauge(
    "kafka_server_kafkaserver_brokerstate",
    "Kafka's number: 1 starting, 2 recovering logs, 3 running, 6 leaving, 7 stopping.",
)
DISK_READS = _counter(
    "kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes that this process read from disks."
)
DISK_WRITES = _counter(
    "kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes that this process wrote to disks."
)

# -- the metadata quorum

_RAFT: Final = (
    ("current_leader", "The id of the leader, -1 if it is not known."),
    ("current_vote", "The id of the node that this node voted for in the epoch, -1 if for none."),
    ("current_epoch", "The epoch of the quorum."),
    ("high_watermark", "The end of the committed metadata log."),
    ("log_end_offset", "The end of the metadata log."),
    ("log_end_epoch", "The epoch of the last record."),
    ("number_of_voters", "Voters; of the leader."),
    ("number_of_observers", "Observers that fetch; of the leader."),
    ("number_unknown_voter_connections", "Voters whose address is not known."),
    ("append_records_rate", "Records per second that this node appended as the leader."),
    ("fetch_records_rate", "Records per second that this node fetched as a follower."),
    ("commit_latency_avg", "Milliseconds from a decision to its commit, the mean of the last 32."),
    ("commit_latency_max", "The longest of them."),
    ("poll_idle_ratio_avg", "The part of the time, 0 to 1, that the event loop waits."),
)
RAFT: Final = {
    name: (_gauge(f"kafka_server_raftmetrics_{name}", doc), _gauge(f"kafka_server_raft_metrics_{name}", doc))
    for name, doc in _RAFT
}
"""Each under the name of Strimzi's rules for the JMX exporter, and under that of rules without exceptions."""
RAFT_STATE = _declared(
    "kafka_server_raftmetrics_current_state",
    Kind.UNTYPED,
    "1 with the role of this node.",
    ("current_state",),
)
RAFT_STATE_INFO = _gauge(
    "kafka_server_raft_metrics_current_state_info", "1 with the role of this node.", "current_state"
)
_CHANNEL: Final = (
    ("incoming_byte", "Bytes of responses from other nodes of the quorum."),
    ("outgoing_byte", "Bytes of requests to other nodes of the quorum."),
    ("request", "Requests to other nodes of the quorum."),
    ("response", "Responses of other nodes of the quorum."),
)
RAFT_CHANNEL: Final = {
    name: (
        _counter(f"kafka_server_raftchannelmetrics_{name}_total", doc),
        _counter(f"kafka_server_raft_channel_metrics_{name}", doc),
    )
    for name, doc in _CHANNEL
}

# -- coordinators

_GROUPS = "kafka_coordinator_group_groupmetadatamanager"
GROUPS = _gauge(f"{_GROUPS}_numgroups", "Groups that this node coordinates.")
GROUP_OFFSETS = _gauge(f"{_GROUPS}_numoffsets", "Committed offsets of these groups.")
GROUPS_BY_STATE: Final = {
    state: _gauge(f"{_GROUPS}_numgroups{state}", f"Those of them in the state {state}.")
    for state in (
        "stable",
        "empty",
        "dead",
        "preparingrebalance",
        "completingrebalance",
        "assigning",
        "reconciling",
    )
}
TRANSACTIONS = _gauge(
    "sparklog_transactions", "Transactional ids that this node coordinates, by state.", "state"
)

# -- names of kafka_exporter

BROKERS = _gauge("kafka_brokers", "Brokers of the cluster; of the active controller.")
BROKER_INFO = _gauge("kafka_broker_info", "1 for each broker; of the active controller.", "id", "address")
TOPIC_PARTITIONS = _gauge(
    "kafka_topic_partitions",
    "Partitions of a topic; of the node that leads its first partition with a leader.",
    "topic",
)
_LED = "of the leader"
CURRENT_OFFSET = _gauge(
    "kafka_topic_partition_current_offset", f"The high watermark; {_LED}.", "topic", "partition"
)
OLDEST_OFFSET = _gauge(
    "kafka_topic_partition_oldest_offset", f"The log start offset; {_LED}.", "topic", "partition"
)
PARTITION_LEADER = _gauge(
    "kafka_topic_partition_leader",
    f"The id of the leader; {_LED}, or -1 of the active controller.",
    "topic",
    "partition",
)
LEADER_IS_PREFERRED = _gauge(
    "kafka_topic_partition_leader_is_preferred",
    f"1 if the preferred replica leads; {_LED}.",
    "topic",
    "partition",
)
TOPIC_REPLICAS = _gauge("kafka_topic_partition_replicas", f"Replicas; {_LED}.", "topic", "partition")
TOPIC_IN_SYNC = _gauge(
    "kafka_topic_partition_in_sync_replica", f"Replicas in sync; {_LED}.", "topic", "partition"
)
TOPIC_UNDER_REPLICATED = _gauge(
    "kafka_topic_partition_under_replicated_partition",
    f"1 if a replica is not in sync; {_LED}.",
    "topic",
    "partition",
)
_COORDINATED = "of the coordinator"
GROUP_MEMBERS = _gauge("kafka_consumergroup_members", f"Members; {_COORDINATED}.", "consumergroup")
GROUP_OFFSET = _gauge(
    "kafka_consumergroup_current_offset",
    f"The committed offset; {_COORDINATED}.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_OFFSET_SUM = _gauge(
    "kafka_consumergroup_current_offset_sum", "Their sum over the partitions.", "consumergroup", "topic"
)
GROUP_LAG = _gauge(
    "kafka_consumergroup_lag",
    f"Committed records behind the committed offset; {_COORDINATED}.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_LAG_SUM = _gauge(
    "kafka_consumergroup_lag_sum",
    "Their sum over the partitions whose end is known.",
    "consumergroup",
    "topic",
)

# -- ours

BUILD_INFO = _gauge(
    "sparklog_build_info", "1 with the release and the implementation of the kernels.", "version", "kernels"
)
REQUEST_SECONDS = _declared(
    "sparklog_request_seconds",
    Kind.HISTOGRAM,
    "The time of requests by part: total, queue, local, remote, throttle, send.",
    ("request", "part"),
)
TURN_SECONDS = _declared(
    "sparklog_loop_turn_seconds", Kind.HISTOGRAM, "How long the event loop worked between two waits.", ()
)
LOOP_WAITED = _counter("sparklog_loop_waited_seconds_total", "How long the event loop has waited.")
GIL_WAIT_SECONDS = _declared(
    "sparklog_gil_wait_seconds",
    Kind.HISTOGRAM,
    "How long a system call of the loop takes, with the wait for other threads that hold Python's lock; a "
    "sample ten times a second.",
    (),
)
SYNC_SECONDS = _declared(
    "sparklog_sync_seconds", Kind.HISTOGRAM, "How long syncs took, by log directory.", ("directory",)
)
JOBS_WAITING = _gauge("sparklog_jobs_waiting", "Jobs that wait for a thread or for memory.", "pool")
JOBS_RUNNING = _gauge("sparklog_jobs_running", "Jobs on a thread.", "pool")
JOBS_DONE = _counter("sparklog_jobs_total", "Jobs that ended.", "pool")
MEMORY = _gauge("sparklog_memory_bytes", "Memory by owner, of those that have a bound.", "owner")
UNSYNCED = _gauge(
    "sparklog_directory_unsynced_bytes",
    "Bytes whose replies wait for the next sync.",
    "directory",
)
DIRECTORY_FULL = _gauge(
    "sparklog_directory_full", "1 while the disk reserve keeps producers out.", "directory"
)
DIRECTORY_FREE = _gauge(
    "sparklog_directory_free_bytes", "Free bytes of the disk of a log directory.", "directory"
)
DIRECTORY_SIZE = _gauge("sparklog_directory_disk_bytes", "Bytes of the disk of a log directory.", "directory")
DIRECTORY_RESERVE = _gauge(
    "sparklog_directory_reserve_bytes",
    "Bytes that producers cannot use; 0 before the first record.",
    "directory",
)
LAG_UNKNOWN = _gauge(
    "sparklog_group_lag_unknown_partitions",
    "Committed offsets without a lag: the leader of their partition has not answered yet.",
)
SUMMED = _gauge(
    "sparklog_series_summed", f"Topics and groups without series of their own, under {OTHERS}.", "of"
)
CLIENT_INSTANCES = _gauge("sparklog_client_instances", "Clients that have asked what to push (KIP-714).")
CLIENT_PUSHES = _counter(
    "sparklog_client_pushes_total",
    "Pushes of metrics by clients, by the error code of the response.",
    "error",
)
CLIENT_SERIES = _gauge("sparklog_client_series", "Series that clients have pushed and that are shown.")
CLIENT_DROPPED = _counter(
    "sparklog_client_points_dropped_total",
    "Pushed values that are not shown, by reason: a bound (clients, client, series, push, size, attributes), "
    "or a type or value that has no sample.",
    "reason",
)
_PUSHED_BY = ("client_id", "client_instance_id", "metric", "topic", "partition", "node", "attributes")
CLIENT_COUNTER = _counter(
    "sparklog_client_counter_total", "Sums that clients pushed, by their metric.", *_PUSHED_BY
)
CLIENT_GAUGE = _gauge("sparklog_client_gauge", "Gauges that clients pushed, by their metric.", *_PUSHED_BY)
SPANS = _counter(
    "sparklog_spans_total",
    "Spans of sampled requests: sent to the collector, dropped because too many waited, or failed.",
    "result",
)
SCRAPES = _counter("sparklog_scrapes_total", "Renderings of /metrics; scrapes at the same time share one.")
SCRAPE_SECONDS = _gauge("sparklog_scrape_seconds", "The processor time of the last rendering, in pieces.")
HTTP_REFUSED = _counter("sparklog_http_refused_total", "HTTP requests and connections refused.", "reason")

PROCESS_CPU = _counter("process_cpu_seconds_total", "Processor time of this process.")
PROCESS_RESIDENT = _gauge("process_resident_memory_bytes", "Resident memory of this process.")
PROCESS_VIRTUAL = _gauge("process_virtual_memory_bytes", "Virtual memory of this process.")
PROCESS_OPEN_FDS = _gauge("process_open_fds", "Open file descriptors.")
PROCESS_MAX_FDS = _gauge("process_max_fds", "The limit of open file descriptors.")
PROCESS_THREADS = _gauge("process_threads", "Threads of this process.")
PROCESS_START = _gauge("process_start_time_seconds", "When this process started, since 1970.")
GC_COLLECTIONS = _counter(
    "python_gc_collections_total", "Collections of Python's garbage collector.", "generation"
)
