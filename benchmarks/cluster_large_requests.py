"""The latency of an honest producer on three nodes, each of which gets the largest requests of one API, one
after the other on one connection.

The honest client is librdkafka: 200 records of 1 KB a second, acks=all, three replicas, two in sync at least.
The attacker waits for each answer, and connects again where a node closes the connection. There is no
authorizer: the attacker has all rights, so that no request ends at the first check. Afterwards leaders,
epochs and ISRs must be those of before: a fenced node or a moved leader changes them.

    python -m benchmarks.cluster_large_requests --apis FindCoordinator --seconds 40
"""

import argparse
import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Final

from confluent_kafka import Producer

import sparklog
from benchmarks import harness, nodes
from sparklog.client.admin import NewTopic
from sparklog.wire.api_keys import API_BY_KEY
from tests.broker.largest import frame_of, largest

APIS: Final = (
    *("FindCoordinator", "DescribeTransactions", "OffsetFetch", "DeleteRecords", "OffsetCommit"),
    *("IncrementalAlterConfigs", "ListOffsets", "CreateTopics", "DescribeTopicPartitions", "LeaveGroup"),
)
BOUND: Final = "<= 50"
TOPIC: Final = "honest"
PARTITIONS: Final = 3
RATE_PER_S: Final = 200
_VALUE: Final = bytes(1024)
_WARM_UP_S: Final = 5.0
_TIMEOUT_S: Final = 60.0


def attack(host: str, port: int, name: str, is_over: Event, answers: "Queue[int]") -> None:
    """Send the largest requests of an API in turn until it is over; puts the number of answers."""
    api = next(one for one in API_BY_KEY.values() if one.name == name)
    frames = [frame_of(one) for one in largest(api, api.until)]
    answered = sent = 0
    while not is_over.is_set():
        with suppress(OSError), socket.create_connection((host, port), _TIMEOUT_S) as connection:
            while not is_over.is_set():
                connection.sendall(frames[sent % len(frames)])
                sent += 1  # also a request that ends its connection
                _discard(connection, int.from_bytes(_received(connection, 4), "big"))
                answered += 1
    answers.put(answered)


def _received(connection: socket.socket, size: int) -> bytes:
    parts = connection.recv(size, socket.MSG_WAITALL)
    if len(parts) < size:
        raise ConnectionError("closed")
    return parts


def _discard(connection: socket.socket, size: int) -> None:
    buffer = memoryview(bytearray(1 << 20))
    while size:
        received = connection.recv_into(buffer[: min(size, len(buffer))])
        if not received:
            raise ConnectionError("closed")
        size -= received


def honest(servers: str, seconds: float) -> list[float]:
    """The latencies in ms of records sent at a fixed rate; raises for one that is not acknowledged."""
    latencies: list[float] = []
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})

    def sent(began_s: float) -> None:
        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failures.append(str(error))
            latencies.append((time.monotonic() - began_s) * 1000)

        producer.produce(TOPIC, _VALUE, on_delivery=delivered)

    began_s = time.monotonic()
    for number in range(int(seconds * RATE_PER_S)):
        due_s = began_s + number / RATE_PER_S
        while (left := due_s - time.monotonic()) > 0:
            producer.poll(left)
        sent(time.monotonic())
    producer.flush(_TIMEOUT_S)
    assert not failures, failures[0]
    assert len(latencies) == int(seconds * RATE_PER_S), "records without an acknowledgement"
    return latencies


@contextmanager
def attacked(addresses: list[tuple[str, int]], name: str) -> Iterator[list[int]]:
    """Attack each node from a process of its own; the numbers of answers come with the end."""
    context = multiprocessing.get_context("spawn")
    is_over, put = context.Event(), context.Queue()
    answers: list[int] = []
    processes = [context.Process(target=attack, args=(*where, name, is_over, put)) for where in addresses]
    for process in processes:
        process.start()
    try:
        yield answers
    finally:
        is_over.set()
        answers += [put.get(timeout=_TIMEOUT_S) for _ in processes]
        for process in processes:
            process.join()


def main() -> None:
    options = harness.options(__doc__, repeats=1, more=_arguments)
    figures = harness.Figures("cluster_large_requests")
    with nodes.cluster() as cluster:
        servers = cluster.bootstrap_servers
        addresses = [(host, int(port)) for host, port in (one.rsplit(":", 1) for one in servers.split(","))]
        with sparklog.Admin(bootstrap_servers=servers) as admin:
            admin.create_topics(
                [NewTopic(TOPIC, PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"})]
            )
            before = _leadership(admin)
            figures.add(
                "alone: p99", "ms", "sparklog", harness.percentile(honest(servers, options.seconds), 99)
            )
            for name in options.apis:
                with attacked(addresses, name) as answers:
                    time.sleep(_WARM_UP_S)  # to make the requests, and for the imports of the first
                    latencies = honest(servers, options.seconds)
                add = figures.add
                add(f"{name}: p50", "ms", "sparklog", harness.percentile(latencies, 50))
                add(f"{name}: p99", "ms", "sparklog", harness.percentile(latencies, 99), bound=BOUND)
                add(f"{name}: longest", "ms", "sparklog", max(latencies))
                add(f"{name}: requests", "", "sparklog", float(sum(answers)))
                assert _leadership(admin) == before, f"{name} moved a leader or shrank an ISR"
    figures.note("no node was fenced, no leader moved, every record was acknowledged")
    figures.report(options)


def _leadership(admin: sparklog.Admin) -> list[tuple[object, ...]]:
    topic = admin.describe_topics([TOPIC])[TOPIC]
    return [(one.partition, one.leader, one.leader_epoch, sorted(one.isr)) for one in topic.partitions]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--apis", nargs="*", default=APIS, help="the APIs, by name")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each lasts (default 10)")


if __name__ == "__main__":
    main()
