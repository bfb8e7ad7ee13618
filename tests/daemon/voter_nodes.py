"""Nodes that become and cease to be voters: each is a process, with a directory of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket

from sparklog import Admin
from sparklog.client.admin.cluster import Quorum
from sparklog_server.cli.main import main
from sparklog_server.log.directory.identity import encode_uuid
from tests.daemon.broker_process import wait_until

CLUSTER_ID = "Vz8jG3mXQhWj4kq0Zk2v3A"
_PROGRAM = "import sys; from sparklog_server.cli.main import main; sys.exit(main())"


def _free_ports(count: int) -> list[int]:
    sockets = [socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class VoterNodes:
    """The nodes 1 to `count`, brokers and controllers, of which node 1 is formatted as the only voter."""

    def __init__(self, root: Path, count: int, **settings: str) -> None:
        self.root = root
        self.ids = range(1, count + 1)
        ports = _free_ports(2 * count)
        self.broker_ports = dict(zip(self.ids, ports[:count], strict=True))
        self.controller_ports = dict(zip(self.ids, ports[count:], strict=True))
        self._settings = settings
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for node in self.ids:
            self.format(node, is_standalone=node == 1)

    def words(self, node: int) -> list[str]:
        """The options of a node."""
        quorum = ",".join(f"127.0.0.1:{port}" for port in self.controller_ports.values())
        given = {
            "process.roles": "broker,controller",
            "node.id": f"{node}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.broker_ports[node]},"
            f"CONTROLLER://127.0.0.1:{self.controller_ports[node]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": quorum,
            "log.dirs": f"{self.directory(node)}",
            **self._settings,
        }
        return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]

    def directory(self, node: int) -> Path:
        """The directory of a node."""
        return self.root / f"node-{node}"

    def format(self, node: int, *, is_standalone: bool = False) -> None:
        """Format the directory of a node, which joins unless it is the first voter."""
        way = "--standalone" if is_standalone else "--no-initial-controllers"
        assert main(["format", "--cluster-id", CLUSTER_ID, way, *self.words(node)]) == 0

    def start(self, *nodes: int) -> None:
        """Start nodes at once, and wait until each of them serves clients."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        for node in nodes:
            with (self.root / f"node-{node}.log").open("ab") as output:
                self._processes[node] = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, "start", *self.words(node)],
                    stdout=subprocess.PIPE,
                    stderr=output,
                    env=environment,
                )
        for node in nodes:
            stdout = self._processes[node].stdout
            assert stdout is not None
            assert stdout.readline().startswith(b"ready"), (self.root / f"node-{node}.log").read_text()

    def stop(self, node: int, *, is_killed: bool = False) -> None:
        """Stop a node cleanly, or kill it."""
        process = self._processes.pop(node)
        with process:
            process.kill() if is_killed else process.terminate()
            process.wait(20)

    def lose_disk(self, node: int) -> None:
        """Kill a node, and start it again with an empty directory, which is formatted to join."""
        self.stop(node, is_killed=True)
        shutil.rmtree(self.directory(node))
        self.format(node)
        self.start(node)

    @contextmanager
    def running(self, *nodes: int) -> Iterator["VoterNodes"]:
        """Start nodes; at the end kill all that run."""
        try:
            for node in nodes:
                self.start(node)
            yield self
        finally:
            for node in list(self._processes):
                self.stop(node, is_killed=True)

    def ended(self) -> list[int]:
        """The nodes that ended by themselves."""
        return [node for node, process in [*self._processes.items()] if process.poll() is not None]

    @property
    def started(self) -> list[int]:
        """The nodes that run."""
        return sorted([*self._processes])

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the nodes that run."""
        return ",".join(f"127.0.0.1:{self.broker_ports[node]}" for node in self._processes)

    def quorum(self) -> Quorum:
        """The quorum, as a node that runs tells it."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return admin.describe_quorum()

    def voters(self) -> list[int]:
        """The ids of the voters."""
        return [one.node_id for one in self.quorum().voters]

    def directories(self) -> dict[int, bytes]:
        """The directory ids of the voters."""
        return {one.node_id: one.directory_id for one in self.quorum().voters}

    def await_voters(self, *nodes: int) -> None:
        """Wait until these are the voters."""
        wait_until(lambda: self.voters() == list(nodes), 20)

    def await_observer(self, node: int) -> str:
        """Wait until a node follows the metadata log as an observer, and return its directory id."""
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [
                encode_uuid(one.directory_id)
                for one in self.quorum().observers
                if one.node_id == node and one.last_caught_up_ms > 0
            ]
            return bool(found)

        wait_until(is_there, 20)
        return found[-1]

    def command(self, *words: str) -> int:
        """Run `sparklog quorum …` against the nodes that run; its exit code."""
        return main(["quorum", *words, "--bootstrap-server", self.bootstrap_servers])

    def add(self, node: int) -> None:
        """Add a voter by the command."""
        self.await_observer(node)
        assert self.command("add-voter", str(node), f"127.0.0.1:{self.controller_ports[node]}") == 0
