"""The nodes of a cluster on this machine: a process each, forked from one that has imported the server.

    start ─► fork each node ─► all ready: print one line ─► SIGTERM ─► stop each, in order of ids ─► exit 0
                   │                  │      ▲                              └── again, or SIGQUIT: kill all
                   │                  ▼      │ ready again
                   │              a node ends ─► pause ─► fork it again
                   │               └── it is refused, as without its disk: the reason is logged once
                   └── a node ends before its first ready line ─► stop the others ─► exit 1

    restart (by supervisor_socket.py) ─► SIGTERM to the node ─► it ends ─► a new interpreter runs it

A fork shares the imported modules with its siblings: three nodes start in the time of one and a half, and
take less memory. A node that a command has restarted runs in an interpreter of its own from then on, because
the files of the release may have been replaced since this process imported them.

The standard input of each node is a pipe that only the supervisor holds open, so a node stops when the
supervisor is gone, even by `kill -9`. A node is in a process group of its own, so Ctrl-C in a terminal
reaches only the supervisor.

The ports are chosen here, before the first node starts, and stay reserved: the supervisor keeps a socket
bound to each port that never listens. A node binds beside it (SO_REUSEADDR), other programs cannot, and
while the node is down its port refuses connections.
"""

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NoReturn

from sparklog.errors import SparklogError
from sparklog_server.config.load import Loaded
from sparklog_server.daemon.logs import TraceLog
from sparklog_server.daemon.parent import REFUSED, Parent, print_refusal
from sparklog_server.daemon.reactor import Reactor
from sparklog_server.daemon.supervisor_socket import (
    NodeProcess,
    SupervisorReply,
    SupervisorRequest,
    SupervisorSocket,
)

FIRST_PAUSE_S: Final = 0.25
PAUSE_S_MAX: Final = 30.0
RAN_WELL_S: Final = 60.0


class Restarts:
    """The restarts of one node."""

    def __init__(self) -> None:
        self._started_at_s = 0.0
        self._pause_s = FIRST_PAUSE_S

    def started(self, now_s: float) -> None:
        """The node was started."""
        self._started_at_s = now_s

    def ended(self, now_s: float) -> float:
        """The node ended: the pause before it is started again."""
        if now_s - self._started_at_s >= RAN_WELL_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, PAUSE_S_MAX)
        return pause_s


STOP_S_MAX: Final = 10.0
"""A node that has not stopped after this time is killed."""

RunNode = Callable[[Loaded, TraceLog, int], int]
"""Runs a node in this process, with its log and the pid of its parent, and returns its exit code. Raises
NodeRefused.
"""


class NodeRefused(SparklogError):
    """A node cannot start; the text says why, and what to do."""


