"""A broker on its sockets, from bind to exit.

    bind ─► open directories, join the quorum ─► listen, print ready ─► serve ─► signal ─► stop ─► exit 0
      │          │                                                       │
      └──────────┴── error on stderr, exit 1                             └── bug or halt: log, exit 1

SIGTERM and SIGINT stop the broker cleanly, a second one ends the process at once. SIGHUP has a broker with a
settings file read it again, and stops another one cleanly; it never ends the process at once, because systemd
may send it together with SIGTERM. A broker started with SIGHUP ignored, as nohup does, ignores it.
"""

import errno
import faulthandler
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

from sparklog.errors import SparklogError
from sparklog.model import Instant
from sparklog_server.config.listeners import Listener, joined
from sparklog_server.config.sasl_settings import uses_sasl
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.config.tls_settings import needs_certificates
from sparklog_server.daemon.admission import Admission, protected_listeners
from sparklog_server.daemon.linux import set_malloc_options, trim_heap
from sparklog_server.daemon.logs import TraceLog
from sparklog_server.daemon.pump import Halted, Pump, Serving, read_clock
from sparklog_server.daemon.reactor import Reactor
from sparklog_server.disk.checkpoint import CheckpointCorrupt
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log.directory.log_dir import DirectoryRefused

if TYPE_CHECKING:
    from sparklog_server.config.reload import SettingsFile
    from sparklog_server.daemon.certificates import Certificates
    from sparklog_server.daemon.handshakes import Established, Handshakes
    from sparklog_server.daemon.http_listener import HttpListener
    from sparklog_server.daemon.jobs import Jobs
    from sparklog_server.daemon.parent import Parent
    from sparklog_server.daemon.reload import Reload
    from sparklog_server.daemon.service import ServiceManager
    from sparklog_server.daemon.span_exporter import SpanExporter

IDLE_SWEEPS: Final = 8
# The time for which another thread may hold the GIL when the loop returns from a system call. Python's
# default of 5 ms is the time of a hundred requests.
SWITCH_INTERVAL_S: Final = 0.0005
# Python's own thresholds but the last, which is 10 there. A full collection stops the loop for 3 ms per
# thousand connections and finds next to nothing, because requests leave no reference cycles.
GC_THRESHOLDS: Final = (700, 10, 100)
# The interval of heap trims, and the growth of its free memory that causes one: freed replies and requests
# leave free memory between used pieces, which the allocator keeps.
TRIMMED_EVERY_S: Final = 5
TRIMMED_BYTES_MIN: Final = 32 << 20
FLUSHED_EVERY_S: Final = 5
"""The interval in which the log tells how often lines were repeated."""

# Errors that keep a broker from starting and that one sentence describes; any other error is a bug.
REFUSALS: Final = (SparklogError, StorageError, DirectoryRefused, CheckpointCorrupt)

CertificatesRefusal = Callable[[BrokerSettings], str | None]
OpenBroker = Callable[
    [BrokerSettings, Disk, Callable[..., None], Instant, CertificatesRefusal | None], Serving
]


class CannotListen(SparklogError):
    """An address cannot be bound."""


