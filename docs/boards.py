# ruff: noqa: E501 - a query stays on one line
"""The Grafana boards of conf/grafana, generated: a panel is a title, a unit and queries with their legends."""

import json
from typing import Final, NamedTuple

SPAN: Final = "$__rate_interval"
_WIDTH, _HEIGHT, _PER_ROW = 8, 8, 3


class Panel(NamedTuple):
    """A graph; `queries` maps each query to its legend."""

    title: str
    unit: str
    queries: dict[str, str]


def _rate(metric: str, by: str = "", where: str = "") -> str:
    """A rate summed over the nodes, or by a label."""
    grouped = f"sum by ({by}) " if by else "sum"
    return f"{grouped}(rate({metric}{where}[{SPAN}]))"


_TOPIC: Final = '{topic!=""}'
_IO: Final = "kafka_server_brokertopicmetrics"
_REQUESTS: Final = "kafka_network_requestmetrics"
_REPLICAS: Final = "kafka_server_replicamanager"
_CONTROLLER: Final = "kafka_controller_kafkacontroller"

BOARDS: Final[dict[str, tuple[str, list[Panel]]]] = {
    "cluster": (
        "sparklog: cluster",
        [
            Panel("Brokers", "none", {f"sum({_CONTROLLER}_activebrokercount)": "brokers"}),
            Panel("Active controllers", "none", {f"sum({_CONTROLLER}_activecontrollercount)": "controllers"}),
            Panel(
                "Partitions without a leader",
                "none",
                {f"sum({_CONTROLLER}_offlinepartitionscount)": "offline"},
            ),
            Panel(
                "Records in",
                "cps",
                {_rate(f"{_IO}_messagesin_total", "instance", '{topic=""}'): "{{instance}}"},
            ),
            Panel(
                "Bytes in", "Bps", {_rate(f"{_IO}_bytesin_total", "instance", '{topic=""}'): "{{instance}}"}
            ),
            Panel(
                "Bytes out", "Bps", {_rate(f"{_IO}_bytesout_total", "instance", '{topic=""}'): "{{instance}}"}
            ),
            Panel("Requests", "reqps", {_rate(f"{_REQUESTS}_requests_total", "request"): "{{request}}"}),
            Panel(
                "Time of requests, 99th percentile",
                "ms",
                {f'max by (request) ({_REQUESTS}_totaltimems{{quantile="0.99"}})': "{{request}}"},
            ),
            Panel(
                "Mean time of Produce by part",
                "s",
                {
                    f'sum by (part) (rate(sparklog_request_seconds_sum{{request="Produce",part!="total"}}[{SPAN}]))'
                    f' / sum by (part) (rate(sparklog_request_seconds_count{{request="Produce",part!="total"}}[{SPAN}]))': "{{part}}"
                },
            ),
            Panel(
                "Free disk space", "bytes", {"sparklog_directory_free_bytes": "{{instance}} {{directory}}"}
            ),
            Panel(
                "Connections",
                "none",
                {"sum by (listener) (kafka_server_socket_server_metrics_connection_count)": "{{listener}}"},
            ),
            Panel(
                "Epoch and end of the metadata log",
                "none",
                {
                    "max(kafka_server_raftmetrics_current_epoch)": "epoch",
                    "max(kafka_server_raftmetrics_log_end_offset)": "end",
                    "max(kafka_server_raftmetrics_high_watermark)": "high watermark",
                },
            ),
        ],
    ),
    "topics": (
        "sparklog: topics",
        [
            Panel("Records in", "cps", {_rate(f"{_IO}_messagesin_total", "topic", _TOPIC): "{{topic}}"}),
            Panel("Bytes in", "Bps", {_rate(f"{_IO}_bytesin_total", "topic", _TOPIC): "{{topic}}"}),
            Panel("Bytes out", "Bps", {_rate(f"{_IO}_bytesout_total", "topic", _TOPIC): "{{topic}}"}),
            Panel(
                "Batches", "cps", {_rate(f"{_IO}_totalproducerequests_total", "topic", _TOPIC): "{{topic}}"}
            ),
            Panel(
                "Refused batches",
                "cps",
                {_rate(f"{_IO}_failedproducerequests_total", "topic", _TOPIC): "{{topic}}"},
            ),
            Panel(
                "Fetches with an error",
                "cps",
                {_rate(f"{_IO}_failedfetchrequests_total", "topic", _TOPIC): "{{topic}}"},
            ),
            Panel("Size on all nodes", "bytes", {"sum by (topic) (kafka_log_log_size)": "{{topic}}"}),
            Panel(
                "Offsets from start to end",
                "none",
                {
                    "sum by (topic) (kafka_topic_partition_current_offset - kafka_topic_partition_oldest_offset)": "{{topic}}"
                },
            ),
            Panel("Partitions", "none", {"sum by (topic) (kafka_topic_partitions)": "{{topic}}"}),
        ],
    ),
    "groups": (
        "sparklog: groups and lag",
        [
            Panel(
                "Lag",
                "none",
                {
                    "sum by (consumergroup, topic) (kafka_consumergroup_lag_sum)": "{{consumergroup}} {{topic}}"
                },
            ),
            Panel(
                "Lag by partition",
                "none",
                {"topk(20, kafka_consumergroup_lag)": "{{consumergroup}} {{topic}}-{{partition}}"},
            ),
            Panel(
                "Offsets committed per second",
                "cps",
                {
                    f"sum by (consumergroup, topic) (rate(kafka_consumergroup_current_offset_sum[{SPAN}]))": "{{consumergroup}} {{topic}}"
                },
            ),
            Panel(
                "Members",
                "none",
                {"sum by (consumergroup) (kafka_consumergroup_members)": "{{consumergroup}}"},
            ),
            Panel(
                "Groups",
                "none",
                {
                    "sum(kafka_coordinator_group_groupmetadatamanager_numgroups)": "groups",
                    "sum(kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance)": "rebalancing",
                },
            ),
            Panel("Offsets without a lag", "none", {"sum(sparklog_group_lag_unknown_partitions)": "unknown"}),
        ],
    ),
    "replication": (
        "sparklog: replication",
        [
            Panel(
                "Under-replicated partitions",
                "none",
                {f"{_REPLICAS}_underreplicatedpartitions": "{{instance}}"},
            ),
            Panel(
                "Partitions under min.insync.replicas",
                "none",
                {f"{_REPLICAS}_underminisrpartitioncount": "{{instance}}"},
            ),
            Panel("Offline replicas", "none", {f"{_REPLICAS}_offlinereplicacount": "{{instance}}"}),
            Panel(
                "Bytes from leaders",
                "Bps",
                {_rate(f"{_IO}_replicationbytesin_total", "instance"): "{{instance}}"},
            ),
            Panel(
                "Bytes to followers",
                "Bps",
                {_rate(f"{_IO}_replicationbytesout_total", "instance"): "{{instance}}"},
            ),
            Panel(
                "Partitions that are reassigned",
                "none",
                {f"{_REPLICAS}_reassigningpartitions": "{{instance}}"},
            ),
            Panel(
                "Records that reassignments wait for",
                "none",
                {"sparklog_reassignment_behind_records": "{{instance}}"},
            ),
            Panel(
                "Reassignments without progress",
                "s",
                {"sparklog_reassignment_stalled_seconds": "{{instance}}"},
            ),
            Panel(
                "Bytes out by reassignments",
                "Bps",
                {_rate(f"{_IO}_reassignmentbytesout_total", "instance"): "{{instance}}"},
            ),
            Panel(
                "Bytes in by reassignments",
                "Bps",
                {_rate(f"{_IO}_reassignmentbytesin_total", "instance"): "{{instance}}"},
            ),
            Panel(
                "Throttled replication",
                "Bps",
                {
                    "kafka_server_leaderreplication_byte_rate": "from {{instance}}",
                    "kafka_server_followerreplication_byte_rate": "to {{instance}}",
                },
            ),
            Panel(
                "Changes of ISRs",
                "cps",
                {
                    _rate(f"{_REPLICAS}_isrshrinks_total"): "shrinks",
                    _rate(f"{_REPLICAS}_isrexpands_total"): "expands",
                },
            ),
            Panel("Leaders", "none", {f"{_REPLICAS}_leadercount": "{{instance}}"}),
            Panel(
                "Not led by the preferred replica",
                "none",
                {f"sum({_CONTROLLER}_preferredreplicaimbalancecount)": "partitions"},
            ),
            Panel(
                "Commit of metadata, mean",
                "ms",
                {"max(kafka_server_raftmetrics_commit_latency_avg)": "commit"},
            ),
        ],
    ),
    "process": (
        "sparklog: process",
        [
            Panel(
                "Processor", "percentunit", {_rate("process_cpu_seconds_total", "instance"): "{{instance}}"}
            ),
            Panel("Resident memory", "bytes", {"process_resident_memory_bytes": "{{instance}}"}),
            Panel("Open descriptors", "none", {"process_open_fds": "{{instance}}"}),
            Panel(
                "Work between two waits of the loop, 99th percentile",
                "s",
                {
                    f"histogram_quantile(0.99, sum by (instance, le) (rate(sparklog_loop_turn_seconds_bucket[{SPAN}])))": "{{instance}}"
                },
            ),
            Panel(
                "The loop waits",
                "percentunit",
                {"kafka_network_socketserver_networkprocessoravgidle_percent": "{{instance}}"},
            ),
            Panel(
                "Syncs, 99th percentile",
                "s",
                {
                    "histogram_quantile(0.99, sum by (instance, directory, le) "
                    f"(rate(sparklog_sync_seconds_bucket[{SPAN}])))": "{{instance}} {{directory}}"
                },
            ),
            Panel("Memory by owner", "bytes", {"sparklog_memory_bytes": "{{instance}} {{owner}}"}),
            Panel(
                "Jobs that wait",
                "none",
                {"sum by (instance, pool) (sparklog_jobs_waiting)": "{{instance}} {{pool}}"},
            ),
            Panel(
                "Writes to disks",
                "Bps",
                {_rate("kafka_server_kafkaserver_linux_disk_write_bytes", "instance"): "{{instance}}"},
            ),
        ],
    ),
}
"""By file name: the title and the panels."""


