"""A collector of OpenTelemetry that keeps what it is sent, by OTLP over HTTP."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """`status` is what it answers; while `goes_on` is not set, it answers nothing."""

    def __init__(self, status: int = 200, tls: ssl.SSLContext | None = None) -> None:
        self.status = status
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: list[str] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.asked = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.asked.set()
                collector.goes_on.wait()
                assert self.headers["Content-Type"] == "application/x-protobuf"
                content = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests.append(ExportTraceServiceRequest.FromString(content))
                collector.paths.append(self.path)
                self.send_response(collector.status)
                if collector.status == 302:
                    self.send_header("Location", f"{collector.url}/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # handshakes that fail
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @contextmanager
    def serving(self) -> Iterator["Collector"]:
        self._thread.start()
        try:
            yield self
        finally:
            self.goes_on.set()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def attributes(message: Any) -> dict[str, str | int]:
    """The attributes of a span or resource."""
    return {
        one.key: one.value.string_value
        if one.value.WhichOneof("value") == "string_value"
        else one.value.int_value
        for one in message.attributes
    }
