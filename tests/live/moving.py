"""Operate a cluster of up to five nodes while clients use it and nodes are killed, and judge what the clients
were told, and what is left behind.

    python -m tests.live.moving --directory DIR --seconds 180 --seed 1

Grows from one node to three and to five, then takes the steps in turns until the time is over, each at least
once. Prints each step and each kill, then the counts of the history and its violations; exits with 1 if there
are any. The directory keeps the logs of the nodes.
"""

import argparse
import random
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from benchmarks import harness
from sparklog import Admin
from sparklog.client.admin.configs import ConfigResource
from sparklog.client.admin.topics import NewTopic
from sparklog_server.config.layers import REASSIGNMENT_RATE
from tests.daemon.voter_nodes import VoterNodes
from tests.live import clients, operations
from tests.live.history import violations
from tests.live.load import COPIES, PARTITIONS, QUIET, TOPICS, Load, stored, told
from tests.live.operations import COLD, Operated
from tests.live.relay import copy_in_modern_group
from tests.live.replicas import differing
from tests.live.verifiable import replica_violations, verify

COUNT: Final = 5
SETTINGS: Final = {
    "controller.quorum.auto.join.enable": "true",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "6000",
    "log.segment.bytes": f"{4 * 2**20}",
    "log.segment.delete.delay.ms": "1000",
}
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
CLIENTS: Final = (
    clients.produce_by_librdkafka,
    clients.produce_by_sparklog,
    clients.transact,
    clients.consume_in_classic_group,
    clients.consume_in_modern_group,
    copy_in_modern_group,
)
COLD_RECORDS, COLD_BYTES = 300, 100_000
KILLED_APART_S: Final = (0.5, 4.0)
DOWN_S: Final = (0.0, 8.0)
"""Shorter and longer than the session of a broker."""
REMOVED_S: Final = 60.0


def main() -> int:
    options = _options()
    nodes = VoterNodes(options.directory, COUNT, **SETTINGS)
    with nodes.running(1):
        operated = Operated(nodes, random.Random(options.seed))
        with operated.admin() as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (*TOPICS, COLD)])
        return _judged(operated, options.seconds, random.Random(-options.seed))


def _judged(operated: Operated, seconds: float, draw: random.Random) -> int:
    has_tools = harness.kafka_is_available()
    load = Load(operated.servers, (*CLIENTS, verify) if has_tools else CLIENTS)
    _fill(load)
    until_s = time.monotonic() + seconds
    with load.running():
        operated.until(
            "the internal topics exist",
            lambda admin: set(INTERNAL) <= admin.list_topics(include_internal=True).keys(),
        )
        with _kills(operated, draw, load.history.failures):
            for step in (operations.grow_to_three, operations.grow_to_five, *operations.STEPS):
                _take(operated, step)
            for step in cycle(operations.STEPS):
                if time.monotonic() > until_s:
                    break
                _take(operated, step)
        operated.settles()
    history = load.history
    values = stored(load.servers, (*TOPICS, COLD))
    found = [*history.failures, *violations(history, values, COPIES), *_left_behind(operated)]
    if has_tools:
        found += replica_violations(load.servers, (*TOPICS, COLD))
    found += [f"node {node} ended by itself" for node in operated.nodes.ended()]
    found += _differences(operated)
    copied = sum(len(each) for at, each in values.items() if at.topic in COPIES)
    print(
        f"acknowledged={len(history.acknowledged)} seen={len(history.seen)} copied={copied} "
        f"commits={len(history.commits)} committed={len(history.committed)} aborted={len(history.aborted)} "
        f"violations={len(found)}"
    )
    for line in found[:100]:
        print(line)
    return 1 if found else 0


def _fill(load: Load) -> None:
    """Write the cold topic."""
    producer = Producer({"bootstrap.servers": load.servers, "enable.idempotence": True, **QUIET})
    padding = random.Random(0)

    def delivered(error: object, message: object) -> None:
        assert error is None
        load.history.acknowledged.append(told(message))

    for number in range(COLD_RECORDS):
        key, partition = padding.randbytes(COLD_BYTES), number % PARTITIONS
        producer.produce(COLD, f"cold:{number}", key, partition=partition, on_delivery=delivered)
    producer.flush()


def _take(operated: Operated, step: Callable[[Operated], str]) -> None:
    began_s = time.monotonic()
    what = step(operated)
    print(f"step={step.__name__} of={what} took_s={time.monotonic() - began_s:.1f}", flush=True)


@contextmanager
def _kills(operated: Operated, draw: random.Random, failures: list[str]) -> Iterator[None]:
    """Kill one node or two at a time, and start them again, until the end of the block."""
    is_over = threading.Event()

    def kill() -> None:
        while not is_over.wait(draw.uniform(*KILLED_APART_S)):
            with operated.away:
                role, killed = operations.victims(operated, draw)
                for node in sorted(killed):
                    operated.nodes.stop(node, is_killed=True)
                down_s = draw.uniform(*DOWN_S)
                time.sleep(down_s)
                began_s = time.monotonic()
                operated.nodes.start(*sorted(killed))
                started_s = time.monotonic() - began_s
            nodes = ",".join(map(str, sorted(killed)))
            print(f"killed={role} nodes={nodes} down_s={down_s:.1f} start_s={started_s:.1f}", flush=True)

    def guarded() -> None:
        try:
            kill()
        except Exception:  # it is the finding of the test
            failures.append(f"kills: {traceback.format_exc()}")

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _left_behind(operated: Operated) -> Iterator[str]:
    """A throttle, and the directories of partitions on nodes that are no replicas, or that lack there."""
    with operated.admin() as admin:
        resource = ConfigResource("broker", "")
        kept = admin.describe_resources([resource])[resource].get(REASSIGNMENT_RATE)
        if kept is not None and kept.value is not None:
            yield f"the throttle is left: {kept.value}"
        until_s = time.monotonic() + REMOVED_S
        while (wrong := [*_misplaced(operated, admin)]) and time.monotonic() < until_s:
            time.sleep(0.5)
        yield from wrong


def _misplaced(operated: Operated, admin: Admin) -> Iterator[str]:
    partitions = operations.partitions_of(admin)
    for node in operated.nodes.ids:
        expected = {f"{at.topic}-{at.partition}" for at, one in partitions.items() if node in one.replicas}
        found = {
            one.name
            for one in operated.nodes.directory(node).iterdir()
            if one.is_dir() and re.search(r"-\d+$|-delete$|-future$|-stray$", one.name)
        } - {"__cluster_metadata-0"}
        for name in sorted(found - expected):
            yield f"{name}: node {node} has a directory, and is no replica"
        for name in sorted(expected - found):
            yield f"{name}: node {node} is a replica, and has no directory"


def _differences(operated: Operated) -> Iterator[str]:
    """Stop the nodes; the partitions whose replicas differ. Internal topics are compacted by each replica."""
    with operated.admin() as admin:
        partitions = operations.partitions_of(admin)
    for node in operated.nodes.started:
        operated.nodes.stop(node)
    for at, one in sorted(partitions.items()):
        if at.topic not in INTERNAL:
            directories = [operated.nodes.directory(node) for node in one.replicas]
            yield from differing(f"{at.topic}-{at.partition}", directories)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=180, metavar="S", help="how long to operate")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the steps and the kills")
    parser.add_argument("--directory", type=Path, required=True, help="of the nodes; it is empty")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