class Child:
    """The process of one node; `pid` is 0 while none runs."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.node_id = loaded.settings.node_id
        self.pid = 0
        self.ready_pipe = -1
        self.said = ""  # on its standard output, until its ready line is whole
        self.listen = ""
        self.http = ""
        self.is_ready = False
        self.restarts = Restarts()
        self.restart_at_s: float | None = None
        self.is_refused = False
        self.refusal = ""  # the last one, until the node is ready
        self.starts = 0
        self.options: Sequence[str] | None = None  # of `sparklog start`, once a new interpreter runs it
        self.is_restart_wanted = False  # a command wants it to end, and has signalled it


class Supervisor:
    """Invariant: a child that was reaped is never signalled, since its pid may be that of another process."""

    def __init__(
        self,
        nodes: Sequence[Loaded],
        run: RunNode,
        log: TraceLog,
        *,
        cluster_id: str,
        parent_pid: int | None = None,
        directory: str | None = None,
        options: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """Restarts are asked for by a socket in `directory`; `options` are those of `sparklog start` by node
        id. Raises SparklogError where another supervisor runs in the directory.
        """
        self._run = run
        self._log = log
        self._cluster_id = cluster_id
        self._children = [Child(loaded) for loaded in nodes]
        self._is_announced = False  # the ready line was printed
        self._is_stop_wanted = False
        self._has_failed = False  # a node could not start
        self._was_signalled = False
        self._pid = os.getpid()
        self._alive_reader, self._alive_writer = os.pipe()
        self._reactor = Reactor()
        self._listen_to_signals()
        self._parent = None if parent_pid is None else Parent(parent_pid, self._reactor, self._want_stop)
        self._options = options or {}
        self._socket: SupervisorSocket | None = None
        if directory is not None:
            try:
                self._socket = SupervisorSocket(directory, self._reactor, self._asked)
            except OSError as error:  # a file system without sockets
                self._log.trace("supervisor-socket-failed", directory=directory, reason=error.strerror)

    def run(self) -> int:
        """Start the nodes, print the ready line, restart nodes that end, until a signal; the exit code."""
        for child in self._children:
            self._start(child)
        while not self._is_stop_wanted:
            self._reactor.turn(self._wait_s())
            self._reap()
            self._restart_due()
            if self._parent is not None:
                self._parent.check()
        self._stop()
        return 1 if self._has_failed else 0

    # -- one node

    def _start(self, child: Child) -> None:
        child.restart_at_s = None
        child.is_refused = False
        child.starts += 1
        child.ready_pipe, ready_writer = os.pipe()
        sys.stdout.flush()
        child.pid = os.fork()
        if child.pid == 0:
            self._become(child, ready_writer)
        os.close(ready_writer)
        child.restarts.started(time.monotonic())
        self._reactor.watch(child.ready_pipe, partial(self._printed, child))

    def _become(self, child: Child, ready_writer: int) -> None:
        """In the forked process: run the node, and never return."""
        code = 1
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            self._reactor.close()
            os.dup2(self._alive_reader, 0)
            os.dup2(ready_writer, 1)
            if child.options is not None:
                self._execute(child, child.options)  # which closes all other descriptors
            others = [one.ready_pipe for one in self._children if one.ready_pipe >= 0]
            others += () if self._socket is None else self._socket.descriptors
            for descriptor in (self._alive_reader, self._alive_writer, ready_writer, *others):
                os.close(descriptor)
            code = self._run(child.loaded, TraceLog(sys.stderr, _prefix(child)), self._pid)
        except NodeRefused as refused:
            print_refusal(str(refused))
        except Exception:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _execute(self, child: Child, options: Sequence[str]) -> NoReturn:
        """In the forked process: run the node by the files of the release as they are now."""
        program = [sys.executable, "-m", "sparklog_server.cli.program", "start", *options]
        supervised = ["--owner-pid", str(self._pid), "--log-prefix", _prefix(child)]
        os.execv(sys.executable, [*program, *supervised])  # noqa: S606 - its own command line

    def _printed(self, child: Child, _events: int) -> None:
        """A node's standard output: its ready line, its refusal, or its end."""
        received = os.read(child.ready_pipe, 4096)
        child.said += received.decode(errors="replace")
        if received and not child.said.endswith("\n"):
            return
        line = child.said
        self._close_pipe(child)
        if line.startswith(REFUSED):
            self._refused(child, line.removeprefix(REFUSED).rstrip("\n"))
        words = dict(word.partition("=")[::2] for word in line.split())
        if not line.startswith("ready "):
            return
        child.is_ready, child.listen, child.http = True, words["listen"], words.get("http", "")
        if child.refusal:
            child.refusal = ""
            self._log.trace("node-restarted", node=child.node_id, pid=child.pid)
        if not self._is_announced and all(one.is_ready for one in self._children):
            self._is_announced = True
            ready_line = (
                f"ready cluster={self._cluster_id} nodes={len(self._children)} "
                f"listen={','.join(one.listen for one in self._children)} "
                f"pids={','.join(str(one.pid) for one in self._children)}"
            )
            http = ",".join(one.http for one in self._children if one.http)
            print(f"{ready_line} http={http}" if http else ready_line, flush=True)

    def _reap(self) -> None:
        for child in self._children:
            if child.pid == 0:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid == 0:
                continue
            self._ended(child, os.waitstatus_to_exitcode(status))

    def _refused(self, child: Child, reason: str) -> None:
        """Log why a node cannot start, in its own name, unless it is as before."""
        child.is_refused = True
        if reason != child.refusal:
            log = TraceLog(sys.stderr, _prefix(child), is_json=self._log.is_json)
            again = {"restarts_every_s": PAUSE_S_MAX} if self._is_announced else {}
            log.trace("refused", reason=reason, **again)
        child.refusal = reason

    def _ended(self, child: Child, code: int) -> None:
        """A node was reaped: start it again after a pause, unless it never started or all stop."""
        while child.ready_pipe >= 0:
            self._printed(child, 0)  # the rest, up to its end
        pid, was_ready, child.pid, child.is_ready = child.pid, child.is_ready, 0, False
        how = {"signal": signal.Signals(-code).name} if code < 0 else {"code": code}
        if self._is_stop_wanted:
            self._log.trace("node-stopped", node=child.node_id, pid=pid, **how)
            return
        if not self._is_announced and not was_ready:
            self._log.trace("node-not-started", node=child.node_id, pid=pid, **how)
            self._has_failed = self._is_stop_wanted = True
            return
        if child.is_restart_wanted:
            child.is_restart_wanted, child.restart_at_s = False, time.monotonic()
            self._log.trace("node-stopped", node=child.node_id, pid=pid, **how)
            return
        pause_s = child.restarts.ended(time.monotonic())
        child.restart_at_s = time.monotonic() + pause_s
        if not child.is_refused:
            self._log.trace("node-ended", node=child.node_id, pid=pid, restart_s=pause_s, **how)

    def _restart_due(self) -> None:
        for child in self._children:
            if child.restart_at_s is not None and child.restart_at_s <= time.monotonic():
                self._start(child)
                if not child.refusal:
                    self._log.trace("node-restarted", node=child.node_id, pid=child.pid)

    def _close_pipe(self, child: Child) -> None:
        if child.ready_pipe >= 0:
            self._reactor.forget(child.ready_pipe)
            os.close(child.ready_pipe)
            child.ready_pipe, child.said = -1, ""

    def _wait_s(self) -> float | None:
        due = [child.restart_at_s for child in self._children if child.restart_at_s is not None]
        wait_s = max(0.0, min(due) - time.monotonic()) if due else None
        if self._parent is None:
            return wait_s
        every_s = Parent.CHECKED_EVERY_S
        return every_s if wait_s is None else min(wait_s, every_s)

    # -- restart

    def _asked(self, request: SupervisorRequest) -> SupervisorReply:
        refusal = "" if request.restart is None else self._restart(request.restart)
        nodes = tuple(NodeProcess(one.node_id, one.pid, one.is_ready, one.starts) for one in self._children)
        return SupervisorReply(self._cluster_id, nodes, refusal)

    def _restart(self, node_id: int) -> str:
        """Restart a node; why that is refused."""
        child = next((one for one in self._children if one.node_id == node_id), None)
        if child is None or node_id not in self._options:
            return f"node {node_id} is not a node of this supervisor"
        if self._is_stop_wanted or not self._is_announced:
            return "the cluster stops" if self._is_stop_wanted else "the cluster starts"
        child.options = self._options[node_id]
        if not child.pid:
            child.restart_at_s = time.monotonic()
        elif not child.is_restart_wanted:  # a second signal would end it at once
            child.is_restart_wanted = True
            self._log.trace("node-restart-wanted", node=node_id, pid=child.pid)
            os.kill(child.pid, signal.SIGTERM)
        return ""

    # -- stop

    def _listen_to_signals(self) -> None:
        signal.set_wakeup_fd(self._reactor.wake_descriptor, warn_on_full_buffer=False)
        # Any handler will do: with one, the end of a child wakes the reactor.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, self._signalled)
        signal.signal(signal.SIGINT, self._signalled)
        signal.signal(signal.SIGQUIT, self._signalled)
        faulthandler.register(signal.SIGUSR1)  # as each node does
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._signalled)

    def _signalled(self, number: int, _frame: object) -> None:
        if os.getpid() != self._pid:
            os._exit(1)  # a node, between its fork and its own handlers
        if number != signal.SIGHUP:
            if self._was_signalled or number == signal.SIGQUIT:
                self._kill()
                os._exit(1)
            self._was_signalled = True
        self._want_stop()

    def _want_stop(self) -> None:
        self._is_stop_wanted = True
        self._reactor.wake()

    def _kill(self) -> None:
        for child in self._children:
            if child.pid:
                os.kill(child.pid, signal.SIGKILL)

    def _stop(self) -> None:
        """Stop the nodes one after another, in order of their ids."""
        self._log.trace("stopping", nodes=len(self._children))
        if self._socket is not None:
            self._socket.close()
        for child in self._children:
            self._reap()
            if not child.pid:
                continue
            if not child.is_restart_wanted:
                os.kill(child.pid, signal.SIGTERM)
            deadline_s = time.monotonic() + STOP_S_MAX
            while child.pid and (left_s := deadline_s - time.monotonic()) > 0:
                self._reactor.turn(left_s)
                self._reap()
            if child.pid:
                self._log.trace("node-killed", node=child.node_id, pid=child.pid, after_s=STOP_S_MAX)
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                child.pid = 0
        self._log.trace("stopped", nodes=len(self._children))


def _prefix(child: Child) -> str:
    """What begins each line of a node's log."""
    return f"node-{child.node_id} "


class NoPort(SparklogError):
    """A port of the cluster is in use by another program."""


class Ports:
    """Ports of 127.0.0.1 that are reserved for the nodes until this process ends."""

    def __init__(self) -> None:
        self._reserved: list[socket.socket] = []

    def reserve(self, port: int) -> int:
        """Reserve this port, or a free one for 0. Raises NoPort."""
        reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("127.0.0.1", port))
        except OSError as error:
            reserved.close()
            reason = (error.strerror or str(error)).lower()
            raise NoPort(
                f"cannot listen on 127.0.0.1:{port}: {reason}; choose other ports with --base-port"
            ) from error
        port = int(reserved.getsockname()[1])
        self._reserved.append(reserved)
        return port

    def hand_over(self) -> None:
        """Before the nodes start: macOS refuses a second bind, so there the reservation ends here."""
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        """End the reservations."""
        for reserved in self._reserved:
            reserved.close()
