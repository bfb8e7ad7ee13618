"""Attack a cluster of three nodes: kill -9 and SIGSTOP in turns, under librdkafka's producers, transactions
and a consumer group, and check the history. With `--namespaces` the nodes have networks of their own, whose
links are cut, muted in one direction, and narrowed as well.

    producer, acks=all, idempotent ──► topic `plain` ──► a group reads every record
    transactions over all partitions ─► topic `whole` ─► read committed: each whole, in every partition once
    Spark, with `--spark`: `plain` ────► topic `copied` ─► read committed: every record of `plain` once

Ends with 1 if an acknowledged record is missing, a record is there twice or out of order, a transaction is
torn, or the group has not read every record. A killed node is started again.
"""

import argparse
import contextlib
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import namespaces, nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 6
PLAIN, WHOLE, COPIED = "plain", "whole", "copied"
QUIET = {"log_level": 0}
QUERY_S = 12
"""How long a query of Spark runs until it is stopped."""
PAUSE_S = 0.25
"""From the end of a fault to the start of a node that has ended."""
CALM_S = 25
"""How long the group may read on after the last fault."""


class Attacked(Protocol):
    """A cluster whose nodes can be hit. `links` are faults between nodes, each of which gives its end."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def links(self) -> Mapping[str, Callable[[random.Random], Callable[[], None]]]: ...
    def running(self) -> list[psutil.Process]: ...
    def revive(self) -> None: ...


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
    queries: int = 0

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


def session() -> "SparkSession":
    """Spark in this process, on the loopback interface alone."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    import sparklog

    settings = {"spark.ui.enabled": False, "spark.ui.showConsoleProgress": False, "spark.log.level": "OFF"}
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    sparklog.register(spark)
    return spark


def copy(servers: str, history: History, directory: Path) -> None:
    """Copy one topic to another by a query of Spark, which is stopped and started every few seconds."""
    spark = session()
    at = {"kafka.bootstrap.servers": servers}
    records = spark.readStream.format("sparklog").options(**at, subscribe=PLAIN, startingOffsets="earliest")
    writer = (
        records.load()
        .select("value")
        .writeStream.format("sparklog")
        .options(**at, topic=COPIED, checkpointLocation=f"{directory}/checkpoint")
    )
    from pyspark.errors import StreamingQueryException

    is_last = False
    while not is_last:
        is_last = time.time() > history.until_s + CALM_S
        trigger = {"availableNow": True} if is_last else {"processingTime": "500 milliseconds"}
        query = writer.trigger(**trigger).start()
        history.queries += 1
        with contextlib.suppress(StreamingQueryException):  # a batch may fail while a node is down
            query.awaitTermination(None if is_last else QUERY_S)
        query.stop()
    spark.stop()


def strike(cluster: Attacked, history: History, seed: int) -> Counter[str]:
    """One fault after the other, each on one node; returns how many of each."""
    draw, struck = random.Random(seed), Counter[str]()
    while time.time() < history.until_s - 5:
        time.sleep(draw.uniform(1.5, 4))
        running = sorted(cluster.running(), key=lambda process: process.pid)
        name = draw.choice(["kill", "kill", "kill", "stop", *cluster.links])
        try:
            if name == "kill":
                draw.choice(running).kill()
            elif name == "stop":
                victim = draw.choice(running)
                victim.suspend()
                time.sleep(draw.uniform(0.5, 4))
                victim.resume()
            else:
                undo = cluster.links[name](draw)
                time.sleep(draw.uniform(0.5, 6))
                undo()
        except (psutil.NoSuchProcess, IndexError):
            continue
        struck[name] += 1
        time.sleep(PAUSE_S)
        cluster.revive()
    return struck


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


def begun(directory: Path, has_namespaces: bool) -> AbstractContextManager[Attacked]:
    """The cluster to attack."""
    if has_namespaces:
        return namespaces.separated(nodes.COUNT, directory)
    return nodes.cluster(data_dir=directory)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=int, default=60, metavar="S", help="how long to attack (default 60)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the faults (default 1)")
    parser.add_argument("--namespaces", action="store_true", help="give each node a network of its own")
    parser.add_argument("--spark", action="store_true", help="copy a topic by a query of Spark")
    options = parser.parse_args()
    if options.namespaces:
        namespaces.enter("benchmarks.cluster_attack")
    with tempfile.TemporaryDirectory() as directory, begun(Path(directory), options.namespaces) as cluster:
        servers = cluster.bootstrap_servers
        topics = [NewTopic(name, PARTITIONS, 1) for name in (PLAIN, WHOLE, COPIED)]
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics(topics).values():
            created.result(30)
        history = History(time.time() + options.seconds)
        clients = [
            threading.Thread(target=run, args=(servers, history)) for run in (produce, transact, consume)
        ]
        if options.spark:
            clients.append(threading.Thread(target=copy, args=(servers, history, Path(directory))))
        for client in clients:
            client.start()
        struck = strike(cluster, history, options.seed)
        for client in clients:
            client.join()
        found = faults(servers, history)
    print(" ".join(f"{name}={count}" for name, count in sorted(struck.items())))
    print(
        f"acknowledged={sum(map(len, history.acknowledged.values()))} failed={history.failed} "
        f"committed={len(history.committed)} aborted={history.aborted} unknown={history.unknown} "
        f"queries={history.queries} faults={len(found)}"
    )
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
