"""A broker as a user runs it: the program, its exit code, stdout and stderr."""

import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from sparklog import Consumer, TopicPartition
from sparklog.wire.header import encode_request
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

PATIENCE_S = 20
API_VERSIONS = struct.pack(">ihhih1s", 11, 18, 0, 7, 1, b"t")


class BrokerProcess:
    """`sparklog start`, or another `verb`, with these arguments; killed at the end of the `with` block if it
    still runs.

    `descriptors` is its hard limit of them, `prefix` a command that starts it in its own place,
    `environment` has additional variables.
    """

    def __init__(
        self,
        *arguments: str,
        flags: tuple[str, ...] = (),
        descriptors: int | None = None,
        prefix: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        verb: tuple[str, ...] = ("start",),
    ) -> None:
        limited = (
            f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors})); "
            if descriptors
            else ""
        )
        program = f"{limited}import sys; from sparklog_server.cli.main import main; sys.exit(main())"
        self.child = subprocess.Popen(
            [*prefix, sys.executable, *flags, "-c", program, *verb, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            | dict(environment or {}),
        )
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        self.stdout = self.child.stdout
        self.stderr = self.child.stderr

    def address(self) -> tuple[str, int]:
        """Wait for the ready line and return where the broker listens."""
        readable, _, _ = select.select([self.stdout], [], [], PATIENCE_S)
        line = self.stdout.readline() if readable else ""
        match = re.fullmatch(r"ready node=\d+ listen=(\S+):(\d+) pid=(\d+)\n", line)
        assert match is not None, f"{line!r}, then {self.end()}"
        assert int(match[3]) == self.child.pid
        return match[1], int(match[2])

    def bootstrap_servers(self) -> str:
        """Wait for the ready line; the address as clients take it."""
        host, port = self.address()
        return f"{host}:{port}"

    def address_of(self, listener: str) -> tuple[str, int]:
        """Where a listener listens, as the log tells once the broker is ready."""
        for line in self.stderr:
            if " ready " in line and (match := re.search(rf"{listener}://([^:,]+):(\d+)", line)) is not None:
                return match[1], int(match[2])
        raise AssertionError(f"no word of {listener}")

    def end(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """Send a signal if one is given; exit code, and the output on stdout and stderr since."""
        if number is not None:
            self.child.send_signal(number)
        out, err = self.child.communicate(timeout=PATIENCE_S)
        return self.child.returncode, out, err

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        self.stdout.close()
        self.stderr.close()


def broker(data_dir: Path, *arguments: str, descriptors: int | None = None) -> BrokerProcess:
    """A broker on a port of its own."""
    return BrokerProcess(
        "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", *arguments, descriptors=descriptors
    )


def is_served(connection: socket.socket) -> bool:
    """Whether an ApiVersions request gets its answer on this connection."""
    connection.sendall(API_VERSIONS)
    return is_answered(connection)


def is_answered(connection: socket.socket) -> bool:
    """Whether an ApiVersions request that was sent gets its answer."""
    length = int.from_bytes(receive_until_closed(connection, at_most=4))
    return receive_until_closed(connection, at_most=length)[:4] == struct.pack(">i", 7)


def is_readable(connection: socket.socket) -> bool:
    """Whether anything has come on this connection already, be it its end."""
    return bool(select.select([connection], [], [], 0)[0])


def receive_until_closed(connection: socket.socket, *, at_most: int = 1 << 20) -> bytes:
    """The bytes received until the other side closes (a reset counts), at most so many bytes."""
    connection.settimeout(PATIENCE_S)
    received = b""
    try:
        while len(received) < at_most and (part := connection.recv(at_most - len(received))):
            received += part
    except ConnectionResetError:
        pass
    return received


def fetch_frame(topic: str, *, max_wait_ms: int = 0) -> bytes:
    """A request for all records of partition 0."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    topics = [FetchTopic(topic=topic, partitions=[wanted])]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 30, topics=topics)
    (frame,) = encode_request(request, 12, 1, "t")
    assert isinstance(frame, bytes)
    return frame


def wait_until(is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Return when the claim holds; fails after `patience_s`."""
    deadline_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline_s
        select.select([], [], [], 0.01)


def wait_until_gone(pid: int) -> None:
    """Return when no such process runs any more; a zombie does not run."""
    deadline_s = time.monotonic() + PATIENCE_S
    while _runs(pid):
        assert time.monotonic() < deadline_s, f"process {pid} still runs"
        select.select([], [], [], 0.01)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def stored(bootstrap_servers: str, partition: TopicPartition) -> list[bytes | None]:
    """The values of a partition, from its beginning to the end offset seen at the start."""
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning()
        values: list[bytes | None] = []
        while len(values) < end:
            values += [record.value for record in consumer.poll(timeout_ms=5_000)]
    return values


def stored_by(bootstrap_servers: str, topic: str, partitions: int, **settings: str) -> list[bytes | None]:
    """The values of a topic, read by a consumer with these settings up to the end offsets at the start."""
    with Consumer(bootstrap_servers=bootstrap_servers, **settings) as consumer:  # type: ignore[arg-type]
        wanted = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(wanted)
        count = sum(consumer.end_offsets(wanted).values())
        consumer.seek_to_beginning()
        values: list[bytes | None] = []
        while len(values) < count:
            values += [record.value for record in consumer.poll(timeout_ms=5_000)]
    return values
