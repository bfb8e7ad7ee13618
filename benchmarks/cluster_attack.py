"""Attack a cluster of three nodes: kill -9 and SIGSTOP in turns, under librdkafka's producers, transactions
and a consumer group, and check the history.

    producer, acks=all, idempotent ──► topic `plain` ──► a group reads every record
    transactions over all partitions ─► topic `whole` ─► read committed: each whole, in every partition once

Ends with 1 if an acknowledged record is missing, a record is there twice or out of order, a transaction is
torn, or the group has not read every record. The supervisor starts a killed node again.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import nodes

PARTITIONS = 6
PLAIN, WHOLE = "plain", "whole"
QUIET = {"log_level": 0}
CALM_S = 25
"""How long the group may read on after the last fault."""


@dataclass
class History:
    """What the clients were told. `acknowledged` has (offset, value) by partition."""

    until_s: float
    acknowledged: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    failed: int = 0
    committed: list[int] = field(default_factory=list)
    aborted: int = 0
    unknown: int = 0
    seen: set[tuple[int, int]] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        return time.time() > self.until_s


def produce(servers: str, history: History) -> None:
    """One value after the other, each to the next partition."""
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "message.timeout.ms": 60_000, **QUIET}
    )

    def delivered(error: object, message: object) -> None:
        if error is not None:
            history.failed += 1
        else:
            told = (message.offset(), int(message.value()))  # type: ignore[attr-defined]
            history.acknowledged[message.partition()].append(told)  # type: ignore[attr-defined]

    number = 0
    while not history.is_over:
        producer.produce(PLAIN, str(number).encode(), partition=number % PARTITIONS, on_delivery=delivered)
        number += 1
        producer.poll(0.005)
    producer.flush(60)


def transact(servers: str, history: History) -> None:
    """One transaction after the other, with one record in each partition."""
    number = 0
    producer: Producer | None = None
    while not history.is_over:
        try:
            if producer is None:
                producer = Producer({"bootstrap.servers": servers, "transactional.id": "attacked", **QUIET})
                producer.init_transactions(30)
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(WHOLE, str(number).encode(), partition=partition)
            producer.commit_transaction(30)
            history.committed.append(number)
        except KafkaException as failure:
            producer = _ended(producer, failure, history)
        number += 1
        time.sleep(0.05)


def _ended(producer: Producer | None, failure: KafkaException, history: History) -> Producer | None:
    """Abort where that is possible; else the outcome is unknown, and another producer goes on."""
    try:
        if producer is not None and failure.args[0].txn_requires_abort():
            producer.abort_transaction(30)
            history.aborted += 1
            return producer
    except KafkaException:
        pass
    history.unknown += 1
    return None


def consume(servers: str, history: History) -> None:
    """Read everything as a group of one member."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest", **QUIET}
    )
    consumer.subscribe([PLAIN])
    while time.time() < history.until_s + CALM_S:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            history.seen.add((message.partition(), message.offset()))
    consumer.close()


def strike(cluster: nodes.Cluster, history: History, seed: int) -> tuple[int, int]:
    """Kill or stop one node after the other; returns how many of each."""
    draw = random.Random(seed)
    kills = stops = 0
    while time.time() < history.until_s - 5:
        time.sleep(draw.uniform(1.5, 4))
        running = cluster.processes[0].children()
        if not running:
            continue
        victim = draw.choice(sorted(running, key=lambda process: process.pid))
        try:
            if draw.random() < 0.7:
                victim.kill()
                kills += 1
            else:
                victim.suspend()
                time.sleep(draw.uniform(0.5, 4))
                victim.resume()
                stops += 1
        except psutil.NoSuchProcess:
            continue
    return kills, stops


def stored(servers: str, topic: str) -> list[list[tuple[int, int]]]:
    """The committed (offset, value) pairs of each partition."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "checker", "isolation.level": "read_committed", **QUIET}
    )
    found = []
    for partition in range(PARTITIONS):
        at = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(at, timeout=30)
        consumer.assign([at])
        values: list[tuple[int, int]] = []
        until_s = time.time() + 30
        while time.time() < until_s and end and consumer.position([at])[0].offset < end:
            message = consumer.poll(0.3)
            if message is not None and not message.error():
                values.append((message.offset(), int(message.value())))
        found.append(values)
    consumer.close()
    return found


def faults(servers: str, history: History) -> list[str]:
    """What the history does not allow."""
    plain, whole = stored(servers, PLAIN), stored(servers, WHOLE)
    found = []
    for partition, records in enumerate(plain):
        lost = set(history.acknowledged[partition]) - set(records)
        if lost:
            found.append(f"{PLAIN}-{partition}: {len(lost)} acknowledged records are missing")
        values = [value for _, value in records]
        if values != sorted(set(values)):
            found.append(f"{PLAIN}-{partition}: records twice or out of order")
    unread = {(partition, offset) for partition, records in enumerate(plain) for offset, _ in records}
    if unread - history.seen:
        found.append(f"the group has not read {len(unread - history.seen)} of {len(unread)} records")
    sets = [[value for _, value in records] for records in whole]
    if any(set(values) != set(sets[0]) for values in sets):
        found.append("a transaction is torn")
    if any(len(values) != len(set(values)) for values in sets):
        found.append("a transaction is there twice")
    if set(history.committed) - set(sets[0]):
        found.append("a committed transaction is missing")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=int, default=60, metavar="S", help="how long to attack (default 60)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the faults (default 1)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, nodes.cluster(data_dir=Path(directory)) as cluster:
        servers = cluster.bootstrap_servers
        topics = [NewTopic(name, PARTITIONS, 1) for name in (PLAIN, WHOLE)]
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics(topics).values():
            created.result(30)
        history = History(time.time() + options.seconds)
        clients = [
            threading.Thread(target=run, args=(servers, history)) for run in (produce, transact, consume)
        ]
        for client in clients:
            client.start()
        kills, stops = strike(cluster, history, options.seed)
        for client in clients:
            client.join()
        found = faults(servers, history)
    print(
        f"kills={kills} stops={stops} acknowledged={sum(map(len, history.acknowledged.values()))} "
        f"failed={history.failed} committed={len(history.committed)} aborted={history.aborted} "
        f"unknown={history.unknown} faults={len(found)}"
    )
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