def text(name: str) -> str:
    """The JSON of a board."""
    title, panels = BOARDS[name]
    source = {"type": "prometheus", "uid": "${source}"}
    return (
        json.dumps(
            {
                "uid": f"sparklog-{name}",
                "title": title,
                "schemaVersion": 39,
                "refresh": "30s",
                "time": {"from": "now-1h", "to": "now"},
                "templating": {
                    "list": [
                        {
                            "name": "source",
                            "label": "Data source",
                            "type": "datasource",
                            "query": "prometheus",
                        }
                    ]
                },
                "panels": [
                    {
                        "id": number + 1,
                        "type": "timeseries",
                        "title": panel.title,
                        "datasource": source,
                        "gridPos": {
                            "x": number % _PER_ROW * _WIDTH,
                            "y": number // _PER_ROW * _HEIGHT,
                            "w": _WIDTH,
                            "h": _HEIGHT,
                        },
                        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                        "targets": [
                            {
                                "refId": chr(ord("A") + index),
                                "expr": query,
                                "legendFormat": legend,
                                "datasource": source,
                            }
                            for index, (query, legend) in enumerate(panel.queries.items())
                        ],
                    }
                    for number, panel in enumerate(panels)
                ],
            },
            indent=1,
        )
        + "\n"
    )
