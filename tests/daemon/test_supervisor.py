"""Several nodes under one supervisor: their start, a restart, and every way to end."""

import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, closing, contextmanager
from pathlib import Path
from typing import IO

import pytest

from sparklog_server.daemon.supervisor import FIRST_PAUSE_S, PAUSE_S_MAX, RAN_WELL_S, NoPort, Ports, Restarts
from sparklog_server.daemon.supervisor_socket import (
    SOCKET_FILE,
    NodeProcess,
    NoSupervisor,
    SupervisorRequest,
    ask_supervisor,
)
from tests.daemon.broker_process import PATIENCE_S, is_served, wait_until, wait_until_gone

COUNT = 3


class Nodes:
    """The supervisor's process, what it said when all were ready, and its log so far."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        self.child = child
        assert child.stdout is not None
        assert child.stderr is not None
        self.stdout: IO[str] = child.stdout
        self.stderr: IO[str] = child.stderr
        self.ports: list[int] = []
        self.pids: list[int] = []

    def ready(self) -> None:
        """Wait for the ready line."""
        readable, _, _ = select.select([self.stdout], [], [], PATIENCE_S)
        line = self.stdout.readline() if readable else ""
        found = re.fullmatch(rf"ready cluster=lone nodes={COUNT} listen=(\S+) pids=(\S+)\n", line)
        assert found is not None, f"{line!r}"
        self.ports = [int(one.rpartition(":")[2]) for one in found[1].split(",")]
        self.pids = [int(one) for one in found[2].split(",")]

    def logged(self, *words: str) -> str:
        """Read the log until a line has all these words."""
        for line in self.stderr:
            if all(word in line for word in words):
                return line
        raise AssertionError(words)

    def logged_until(self, word: str) -> list[str]:
        """Read the log until a line has this word; the lines."""
        lines: list[str] = []
        for line in self.stderr:
            lines.append(line)
            if word in line:
                return lines
        raise AssertionError(lines)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; the exit code, and the log since."""
        self.child.send_signal(number)
        _, err = self.child.communicate(timeout=PATIENCE_S)
        return self.child.returncode, err


@contextmanager
def nodes(directory: Path, *given: str) -> Iterator[Nodes]:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.daemon.lone_nodes", str(directory), str(COUNT), *given],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    with child:
        try:
            yield Nodes(child)
        finally:
            child.kill()


def serves(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port)) as client:
        return is_served(client)


def told(directory: Path) -> dict[int, NodeProcess]:
    """The processes as the supervisor tells them."""
    return {one.node_id: one for one in ask_supervisor(directory, SupervisorRequest()).nodes}


def test_every_node_serves_when_the_supervisor_says_ready_and_all_stop_in_order(tmp_path: Path) -> None:
    with nodes(tmp_path) as started:
        started.ready()
        assert [serves(port) for port in started.ports] == [True] * COUNT
        code, err = started.end(signal.SIGTERM)
    assert code == 0
    assert re.findall(r"node-stopped node=(\d)", err) == ["1", "2", "3"]
    assert err.count(" code=0") == COUNT
    assert re.search(r"^node-2 \S+ stopped node=2$", err, re.MULTILINE)
    for pid in started.pids:
        wait_until_gone(pid)


def test_a_killed_node_refuses_connections_and_is_started_again_on_its_port(tmp_path: Path) -> None:
    with nodes(tmp_path) as started:
        started.ready()
        os.kill(started.pids[1], signal.SIGKILL)
        assert "signal=SIGKILL" in started.logged("node-ended", "node=2")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", started.ports[1]))
        started.logged("node-restarted", "node=2")
        started.logged("node-2 ", " ready ")
        assert serves(started.ports[1])
        assert started.end(signal.SIGTERM)[0] == 0


def test_a_refusal_is_logged_once_until_it_is_another_and_the_node_comes_back_by_itself(
    tmp_path: Path,
) -> None:
    with nodes(tmp_path) as started:
        started.ready()
        refused = tmp_path / "refused-2"
        refused.write_text("the disk is lost")
        os.kill(started.pids[1], signal.SIGKILL)
        lines = started.logged_until(" refused ")
        wait_until(lambda: len((tmp_path / "attempts").read_bytes()) > 1)
        refused.write_text("the disk is\nempty")
        lines += started.logged_until(" refused ")
        refused.unlink()
        lines += started.logged_until("node-restarted")
        assert serves(started.ports[1])
        started.end(signal.SIGTERM)
    pattern = r"node-2 \S+ refused reason='(.*)' restarts_every_s=30.0 level=ERROR"
    assert re.findall(pattern, "".join(lines)) == ["the disk is lost", "the disk is empty"]
    assert len([line for line in lines if "node-ended" in line]) == 1


def test_a_node_that_cannot_start_ends_all(tmp_path: Path) -> None:
    with nodes(tmp_path, "fail=2") as started:
        out, err = started.child.communicate(timeout=PATIENCE_S)
    assert (started.child.returncode, out) == (1, "")
    assert re.search(r"node-not-started node=2 pid=\d+ code=3", err)


