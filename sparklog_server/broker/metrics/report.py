"""What a broker tells at /metrics and /readyz, in pieces of text that take some tens of microseconds each.

The daemon takes piece after piece, with turns of the loop in between. So a report is not a snapshot: a number
is right at the time when its line is written. Nothing here is imported before the first report.
"""

from collections.abc import Iterator
from typing import Final

from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId
from sparklog_server import metrics
from sparklog_server.broker.cluster.broker_lifecycle import BrokerLifecycle
from sparklog_server.broker.context import Context
from sparklog_server.broker.metrics.client_telemetry import ClientTelemetry
from sparklog_server.broker.metrics.reassignment_progress import ReassignmentProgress
from sparklog_server.broker.metrics.remote_ends import RemoteEnds
from sparklog_server.broker.metrics.report_cluster import ClusterReport
from sparklog_server.broker.metrics.report_groups import group_report, transaction_report
from sparklog_server.broker.metrics.report_requests import RequestReport
from sparklog_server.broker.metrics.report_topics import (
    HiddenTopics,
    Shown,
    partition_report,
    replica_report,
    slices,
    traffic_report,
)
from sparklog_server.broker.sessions import Sessions
from sparklog_server.metrics_text import Text, number

_STARTING: Final = 1
_RECOVERING: Final = 2
_RUNNING: Final = 3
_LEAVING: Final = 6
_STOPPING: Final = 7


class BrokerReport:
    """The reports of one broker."""

    def __init__(self, context: Context, sessions: Sessions, standing: BrokerLifecycle) -> None:
        self._context = context
        self._sessions = sessions
        self._standing = standing
        self._ends = RemoteEnds(context)
        self._cluster = ClusterReport(context)
        self._hidden = HiddenTopics()
        self._reassignments = ReassignmentProgress()
        self._requests: RequestReport | None = None
        if sessions.observers.times is not None and sessions.observers.errors is not None:
            self._requests = RequestReport(sessions.observers.times, sessions.observers.errors)

    def render(self, text: Text, idle: float, now: Instant) -> Iterator[str]:
        """Every metric of the broker. `idle` is the part of the time that the loop waits."""
        context, shown = self._context, Shown(self._hidden)
        yield from shown.collect(context)
        yield from traffic_report(text, context, shown)
        yield from replica_report(text, context, shown, self._reassignments, now)
        yield from self._cluster.throttled(text, now)
        yield from self._cluster.render(text)
        yield from self._cluster.quorum(text, idle, now)
        yield from self._memory(text)
        if self._requests is not None:
            yield from self._requests.render(text, now)
        if (spans := self._sessions.observers.spans) is not None:
            yield text.several(metrics.SPANS, [((result,), count) for result, count in spans.counts.items()])
        if (telemetry := context.known_client_telemetry) is not None:
            yield from client_report(text, telemetry, now)
        yield from group_report(text, context, self._ends)
        yield from transaction_report(text, context)
        yield from partition_report(text, context, shown, self._cluster.leaderless)
        yield text.several(metrics.SUMMED, [(("topics",), shown.hidden_topics)])

    def ended(self, now: Instant) -> None:
        """After a report: ask other brokers for what the next one needs; a turn of the broker must follow."""
        if not self._sessions.is_stopping:
            self._ends.ask(now)

    def _memory(self, text: Text) -> Iterator[str]:
        context, sessions = self._context, self._sessions
        owners = {
            "requests": sessions.memory.total_bytes,
            "replies": sessions.replying.memory.total_bytes,
            "unsynced": sum(one.unsynced_bytes for one in context.partitions.directories),
        }
        yield text.several(metrics.MEMORY, [((owner,), value) for owner, value in owners.items()])
        yield text.one(metrics.QUEUED_REQUESTS, sessions.queued)
        yield text.one(metrics.DELAYED_OPERATIONS, len(context.timers))
        cached = context.cached_consumer_sessions
        yield text.one(metrics.FETCH_SESSIONS, 0 if cached is None else len(cached))
        yield text.one(metrics.FETCH_SESSION_PARTITIONS, 0 if cached is None else cached.part_count)
        yield text.one(metrics.BROKER_STATE, self._state())

    def _state(self) -> int:
        if self._sessions.is_stopping:
            return _STOPPING
        if self._standing.is_leaving:
            return _LEAVING
        if self._standing.is_ready:
            return _RUNNING
        return _STARTING if self._standing.is_recovered else _RECOVERING

    # -- readiness

    def unready(self) -> Iterator[str]:
        """Why this node is not ready, as one text after empty pieces; empty if it is ready: registered, not
        fenced, no log directory offline, each of its replicas in sync.
        """
        context = self._context
        if "broker" not in context.settings.process_roles:
            yield "" if context.quorum.raft.leader_id >= 0 else "no leader of the metadata quorum is known\n"
            return
        if self._sessions.is_stopping or self._standing.is_leaving:
            yield "the broker stops\n"
        elif context.broker_epoch.value < 0:
            yield "the broker is not registered\n"
        elif not self._standing.is_ready:
            yield "the broker is fenced\n"
        elif failed := [one.log_dir.path for one in context.partitions.directories if one.error is not None]:
            yield f"log directories are offline: {', '.join(failed)}\n"
        elif context.partitions.has_offline:
            yield "partitions of this node are offline\n"
        else:
            yield from self._out_of_sync()

    def _out_of_sync(self) -> Iterator[str]:
        image, node_id, behind, first = self._context.image, NodeId(self._context.settings.node_id), 0, ""
        for partitions in list(self._context.partitions.by_topic.values()):
            for part in slices(list(partitions.values())):
                for partition in part:
                    known = image.partition(partition.topic_partition)
                    is_behind = known is not None and node_id not in known.isr
                    if is_behind or partition.error is ErrorCode.KAFKA_STORAGE_ERROR:
                        behind += 1
                        first = first or str(partition.topic_partition)
                yield ""
        if behind:
            yield f"{behind} replicas of this node are not in sync, the first is {first}\n"


_AT_ONCE: Final = 16
"""A label may have 249 characters, a line more than a thousand."""


def client_report(text: Text, telemetry: ClientTelemetry, now: Instant) -> Iterator[str]:
    """The clients that push, and their metrics."""
    shown = telemetry.shown
    clients = shown.current(now)
    yield text.one(metrics.CLIENT_INSTANCES, telemetry.instances(now))
    yield text.several(metrics.CLIENT_PUSHES, [((name,), count) for name, count in telemetry.pushes.items()])
    yield text.one(metrics.CLIENT_SERIES, shown.series)
    yield text.several(
        metrics.CLIENT_DROPPED, [((reason,), count) for reason, count in shown.dropped.items()]
    )
    for metric, is_total in ((metrics.CLIENT_COUNTER, True), (metrics.CLIENT_GAUGE, False)):
        yield text.head(metric)
        for client in clients:
            series = list((client.totals if is_total else client.gauges).items())
            for begin in range(0, len(series), _AT_ONCE):
                lines = [
                    f"{metric.name}{{{client.labels},{labels.decode()}}} {number(value)}\n"
                    for labels, value in series[begin : begin + _AT_ONCE]
                ]
                yield "".join(lines)
