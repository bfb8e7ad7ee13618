"""Changes of the nodes of a running cluster, by rows.

`voters`: a quorum of one voter has 100 000 records of metadata, and a second controller with an empty
directory joins it: from the start of its process until it is a voter, by
`controller.quorum.auto.join.enable`, and from AddRaftVoter of one that follows until that is committed.
`drain`: a node of three leads 1 000 partitions and is drained beside a producer.
`rolling`: `sparklog cluster restart --rolling` of three nodes beside a producer of 20 MB/s.
`plan`: `partitions balance` plans 20 000 partitions on 10 nodes.
`move`, `throttled`: replicas with cold data move to a node that has none of the topic, beside a producer of
20 MB/s; also on a real Kafka with `--against kafka`.
"""

import argparse
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Self

import confluent_kafka

import sparklog
from benchmarks import catch_up, harness, rdkafka, trio
from benchmarks.trio import wait_until
from sparklog import Admin
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.client.admin.quotas import QuotaEntity
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import NodeId, TopicPartition
from sparklog_server.operations.balance import BalancedNode, PlacedPartition, planned

RUNS = 5
RECORDS = 100_000
_PER_REQUEST = 2_000
_MOVED, _MOVED_PARTITIONS = "moved", 4
_LEADERSHIPS, _PER_TOPIC = 1_000, 100
_NODES, _PARTITIONS = 10, 20_000
_ROLLED, _RATE, _TICK_S = 6, 20_000_000, 0.005
_CLUSTER_ID = "Vz8jG3mXQhWj4kq0Zk2v3A"