class Server:
    """One process, one broker. `run` returns the exit code."""

    def __init__(
        self,
        settings: BrokerSettings,
        disk: Disk,
        open_broker: OpenBroker,
        log: TraceLog,
        *,
        connections_max: int,
        parent_pid: int | None = None,
        owned_directory: str | None = None,
        settings_file: "SettingsFile | None" = None,
    ) -> None:
        self._log = log
        self._settings_file = settings_file
        self._reload: Reload | None = None
        self._is_reload_wanted = False
        self._manager = _service_manager() if parent_pid is None else None  # else it is that of the parent
        self._owned_directory = owned_directory
        self._is_stop_wanted = False
        self._was_signalled = False  # by SIGTERM or SIGINT
        self._is_stopping = False
        self._reactor = Reactor()
        self._sockets = [(listener, _bind(listener)) for listener in settings.listeners]
        ports = {listener.name: bound.getsockname()[1] for listener, bound in self._sockets}
        self._settings = settings.with_bound_ports(ports)
        http_bound = None if settings.http_listener is None else _bind(settings.http_listener)
        self._listen_to_signals()
        self._certificates = _certificates(settings, log) if needs_certificates(settings) else None
        refusal = None if self._certificates is None else self._certificates.refusal
        self._broker = open_broker(self._settings, disk, log.trace, read_clock(), refusal)
        log.loggers = self._broker.loggers
        self._pump = Pump(
            self._broker,
            disk,
            self._reactor,
            log.trace,
            unsent_bytes_max=settings.connections.sparklog_session_unsent_max_bytes,
        )
        self._chores: list[tuple[float, int, Callable[[], None]]] = []
        self._chore_numbers = count()
        self._http = None if http_bound is None else self._http_listener(http_bound)
        self._exporter: SpanExporter | None = None
        if settings.telemetry.otlp_endpoint is not None:
            self._export_spans()
        handshakes = None if self._certificates is None else self._secure(self._certificates)
        if uses_sasl(settings):
            from sparklog_server.daemon.newcomers import Unauthenticated

            self._pump.unauthenticated = Unauthenticated(
                self._broker.is_authenticated, after=self._after, trace=log.trace
            )
        self._admission = Admission(
            self._sockets,
            self._settings,
            self._broker,
            self._pump,
            self._reactor,
            connections_max=connections_max,
            handshakes=handshakes,
            after=self._after,
            trace=log.trace,
        )
        self._untrimmed_bytes = 0  # free bytes of the heap after the last trim, or fewer since
        if parent_pid is not None:
            from sparklog_server.daemon.parent import Parent  # only a broker that is embedded has one

            self._watch_parent(Parent(parent_pid, self._reactor, self._want_stop))

    def run(self) -> int:
        """Start, print the ready line, serve until a signal, stop."""
        try:
            self._open_http()
            self._open(is_controller=True)  # before the broker registers: other nodes need this one to decide
            self._pump.start()
            while not self._broker.is_ready and not self._is_stop_wanted:
                self._reactor.turn(self._run_due())
            if not self._is_stop_wanted:
                self._listen()
            while not self._broker.is_stopped:
                if self._is_stop_wanted and not self._is_stopping:
                    self._stop()
                elif self._is_reload_wanted:
                    self._begin_reload()
                else:
                    wait_s = self._run_due()
                    if not self._broker.is_stopped:  # a tick may have ended its stop
                        self._reactor.turn(wait_s)
                if self._broker.is_stopping:  # in a cluster only once its leaderships are moved
                    self._admission.end()
                    if self._http is not None:
                        self._http.end()
                        self._http = None
        except Halted as halted:
            self._halt(str(halted))
        except REFUSALS as error:
            if self._broker.is_ready:
                self._halt(str(error))
            raise
        except Exception as bug:
            import traceback  # imported here, as `shutil` below, because imports are most of a start

            self._halt(f"{type(bug).__name__}: {bug}\n{traceback.format_exc()}")
        if self._exporter is not None:
            self._exporter.end()
        self._log.flush(is_end=True)
        self._log.trace("stopped", node=self._settings.node_id)
        if self._owned_directory is not None:
            import shutil

            shutil.rmtree(self._owned_directory, ignore_errors=True)
        return 0

    # -- start and stop

    def _listen(self) -> None:
        self._open(is_controller=False)
        if self._settings.connections.connections_max_idle_ms > 0:
            self._sweep_idle()
        self._after(TRIMMED_EVERY_S, self._trim_heap)
        self._after(FLUSHED_EVERY_S, self._flush_log)
        # Objects that exist now live as long as the process: the collector need not walk them again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        first = self._settings.listeners[0]
        self._log.trace(
            "ready", node=self._settings.node_id, listeners=",".join(map(str, self._settings.listeners))
        )
        if self._manager is not None:
            self._manager.ready(self._status)
            self._manager.watch(self._after)
        ready_line = (
            f"ready node={self._settings.node_id} listen={joined(first.host, first.port)} pid={os.getpid()}"
        )
        print(ready_line if self._http is None else f"{ready_line} http={self._http}", flush=True)

    def _open(self, *, is_controller: bool) -> None:
        """Accept connections on the listeners of controllers, or on the others."""
        controllers = self._settings.controller_listener_names
        sockets = [one for one in self._sockets if (one[0].name in controllers) is is_controller]
        for listener, bound in sockets:
            try:
                bound.listen(self._settings.connections.socket_listen_backlog_size)
            except OSError as error:
                raise _cannot_listen(listener, error) from error
        self._admission.begin(sockets)

    def _http_listener(self, bound: socket.socket) -> "HttpListener":
        from sparklog_server.daemon.http_listener import HttpListener  # most nodes on a laptop have none

        assert self._settings.http_listener is not None
        return HttpListener(
            self._settings.http_listener,
            bound,
            self._broker,
            self._pump,
            self._reactor,
            entropy=entropy,
            after=self._after,
            trace=self._log.trace,
            events=self._log.events,
        )

    def _export_spans(self) -> None:
        """Send the spans of sampled requests from now on."""
        from sparklog_server.config.http_settings import collector_of
        from sparklog_server.daemon.span_exporter import Node, SpanExporter

        context, sessions, _ = self._broker.observed
        collector = collector_of(self._settings.telemetry)
        if sessions.observers.spans is None or collector is None:
            remedy = "pip install 'sparklog[telemetry]'"
            self._log.trace("otlp-unavailable", missing="opentelemetry-proto", remedy=remedy)
            return
        self._exporter = SpanExporter(
            sessions.observers.spans,
            collector,
            Node(self._settings.node_id, context.cluster_id),
            self._reactor,
            after=self._after,
            trace=self._log.trace,
        )

    def _open_http(self) -> None:
        """Answer /healthz and /readyz from now on, before the broker is ready."""
        http, listener = self._http, self._settings.http_listener
        if http is None or listener is None:
            return
        handshakes = None
        if listener.is_encrypted:
            assert self._certificates is not None
            handshakes = self._handshakes(self._certificates, self._pump.client_handshakes, http.established)
        http.begin(handshakes)
        self._log.trace("http-listening", at=str(http))

    def _secure(self, certificates: "Certificates") -> "dict[str, Handshakes]":
        """The handshakes of each listener with TLS."""
        pump = self._pump
        pump.certificates = certificates
        self._check_certificates()
        of_clients, of_nodes = (
            self._handshakes(certificates, jobs, pump.established)
            for jobs in (pump.client_handshakes, pump.node_handshakes)
        )
        protected = protected_listeners(self._settings)
        return {
            one.name: of_nodes if one.name in protected else of_clients
            for one in self._settings.listeners
            if one.is_encrypted
        }

    def _handshakes(
        self, certificates: "Certificates", jobs: "Jobs", established: "Established"
    ) -> "Handshakes":
        from sparklog_server.daemon.handshakes import Handshakes

        return Handshakes(
            certificates,
            self._reactor,
            jobs,
            established,
            timeout_ms=self._settings.tls.sparklog_ssl_handshake_timeout_ms,
            after=self._after,
            trace=self._log.trace,
        )

    def _check_certificates(self) -> None:
        """Look now and then whether the files of certificates have changed."""
        interval_ms = self._settings.tls.sparklog_ssl_reload_interval_ms
        if interval_ms:
            self._after(interval_ms / 1000, self._refresh_certificates)

    def _refresh_certificates(self) -> None:
        assert self._certificates is not None
        self._certificates.refresh(self._broker.settings, self._pump.run, is_changed=False)
        self._check_certificates()

    def _listen_to_signals(self) -> None:
        # A signal that arrives just before the wait would be handled only after it: the system's own handler
        # ends the wait.
        signal.set_wakeup_fd(self._reactor.wake_descriptor, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._signalled)
        signal.signal(signal.SIGINT, self._signalled)
        faulthandler.register(signal.SIGUSR1)  # the stacks of all threads on stderr, even if the loop hangs
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._signalled)

    def _signalled(self, number: int, _frame: object) -> None:
        if number != signal.SIGHUP:
            if self._was_signalled:
                os._exit(1)
            self._was_signalled = True
        elif self._settings_file is not None:
            self._is_reload_wanted = True
            self._reactor.wake()
            return
        self._want_stop()

    def _want_stop(self) -> None:
        self._is_stop_wanted = True
        self._reactor.wake()

    def _stop(self) -> None:
        self._is_stopping = True
        self._log.trace("stopping", node=self._settings.node_id)
        if self._manager is not None:
            self._manager.stopping()
        self._pump.stop()

    def _begin_reload(self) -> None:
        """Read the settings file again."""
        self._is_reload_wanted = False
        if self._is_stopping:
            return
        if self._reload is None:
            from sparklog_server.daemon.reload import Reload

            assert self._settings_file is not None
            self._reload = Reload(
                self._settings_file,
                self._broker,
                self._pump,
                self._certificates,
                self._log.trace,
                self._reloaded,
            )
        if self._manager is not None:
            self._manager.reloading()
        self._reload.begin()

    def _reloaded(self) -> None:
        if self._manager is not None and not self._is_stopping:
            self._manager.ready(self._status)

    @property
    def _status(self) -> str:
        return f"node {self._settings.node_id} listens on {', '.join(map(str, self._settings.listeners))}"

    def _halt(self, reason: str) -> None:
        """End the process at once, without the writes of a clean stop."""
        self._log.halt(reason)
        os._exit(1)

    # -- chores: periodic work

    def _run_due(self) -> float | None:
        """Run due chores and tick the broker; returns the seconds until the next chore or tick."""
        if self._chores:
            now_s = time.monotonic()
            while self._chores and self._chores[0][0] <= now_s:
                heappop(self._chores)[2]()
        self._admission.turned()
        if self._certificates is not None:
            self._certificates.follow(self._broker.settings, self._pump.run)
        wait_s = self._pump.tick()
        if not self._chores:
            return wait_s
        chore_s = max(0.0, self._chores[0][0] - time.monotonic())
        return chore_s if wait_s is None else min(wait_s, chore_s)

    def _after(self, delay_s: float, chore: Callable[[], None]) -> None:
        heappush(self._chores, (time.monotonic() + delay_s, next(self._chore_numbers), chore))

    def _watch_parent(self, parent: "Parent") -> None:
        parent.check()
        self._after(parent.CHECKED_EVERY_S, lambda: self._watch_parent(parent))

    def _sweep_idle(self) -> None:
        idle_ms = self._settings.connections.connections_max_idle_ms
        self._pump.close_idle(idle_ms * 1000)
        self._after(idle_ms / 1000 / IDLE_SWEEPS, self._sweep_idle)

    def _flush_log(self) -> None:
        self._log.flush()
        self._after(FLUSHED_EVERY_S, self._flush_log)

    def _trim_heap(self) -> None:
        """Return free memory to the system, in a job, every few seconds."""
        self._pump.run(partial(trim_heap, self._untrimmed_bytes, TRIMMED_BYTES_MIN), self._trimmed)

    def _trimmed(self, untrimmed_bytes: object) -> None:
        assert isinstance(untrimmed_bytes, int), untrimmed_bytes
        self._untrimmed_bytes = untrimmed_bytes
        self._after(TRIMMED_EVERY_S, self._trim_heap)