def test_the_nodes_end_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with nodes(tmp_path) as started:
        started.ready()
        started.child.kill()
        for pid in started.pids:
            wait_until_gone(pid)


def test_a_second_signal_kills_all(tmp_path: Path) -> None:
    with nodes(tmp_path) as started:
        started.ready()
        os.kill(started.pids[0], signal.SIGSTOP)
        started.child.send_signal(signal.SIGTERM)
        started.logged("stopping", f"nodes={COUNT}")
        started.child.send_signal(signal.SIGTERM)
        started.child.communicate(timeout=PATIENCE_S)
        assert started.child.returncode == 1
        for pid in started.pids:
            wait_until_gone(pid)


def test_a_node_that_a_command_restarts_runs_in_a_new_interpreter_without_a_pause(tmp_path: Path) -> None:
    with nodes(tmp_path) as started:
        started.ready()
        before = told(tmp_path)
        assert ask_supervisor(tmp_path, SupervisorRequest(restart=2)).refusal == ""
        wait_until(lambda: told(tmp_path)[2].starts == 2 and told(tmp_path)[2].is_ready)
        after = told(tmp_path)
        assert {node for node in before if before[node] != after[node]} == {2}
        assert b"sparklog_server.cli.program" in Path(f"/proc/{after[2].pid}/cmdline").read_bytes()
        assert serves(started.ports[1])
        os.kill(after[2].pid, signal.SIGKILL)  # after a crash as well
        wait_until(lambda: told(tmp_path)[2].starts == 3 and told(tmp_path)[2].is_ready)
        assert b"sparklog_server.cli.program" in Path(f"/proc/{told(tmp_path)[2].pid}/cmdline").read_bytes()
        code, err = started.end(signal.SIGTERM)
    assert code == 0
    assert "node-stopped node=2 " in err.partition("node-ended")[0]
    assert re.search(r"^node-2 \S+ ready ", err, re.MULTILINE)
    assert not (tmp_path / SOCKET_FILE).exists()


def test_a_restart_that_is_asked_for_twice_signals_the_node_once(tmp_path: Path) -> None:
    with nodes(tmp_path) as started:
        started.ready()
        os.kill(started.pids[0], signal.SIGSTOP)
        for _ in range(2):
            assert ask_supervisor(tmp_path, SupervisorRequest(restart=1)).refusal == ""
        os.kill(started.pids[0], signal.SIGCONT)
        assert " code=0" in started.logged("node-stopped", "node=1")
        assert started.end(signal.SIGTERM)[0] == 0


def test_what_cannot_be_restarted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoSupervisor, match="no such file"):
        ask_supervisor(tmp_path, SupervisorRequest())
    with nodes(tmp_path) as started:
        started.ready()
        refusal = ask_supervisor(tmp_path, SupervisorRequest(restart=4)).refusal
        assert refusal == "node 4 is not a node of this supervisor"
        assert stat.S_IMODE((tmp_path / SOCKET_FILE).stat().st_mode) == 0o600
        with nodes(tmp_path) as second:
            _, err = second.child.communicate(timeout=PATIENCE_S)
        assert second.child.returncode == 1
        assert "another `sparklog cluster start` runs the cluster" in err
        started.child.kill()  # its socket stays
        started.child.wait()
    with pytest.raises(NoSupervisor, match="refused"):
        ask_supervisor(tmp_path, SupervisorRequest())
    with nodes(tmp_path) as third:
        third.ready()
        assert len(told(tmp_path)) == COUNT


def test_the_socket_survives_clients_that_say_nothing_or_nonsense(tmp_path: Path) -> None:
    with nodes(tmp_path) as started:
        started.ready()
        with ExitStack() as stack:
            for _ in range(20):
                silent = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
                with chdir(tmp_path):
                    silent.connect(SOCKET_FILE)
            silent.sendall(b"x" * 255 + b"\n")
            assert silent.recv(100) == b""
            assert len(told(tmp_path)) == COUNT
        assert started.end(signal.SIGTERM)[0] == 0


def test_pauses_grow_and_begin_anew_after_a_good_run() -> None:
    restarts = Restarts()
    restarts.started(0)
    pauses = [restarts.ended(1) for _ in range(10)]
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == PAUSE_S_MAX
    restarts.started(100)
    assert restarts.ended(100 + RAN_WELL_S) == FIRST_PAUSE_S


def test_a_reserved_port_is_refused_to_others_and_left_to_its_node() -> None:
    with closing(Ports()) as ports, closing(Ports()) as others:
        port = ports.reserve(0)
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with socket.socket() as node:
            node.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            node.bind(("127.0.0.1", port))
            node.listen()
            with pytest.raises(NoPort, match=rf"cannot listen on 127\.0\.0\.1:{port}.*--base-port"):
                others.reserve(port)