class Growing:
    """The first voter, and controllers that come to it one after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.controllers = [harness.free_port()]
        self.broker = harness.free_port()

    @property
    def bootstrap_servers(self) -> str:
        """The address of the first node."""
        return f"127.0.0.1:{self.broker}"

    @contextmanager
    def node(self, number: int, way: str, settings: Mapping[str, str]) -> Iterator[float]:
        """Format a node and start it; the moment of the start, by `time.perf_counter`."""
        broker = self.broker if number == 1 else harness.free_port()
        if number > 1:
            self.controllers.append(harness.free_port())
        given = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{self.controllers[-1]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controllers[0]}",
            "log.dirs": str(self.root / f"node-{number}"),
            **settings,
        }
        words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        command = harness.sparklog_command()
        formatting = [*command, "format", "--cluster-id", _CLUSTER_ID, way, *words]
        subprocess.run(formatting, check=True, stdout=subprocess.DEVNULL, env=harness.ENVIRONMENT)
        began_s = time.perf_counter()
        child = subprocess.Popen(
            [*command, "start", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=harness.ENVIRONMENT,
        )
        with child:
            try:
                yield began_s
            finally:
                child.kill()


def voters(figures: harness.Figures, repeats: int) -> None:
    """A second voter joins a quorum with many records."""
    with TemporaryDirectory(prefix="sparklog-bench-", ignore_cleanup_errors=True) as root:
        growing = Growing(Path(root))
        with growing.node(1, "--standalone", {}), Admin(bootstrap_servers=growing.bootstrap_servers) as admin:
            for first in range(0, RECORDS, _PER_REQUEST):
                users = range(first, first + _PER_REQUEST)
                quota = {"producer_byte_rate": 1e6}
                admin.alter_client_quotas({QuotaEntity.of(user=f"user-{user}"): quota for user in users})
            for run in range(repeats):
                number = 2 * run + 2
                joining = {"controller.quorum.auto.join.enable": "true"}
                with growing.node(number, "--no-initial-controllers", joining) as began_s:
                    wait_until(lambda: number in ids(admin))  # noqa: B023 - called in this round
                    # Committed by both voters, of which neither is a majority.
                    admin.alter_client_quotas({QuotaEntity.of(user="user-0"): {"producer_byte_rate": 2e6}})
                    figures.add(
                        "a controller starts and joins, 100 000 records: votes after",
                        "ms",
                        "sparklog",
                        (time.perf_counter() - began_s) * 1000,
                        bound="<= 2000",
                    )
                    leave(admin, number)
                with growing.node(number + 1, "--no-initial-controllers", {}):
                    wait_until(lambda: is_caught_up(admin, number + 1))  # noqa: B023
                    began_s = time.perf_counter()
                    add(admin, number + 1, growing.controllers[-1])
                    figures.add(
                        "AddRaftVoter of a controller that follows",
                        "ms",
                        "sparklog",
                        (time.perf_counter() - began_s) * 1000,
                    )
                    leave(admin, number + 1)


def ids(admin: Admin) -> list[int]:
    """The voters."""
    return [one.node_id for one in admin.describe_quorum().voters]


def is_caught_up(admin: Admin, node: int) -> bool:
    """Whether an observer has reached the end of the log."""
    return any(one.node_id == node and one.last_caught_up_ms > 0 for one in admin.describe_quorum().observers)


def add(admin: Admin, node: int, port: int) -> None:
    """Make an observer a voter."""
    found = next(one for one in admin.describe_quorum().observers if one.node_id == node)
    admin.add_raft_voter(NodeId(node), found.directory_id, [("CONTROLLER", "127.0.0.1", port)])


def leave(admin: Admin, node: int) -> None:
    """Remove a voter, once the change before is over."""

    def is_gone() -> bool:
        found = next((one for one in admin.describe_quorum().voters if one.node_id == node), None)
        if found is None:
            return True
        try:
            admin.remove_raft_voter(NodeId(node), found.directory_id)
        except BrokerError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            return False
        return True

    wait_until(is_gone)


def drain(figures: harness.Figures, repeats: int) -> None:
    """A node of three gives 1 000 leaderships away beside a producer with default retries."""
    for _ in range(repeats):
        with (
            sparklog.embedded(nodes=3) as cluster,
            Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        ):
            replicas = [[1, 2, 3], [1, 3, 2]] * (_LEADERSHIPS // 2)
            for first in range(0, _LEADERSHIPS, _PER_TOPIC):
                assignment = replicas[first : first + _PER_TOPIC]
                admin.create_topics([sparklog.NewTopic(f"t{first}", assignment=assignment)])
            wait_until(lambda: leaderships(admin, 1) == _LEADERSHIPS)
            names = [f"t{first}" for first in range(0, _LEADERSHIPS, _PER_TOPIC)]
            with EagerLoad(cluster.bootstrap_servers, names) as load:
                time.sleep(2)
                began_s = time.perf_counter()
                admin.set_broker_state(1, "drained")
                wait_until(lambda: leaderships(admin, 1) == 0)
                figures.add(
                    "1 000 leaderships leave a node",
                    "ms",
                    "sparklog",
                    (time.perf_counter() - began_s) * 1000,
                    bound="<= 2000",
                )
                time.sleep(2)
            figures.add("requests that failed meanwhile", "", "sparklog", len(load.failed), bound="<= 0")
            figures.add("longest time without an acknowledgement", "ms", "sparklog", load.longest_ms)


def leaderships(admin: Admin, node: int) -> int:
    """How many partitions a node leads."""
    topics = admin.list_topics().values()
    return sum(one.leader == node for topic in topics for one in topic.partitions)


class Load:
    """A librdkafka producer with its defaults that writes to topics, in turn, until the end of the block;
    `failed` has the errors of deliveries.
    """

    def __init__(self, servers: str, topics: Sequence[str]) -> None:
        self.failed: list[str] = []
        self.producer = confluent_kafka.Producer({"bootstrap.servers": servers, "log_level": 0})
        self.topics = topics
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self._thread.join()

    def _write(self) -> None:
        self.write(b"x" * 1000)
        self.producer.flush(30)

    def done(self, error: object, message: confluent_kafka.Message) -> None:
        """A delivery has ended."""
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged(message, time.perf_counter())

    def write(self, value: bytes) -> None:
        """Produce the value again and again, until `is_over`."""
        raise NotImplementedError

    def acknowledged(self, message: confluent_kafka.Message, now_s: float) -> None:
        """A record is acknowledged."""
        raise NotImplementedError


class EagerLoad(Load):
    """Writes without a pause; `longest_ms` is the longest time between two acknowledgements."""

    longest_ms = 0.0
    _last_s: float | None = None

    def write(self, value: bytes) -> None:
        number = 0
        while not self.is_over.is_set():
            self.producer.produce(self.topics[number % len(self.topics)], value, on_delivery=self.done)
            number += 1
            self.producer.poll(0.001)

    def acknowledged(self, message: confluent_kafka.Message, now_s: float) -> None:
        if self._last_s is not None:
            self.longest_ms = max(self.longest_ms, (now_s - self._last_s) * 1000)
        self._last_s = now_s


def rolling(figures: harness.Figures, repeats: int) -> None:
    """Three nodes restart one after the other beside a producer with default retries."""
    for _ in range(repeats):
        with (
            sparklog.embedded(nodes=3) as cluster,
            Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        ):
            replicas = [[(first + step) % 3 + 1 for step in range(3)] for first in range(_ROLLED)]
            admin.create_topics([sparklog.NewTopic("t", assignment=replicas)])
            command = [*harness.sparklog_command(), "cluster", "restart", "--rolling"]
            with PacedLoad(cluster.bootstrap_servers, "t") as load:
                time.sleep(3)
                before_s = load.longest_s
                began_s = time.perf_counter()
                subprocess.run(
                    [*command, "--bootstrap-server", cluster.bootstrap_servers],
                    check=True,
                    stdout=subprocess.DEVNULL,
                    env=harness.ENVIRONMENT,
                )
                took_s = time.perf_counter() - began_s
                time.sleep(2)
            figures.add("rolling restart: took", "s", "sparklog", took_s)
            figures.add("rolling restart: failed", "records", "sparklog", len(load.failed), bound="<= 0")
            what = "longest gap between acknowledgements of a partition"
            figures.add(f"rolling restart: {what}", "s", "sparklog", load.longest_s, bound="<= 1.0")
            figures.add(f"before it: {what}", "s", "sparklog", before_s)


class PacedLoad(Load):
    """Writes 20 MB/s in records of 1 kB to the partitions of one topic in turn; `longest_s` is the longest
    time between two acknowledgements of one partition.
    """

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(servers, [topic])
        self.longest_s = 0.0
        self._last_s: dict[int, float] = {}

    def write(self, value: bytes) -> None:
        (topic,), number, due_s = self.topics, 0, time.perf_counter()
        while not self.is_over.is_set():
            due_s += _TICK_S
            for _ in range(int(_RATE * _TICK_S) // len(value)):
                try:
                    self.producer.produce(topic, value, partition=number % _ROLLED, on_delivery=self.done)
                except BufferError:  # what is not sent yet fills the queue
                    break
                number += 1
            self.producer.poll(0)
            while (rest_s := due_s - time.perf_counter()) > 0:
                self.producer.poll(rest_s)

    def acknowledged(self, message: confluent_kafka.Message, now_s: float) -> None:
        partition = message.partition()
        assert partition is not None
        self.longest_s = max(self.longest_s, now_s - self._last_s.get(partition, now_s))
        self._last_s[partition] = now_s


def plan(figures: harness.Figures, repeats: int) -> None:
    """`partitions balance` for 10 nodes and 20 000 partitions: three of the nodes are new."""
    random = Random(1)
    nodes = [BalancedNode(NodeId(number), f"rack-{number % 3}") for number in range(_NODES)]
    partitions = [
        PlacedPartition(
            TopicPartition(f"t{index % 50}", index),
            tuple(NodeId(node) for node in random.sample(range(_NODES - 3), 3)),
            int(random.paretovariate(1.2) * 1e6),
        )
        for index in range(_PARTITIONS)
    ]
    for _ in range(repeats):
        began_s = time.perf_counter()
        moves = planned(nodes, partitions)
        figures.add("20 000 partitions on 10 nodes", "s", "plan", time.perf_counter() - began_s, bound="<= 5")
        figures.add("partitions that move", "", "plan", len(moves))
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures.add("memory of the process", "MB", "plan", rss_mb, bound="<= 300")


def move(figures: harness.Figures, options: argparse.Namespace, throttle: int | None) -> None:
    """Replicas move to a node that has none of the topic, beside a producer of 20 MB/s to another topic."""
    for start in trio.starts(options):
        with start() as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            cluster.create(catch_up.TOPIC, [trio.ordered(1)])
            cluster.create(_MOVED, [[1, 2]] * _MOVED_PARTITIONS)
            left, size = int(options.gigabytes * 1e9 / 1_024), 0
            while left > 0:
                count = min(left, catch_up.RECORDS_AT_ONCE)
                filled = rdkafka.produce(cluster, _MOVED, count=count, size=1_024, settings=("acks=all",))
                size, left = size + filled["bytes"], left - count
            for index in range(_MOVED_PARTITIONS):
                catch_up.make_cold(cluster.nodes[1].directory / "data" / f"{_MOVED}-{index}")
            moved = [TopicPartition(_MOVED, index) for index in range(_MOVED_PARTITIONS)]
            with catch_up.Paced(cluster.bootstrap_servers) as paced:
                time.sleep(catch_up.BEFORE_S)
                began_s = time.perf_counter()
                admin.alter_partition_reassignments({at: [1, 3] for at in moved})
                if throttle is not None:
                    set_throttle(admin, cluster.name, throttle)
                trio.wait_until(
                    partial(is_moved, admin, moved),
                    patience_s=900,
                    every_s=0.2,
                )
                ended_s = time.perf_counter()
            what = "" if throttle is None else f", throttle {throttle // 10**6} MB/s"
            bound = "" if throttle is None else f"<= {1.1 * throttle / 1e6:.0f}"
            rate = size / 1e6 / (ended_s - began_s)
            figures.add(f"moved{what}", "MB/s", cluster.name, rate, bound=bound)
            before_ms = paced.p99_ms(began_s - catch_up.BEFORE_S / 2, began_s)
            figures.add(f"producer of 20 MB/s before{what}: p99", "ms", cluster.name, before_ms)
            beside_ms = paced.p99_ms(began_s, ended_s)
            figures.add(
                f"p99 beside / before{what}",
                "",
                cluster.name,
                beside_ms / before_ms,
                bound="<= 3" if throttle is None else "<= 1.5",
            )


def is_moved(admin: Admin, moved: Sequence[TopicPartition]) -> bool:
    """Whether no reassignment is left."""
    return not admin.list_partition_reassignments(moved)


def set_throttle(admin: Admin, name: str, rate: int) -> None:
    """Bound the bytes a second of what moves: by our key, or by Kafka's on both sides."""
    if name != "kafka":
        key = "sparklog.reassignment.throttled.rate"
        admin.alter_configs({ConfigResource("broker", ""): [ConfigChange(key, str(rate))]})
        return
    sides = ("leader", "follower")
    nodes = {
        ConfigResource("broker", str(node)): [
            ConfigChange(f"{side}.replication.throttled.rate", str(rate)) for side in sides
        ]
        for node in range(1, trio.COUNT + 1)
    }
    replicas = [ConfigChange(f"{side}.replication.throttled.replicas", "*") for side in sides]
    admin.alter_configs({**nodes, ConfigResource("topic", _MOVED): replicas})


ROWS: Mapping[str, Callable[[harness.Figures, int], None]] = {
    "voters": voters,
    "drain": drain,
    "rolling": rolling,
    "plan": plan,
}


MOVES: Mapping[str, int | None] = {"move": None, "throttled": 30_000_000}
"""The throttle of each row that moves data, in bytes a second."""


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--row", choices=[*ROWS, *MOVES], action="append", help="measure these rows only")
    parser.add_argument("--gigabytes", type=float, default=5.0, metavar="GB", help="to move (default 5)")


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=RUNS, more=_more)
    figures = harness.Figures("moving")
    for name in options.row or (*ROWS, *MOVES):
        if name in MOVES:
            for _ in range(options.repeats):
                move(figures, options, MOVES[name])
        else:
            ROWS[name](figures, options.repeats)
    figures.report(options)


if __name__ == "__main__":
    main()