def _certificates(settings: BrokerSettings, log: TraceLog) -> "Certificates":
    """Read the certificates; imported here because most nodes on a laptop have none."""
    from sparklog_server.daemon.certificates import Certificates

    return Certificates(settings, log.trace)


def _service_manager() -> "ServiceManager | None":
    if "NOTIFY_SOCKET" not in os.environ:
        return None
    from sparklog_server.daemon.service import of_environment

    return of_environment()


def prepare_process() -> None:
    """Prepare the process: short turns for other threads, freed memory kept for reuse."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    set_malloc_options()


def entropy(size: int) -> bytes:
    """Random bytes from the system."""
    return os.urandom(size)


def _bind(listener: Listener) -> socket.socket:
    """A socket bound to the listener's address, not listening yet: until the broker is ready, connections
    are refused.
    """
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((listener.host, listener.port))
    except OSError as error:
        bound.close()
        raise _cannot_listen(listener, error) from error
    bound.setblocking(False)
    return bound


def _cannot_listen(listener: Listener, error: OSError) -> CannotListen:
    address = joined(listener.host, listener.port)
    remedy = (
        "; another program listens there: choose another with --listen"
        if error.errno == errno.EADDRINUSE
        else ""
    )
    return CannotListen(f"cannot listen on {address}: {(error.strerror or str(error)).lower()}{remedy}")
