"""A cluster whose nodes have network namespaces of their own, on one bridge, so that links can be cut.

    clients 10.99.0.254 ── bridge ─┬─ 10.99.0.1  node 1
                                   ├─ 10.99.0.2  node 2
                                   └─ 10.99.0.3  node 3

The process that runs it must be alone in a network namespace of which it is root: `enter` begins one.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import psutil

from benchmarks import harness
from sparklog_server.log.directory.identity import encode_uuid, new_uuid

BRIDGE: Final = "bridge"
CLIENTS: Final = 254
"""The last part of the address of the clients."""
CLIENT_PORT, CONTROLLER_PORT = 9092, 9093


def enter(module: str) -> None:
    """Run the module's command again in namespaces of its own, unless it runs in such ones."""
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        os.execvp("unshare", ["unshare", "-rn", sys.executable, "-m", module, *sys.argv[1:]])


def address(last: int) -> str:
    """The address of a node, or of the clients."""
    return f"10.99.0.{last}"


def _run(*words: object) -> None:
    subprocess.run([*map(str, words)], check=True)


def _ip(*words: object) -> None:
    _run("ip", *words)


@dataclass
class _Node:
    """One node: the process that holds its namespace, the command that starts it, and its process."""

    number: int
    holder: subprocess.Popen[bytes]
    command: list[str]
    log_path: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=harness.ENVIRONMENT)

    def inside(self, *words: object) -> None:
        """Run a command of `ip` in the namespace."""
        _run("nsenter", "-t", self.holder.pid, "-n", "ip", *words)


@dataclass
class Separated:
    """Running nodes, by number from 1."""

    nodes: dict[int, _Node] = field(default_factory=dict)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{address(number)}:{CLIENT_PORT}" for number in self.nodes)

    def running(self) -> list[psutil.Process]:
        """The processes of the nodes that have not ended."""
        return [
            psutil.Process(node.process.pid)
            for node in self.nodes.values()
            if node.process is not None and node.process.poll() is None
        ]

    def revive(self) -> None:
        """Start the nodes again that have ended."""
        for node in self.nodes.values():
            if node.process is None or node.process.poll() is not None:
                node.start()

    @property
    def links(self) -> Mapping[str, Callable[[Random], Callable[[], None]]]:
        """Faults of links, each of which gives its end."""
        return {"cut": self._cut, "mute": self._mute, "narrow": self._narrow}

    def _cut(self, draw: Random) -> Callable[[], None]:
        """Take a node off the bridge."""
        number = draw.choice(list(self.nodes))
        _ip("link", "set", f"node{number}", "down")
        return lambda: _ip("link", "set", f"node{number}", "up")

    def _mute(self, draw: Random) -> Callable[[], None]:
        """Drop what a node sends to another one, or to the clients; what that one sends still arrives."""
        number = draw.choice(list(self.nodes))
        other = draw.choice([one for one in (*self.nodes, CLIENTS) if one != number])
        node, route = self.nodes[number], ("blackhole", f"{address(other)}/32")
        node.inside("route", "add", *route)
        return lambda: node.inside("route", "del", *route)

    def _narrow(self, draw: Random) -> Callable[[], None]:
        """Let one megabit a second through to a node."""
        at = ("dev", f"node{draw.choice(list(self.nodes))}", "root")
        _run("tc", "qdisc", "add", *at, "tbf", "rate", "1mbit", "burst", "16k", "latency", "400ms")
        return lambda: _run("tc", "qdisc", "del", *at)


@contextmanager
def separated(count: int, data_dir: Path) -> Iterator[Separated]:
    """Start that many nodes, each a broker and a voter; wait until every one accepts clients."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("addr", "add", f"{address(CLIENTS)}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    voters = ",".join(f"{number}@{address(number)}:{CONTROLLER_PORT}" for number in range(1, count + 1))
    cluster, cluster_id = Separated(), encode_uuid(new_uuid(os.urandom))
    with ExitStack() as stack:
        for number in range(1, count + 1):
            holder = _namespace()
            stack.callback(_end, holder)
            node = cluster.nodes[number] = _prepared(number, holder, voters, cluster_id, data_dir)
            node.start()
            stack.callback(lambda node=node: _end(node.process))
        for number, node in cluster.nodes.items():
            assert node.process is not None
            harness.wait_for_metadata(address(number), CLIENT_PORT, node.process)
        yield cluster


def _namespace() -> subprocess.Popen[bytes]:
    """A process in a network namespace of its own, which lives as long as it."""
    holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
    own = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{holder.pid}/ns/net").readlink() == own:
        time.sleep(0.01)
    return holder


def _prepared(
    number: int, holder: subprocess.Popen[bytes], voters: str, cluster_id: str, data_dir: Path
) -> _Node:
    host = address(number)
    settings = {
        "node.id": number,
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{CLIENT_PORT},CONTROLLER://{host}:{CONTROLLER_PORT}",
        "log.dirs": data_dir / f"node-{number}",
    }
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    sparklog = harness.sparklog_command()
    subprocess.run(
        [*sparklog, "format", "--cluster-id", cluster_id, *given],
        check=True,
        stdout=subprocess.DEVNULL,
        env=harness.ENVIRONMENT,
    )
    inside = ["nsenter", "-t", str(holder.pid), "-n"]
    node = _Node(
        number,
        holder,
        [*inside, *sparklog, "start", "--insecure", *given],
        data_dir / f"node-{number}.log",
    )
    _ip("link", "add", f"node{number}", "type", "veth", "peer", "name", "eth0", "netns", holder.pid)
    _ip("link", "set", f"node{number}", "master", BRIDGE, "up")
    node.inside("addr", "add", f"{host}/24", "dev", "eth0")
    node.inside("link", "set", "lo", "up")
    node.inside("link", "set", "eth0", "up")
    return node


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        process.terminate()
        process.wait(timeout=harness.STOP_TIMEOUT_S)
