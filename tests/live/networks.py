"""Network namespaces for the nodes of a trio, on one bridge, so that links can be cut one way.

The process that runs it must be root of a network namespace in which nothing else runs: `unshare -rnm`.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import trio

BRIDGE = "bridge"
UNSHARED = ("unshare", "--map-root-user", "--net", "--mount")


class Network:
    """The namespace of one node."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.host = f"10.99.0.{number}"
        self._holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()  # the namespace exists
        self.prefix = ("nsenter", "-t", str(self._holder.pid), "-n")

    def join(self) -> None:
        """Join the bridge."""
        name = f"node{self.number}"
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self._holder.pid))
        _ip("link", "set", name, "master", BRIDGE, "up")
        self.inside("addr", "add", f"{self.host}/24", "dev", "eth0")
        self.inside("link", "set", "lo", "up")
        self.inside("link", "set", "eth0", "up")

    @contextmanager
    def mute(self, host: str) -> Iterator[None]:
        """Drop what this node sends to that address; what that one sends still arrives."""
        self.inside("route", "add", "blackhole", f"{host}/32")
        try:
            yield
        finally:
            self.inside("route", "del", "blackhole", f"{host}/32")

    @contextmanager
    def narrow(self) -> Iterator[None]:
        """Let one megabit a second through to this node, and drop what waits longer than 100 ms."""
        at = ("dev", f"node{self.number}", "root")
        _run("tc", "qdisc", "add", *at, "tbf", "rate", "1mbit", "burst", "16k", "latency", "100ms")
        try:
            yield
        finally:
            _run("tc", "qdisc", "del", *at)

    @contextmanager
    def bad(self, *, delay_ms: float = 0, jitter_ms: float = 0, loss: float = 0) -> Iterator[None]:
        """Delay each packet to and from this node, by up to `jitter_ms` more, and lose that share of them."""
        device, line, wire = f"node{self.number}", f"line{self.number}", f"wire{self.number}"
        _ip("link", "add", line, "type", "veth", "peer", "name", wire)
        _ip("link", "set", device, "nomaster")
        _ip("link", "set", line, "up")
        _ip("link", "set", wire, "master", BRIDGE, "up")
        options = ["--delay-ms", str(delay_ms), "--jitter-ms", str(jitter_ms), "--loss", str(loss)]
        command = [sys.executable, "-m", "tests.live.bad_line", device, line, *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as forwarding:
            try:
                assert forwarding.stdout is not None
                forwarding.stdout.readline()
                yield
            finally:
                forwarding.kill()
                _ip("link", "del", line)
                _ip("link", "set", device, "master", BRIDGE)

    def reset(self) -> None:
        """Reset every connection of this node, in the middle of what it sends and receives."""
        command = [*self.prefix, "ss", "--kill", "--tcp", "state", "established"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def inside(self, *words: str) -> None:
        """Run `ip` in the namespace."""
        _run(*self.prefix, "ip", *words)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        if self._holder.stdout is not None:
            self._holder.stdout.close()


@contextmanager
def networks() -> Iterator[Mapping[int, Network]]:
    """A bridge with three nodes; the clients are on it as well."""
    _ip("link", "set", "lo", "up")
    # An address of its own: otherwise it has the lowest one of its ports, which come and go.
    _ip("link", "add", BRIDGE, "address", "02:00:00:00:00:fe", "type", "bridge")
    _ip("addr", "add", "10.99.0.254/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    with ExitStack() as stack:
        found = {}
        for number in range(1, trio.COUNT + 1):
            network = found[number] = Network(number)
            stack.callback(network.close)
            network.join()
        yield found


def mount_memory(directory: Path, size_bytes: int) -> None:
    """Mount a file system of that size, in memory."""
    directory.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(directory))


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    subprocess.run(words, check=True)
