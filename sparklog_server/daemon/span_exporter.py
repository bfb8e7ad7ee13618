"""Sends the spans of sampled requests to a collector of OpenTelemetry, by OTLP over HTTP.

    each second ─► spans that wait ─► a thread: encoded, one POST ─► sent, or failed: not tried again
                                          └─ for longer than TIMEOUT_S: its socket is shut down

One POST is under way at a time, on a thread of the exporter's own. While the collector is slow or away, spans
wait at the broker up to a bound and are dropped beyond it: neither the loop nor other jobs wait for them. A
clean stop sends the spans that wait, for END_S at most.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Final, NamedTuple

from sparklog_server.broker.metrics.request_spans import RequestSpans
from sparklog_server.broker.metrics.span import Span
from sparklog_server.config.http_settings import Collector
from sparklog_server.daemon.jobs import Jobs
from sparklog_server.daemon.reactor import Reactor

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message

INTERVAL_S: Final = 1.0
BATCH_MAX: Final = 512
TIMEOUT_S: Final = 10.0
"""Of each wait for the collector, and of a whole POST."""
END_S: Final = 1.0
_OK: Final = range(200, 300)


class Node(NamedTuple):
    """The resource that all spans belong to."""

    node_id: int
    cluster_id: str


class SpanExporter:
    """Invariant: `_begun_s` is set while a POST is under way."""

    def __init__(
        self,
        spans: RequestSpans,
        collector: Collector,
        node: Node,
        reactor: Reactor,
        *,
        after: Callable[[float, Callable[[], None]], None],
        trace: Callable[..., None],
    ) -> None:
        self._spans = spans
        self._collector = collector
        self._node = node
        self._jobs = Jobs(reactor.post)
        self._after = after
        self._trace = trace
        self._connection: HTTPConnection | None = None
        self._begun_s: float | None = None
        self._is_shut_down = False
        self._is_failing = False
        after(INTERVAL_S, self._look)

    def end(self) -> None:
        """Send the spans that wait, unless the collector is slow or away; blocks for END_S at most."""
        batch = self._spans.take(self._spans.waiting)
        if not batch or self._is_failing or self._begun_s is not None:
            return
        last = partial(_post, _connection(self._collector), self._collector.path, self._node, batch)
        thread = threading.Thread(target=last, daemon=True)  # a time-out of its socket bounds no whole POST
        thread.start()
        thread.join(END_S)

    def _look(self) -> None:
        """Begin a POST if there are spans, or end one that takes too long."""
        self._after(INTERVAL_S, self._look)
        if self._begun_s is not None:
            if time.monotonic() - self._begun_s > TIMEOUT_S:
                self._shut_down()
        elif batch := self._spans.take(BATCH_MAX):
            self._begin(batch)

    def _begin(self, batch: Sequence[Span]) -> None:
        self._begun_s = time.monotonic()
        self._connection = connection = _connection(self._collector)
        job = partial(_post, connection, self._collector.path, self._node, batch)
        self._jobs.run(job, partial(self._posted, len(batch)))

    def _shut_down(self) -> None:
        """End a POST that its collector draws out: the thread gets an error."""
        self._is_shut_down = True
        opened = None if self._connection is None else self._connection.sock
        if opened is not None:
            with suppress(OSError):  # it has ended by itself
                opened.shutdown(socket.SHUT_RDWR)

    def _posted(self, count: int, result: object) -> None:
        """On the reactor's thread."""
        self._begun_s = self._connection = None
        failure = result if isinstance(result, str) else repr(result)
        if self._is_shut_down:  # what the thread had read by then may look like a response
            failure, self._is_shut_down = f"no response within {TIMEOUT_S:g} s", False
        self._spans.counts["failed" if failure else "sent"] += count
        if bool(failure) is not self._is_failing:
            self._is_failing = bool(failure)
            where = f"{self._collector.host}:{self._collector.port}"
            if failure:
                self._trace("otlp-export-failed", collector=where, reason=failure[:200])
            else:
                self._trace("otlp-export-resumed", collector=where)
        if not failure and self._spans.waiting >= BATCH_MAX:
            self._begin(self._spans.take(BATCH_MAX))


def _connection(collector: Collector) -> HTTPConnection:
    """Not open yet. Certificates are verified, as the system trusts them; there are no redirects."""
    if not collector.is_encrypted:
        return HTTPConnection(collector.host, collector.port, timeout=TIMEOUT_S)
    context = ssl.create_default_context()
    return HTTPSConnection(collector.host, collector.port, timeout=TIMEOUT_S, context=context)


def _post(connection: HTTPConnection, path: str, node: Node, batch: Sequence[Span]) -> str:
    """A job: the failure in words, empty if there is none."""
    try:
        connection.request("POST", path, encoded(node, batch), {"Content-Type": "application/x-protobuf"})
        status = connection.getresponse().status  # its body has no end that a time-out bounds
    except (OSError, HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return "" if status in _OK else f"the collector answers {status}"


def encoded(node: Node, batch: Sequence[Span]) -> bytes:
    """An ExportTraceServiceRequest."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    for key, value in (("service.name", "sparklog"), ("service.instance.id", str(node.node_id))):
        resource_spans.resource.attributes.add(key=key).value.string_value = value
    resource_spans.resource.attributes.add(key="sparklog.cluster.id").value.string_value = node.cluster_id
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = "sparklog.requests"
    for span in batch:
        _fill(scope_spans.spans.add(), span)
    return bytes(request.SerializeToString())


def _fill(message: "Message", span: Span) -> None:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as Wire

    message.trace_id, message.span_id = span.trace_id, span.span_id
    message.name, message.kind = span.name, Wire.SPAN_KIND_SERVER
    message.start_time_unix_nano = span.wall_ns
    message.end_time_unix_nano = span.wall_ns + span.total_us * 1000
    texts = {
        "kafka.client_id": span.client_id.encode("utf-8", "replace").decode(),
        "sparklog.listener": span.listener,
        "client.address": span.address,
    }
    numbers = {
        "kafka.api_key": span.api_key,
        "kafka.api_version": span.version,
        "kafka.error_code": span.error_code,
        "sparklog.request.bytes": span.request_bytes,
        "sparklog.queue_us": span.queue_us,
        "sparklog.local_us": span.local_us,
        "sparklog.remote_us": span.remote_us,
        "sparklog.throttle_us": span.throttle_us,
        "sparklog.send_us": span.send_us,
    }
    for key, text in texts.items():
        message.attributes.add(key=key).value.string_value = text
    for key, number in numbers.items():
        message.attributes.add(key=key).value.int_value = number
