"""The measurements of `sparklog selftest`. Each ends after its time and within its space, and leaves nothing:
the file of the disk has no name, and the broker removes its own directory, also when this process is killed.
"""

import contextlib
import os
import socket
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from sparklog import Producer, embedded
from sparklog.kernels import scan
from sparklog_server.cli.bench import percentile

APPEND_BYTES_MAX: Final = 256 << 20
SPACE_BYTES_MIN: Final = 1 << 30
"""Free space below which nothing is written: the runs take up to half of it."""
APPEND_S: Final = 1.2
SYNC_S: Final = 1.2
SYNCS_MAX: Final = 2_000
NETWORK_S: Final = 0.7
CRC_S: Final = 0.4
PRODUCE_S: Final = 1.2
RECORDS_MAX: Final = 200_000
RECORD_BYTES: Final = 1_000
ACKED_S: Final = 0.8
_BLOCK_BYTES: Final = 1 << 20
_SYNCED_BYTES: Final = 4_096
_ECHO_BYTES: Final = 100
_GONE_S: Final = 5.0


class Spread(NamedTuple):
    """Times of one act, in milliseconds."""

    p50_ms: float
    p99_ms: float


class DiskSpeed(NamedTuple):
    """`append_mb_s` includes the sync at the end, so it is that of the disk and not of memory."""

    append_mb_s: float
    sync: Spread


class BrokerSpeed(NamedTuple):
    """One producer on one connection to a broker of its own: records of 1 kB as fast as it can, and one
    record of 100 B at a time with acks=all, whose acknowledgement waits for a sync.
    """

    records_s: float
    mb_s: float
    acked: Spread


def disk_speed(directory: str) -> DiskSpeed:
    """Append to a file without a name in this directory. Raises OSError."""
    block = os.urandom(_BLOCK_BYTES)  # a disk that compresses must not look faster
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        size, start_s = 0, perf_counter()
        while size < APPEND_BYTES_MAX and perf_counter() < start_s + APPEND_S:
            size += file.write(block)
        os.fsync(file.fileno())
        append_mb_s = size / (perf_counter() - start_s) / 1e6
        file.truncate(0)
        file.seek(0)
        os.fsync(file.fileno())

        def append() -> None:
            file.write(block[:_SYNCED_BYTES])
            os.fsync(file.fileno())

        return DiskSpeed(append_mb_s, _spread(_timed(append, SYNC_S, SYNCS_MAX)))


def round_trips() -> Spread:
    """The time of a request and its response of 100 B over loopback, from thread to thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        echo = threading.Thread(target=_echo, args=(server,), daemon=True)
        echo.start()
        with socket.create_connection(server.getsockname(), timeout=_GONE_S) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sent = b"x" * _ECHO_BYTES

            def ask() -> None:
                client.sendall(sent)
                left = _ECHO_BYTES
                while left:
                    received = len(client.recv(left))
                    if not received:
                        raise ConnectionResetError("the loopback connection was closed")
                    left -= received

            times_ms = _timed(ask, NETWORK_S, RECORDS_MAX)
        echo.join(_GONE_S)
    return _spread(times_ms)


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while received := connection.recv(_ECHO_BYTES):
            connection.sendall(received)


def crc_gb_s() -> float:
    """CRC32C by the kernel that checks batches, in GB/s of one core."""
    block = os.urandom(_BLOCK_BYTES)
    size, start_s = 0, perf_counter()
    while perf_counter() < start_s + CRC_S:
        scan.crc(block)
        size += _BLOCK_BYTES
    return size / (perf_counter() - start_s) / 1e9


def broker_speed(directory: str) -> BrokerSpeed:
    """Produce to a broker that has its data in this directory. Raises SparklogError."""
    value = os.urandom(RECORD_BYTES)
    with _temporary_directories_in(directory), embedded() as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, acks=1) as producer:
            producer.send("selftest", value).result()  # creates the topic
            sent, start_s = 0, perf_counter()
            while sent < RECORDS_MAX and perf_counter() < start_s + PRODUCE_S:
                producer.send("selftest", value)
                sent += 1
            producer.flush()
            seconds = perf_counter() - start_s
        with Producer(bootstrap_servers=broker.bootstrap_servers, acks="all", linger_ms=0) as producer:

            def produce() -> None:
                producer.send("selftest", value[:_ECHO_BYTES]).result()

            produce()
            acked = _spread(_timed(produce, ACKED_S, RECORDS_MAX))
    return BrokerSpeed(sent / seconds, sent * RECORD_BYTES / seconds / 1e6, acked)


@contextlib.contextmanager
def _temporary_directories_in(directory: str) -> Iterator[None]:
    before, tempfile.tempdir = tempfile.tempdir, str(Path(directory).absolute())
    try:
        yield
    finally:
        tempfile.tempdir = before


def _timed(act: Callable[[], None], seconds: float, count_max: int) -> "array[float]":
    times_ms = array("d")
    begun_s = end_s = perf_counter()
    while len(times_ms) < count_max and end_s < begun_s + seconds:
        start_s = end_s
        act()
        end_s = perf_counter()
        times_ms.append((end_s - start_s) * 1e3)
    return times_ms


def _spread(times_ms: Sequence[float]) -> Spread:
    ordered = sorted(times_ms)
    return Spread(percentile(ordered, 50), percentile(ordered, 99))
