"""Kafka's own TransactionalMessageCopier over our broker while that is killed and started anew: every
record is copied once.

Java clients of Kafka 4 speak transaction version 2 (KIP-890) where the cluster does: Produce adds
partitions, every end bumps the epoch.
"""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.producer.producer import Producer
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.kafka_broker import free_ports
from tests.compatibility.kafka_tools import java_command
from tests.compatibility.test_transactions_own import read
from tests.daemon.broker_process import BrokerProcess

pytestmark = pytest.mark.compat

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
COPYING_S = 120


class Bounced:
    """A broker that keeps its port and its files from one life to the next; every life but the last ends
    by SIGKILL.
    """

    def __init__(self, data_dir: Path) -> None:
        (port,) = free_ports(1)
        self._data_dir = data_dir
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._process = self._started()

    def _started(self) -> BrokerProcess:
        process = BrokerProcess("--data-dir", str(self._data_dir), "--listen", self.bootstrap_servers)
        process.address()
        return process

    def bounce(self) -> None:
        """Kill it, and start it again."""
        self.close()
        self._process = self._started()

    def close(self) -> None:
        self._process.__exit__(None, None, None)

    @property
    def live(self) -> LiveBroker:
        return LiveBroker(self.bootstrap_servers, self._data_dir)


@contextmanager
def bounced(data_dir: Path) -> Iterator[Bounced]:
    broker = Bounced(data_dir)
    try:
        yield broker
    finally:
        broker.close()


class Copier:
    """One copier: it copies a partition, or its share of a topic, to the end that was the end when it
    began.
    """

    def __init__(self, broker: Bounced, transactional_id: str, *arguments: str) -> None:
        command = java_command(
            COPIER,
            "--broker-list",
            broker.bootstrap_servers,
            "--transactional-id",
            transactional_id,
            *arguments,
        )
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._said: list[dict[str, object]] = []
        self._moved = threading.Condition()
        self._complaints: list[str] = []
        self._readers = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._hear_out, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            with self._moved:
                self._said.append(json.loads(line))
                self._moved.notify_all()

    def _hear_out(self) -> None:
        assert self._child.stderr is not None
        self._complaints += self._child.stderr

    def _copied(self) -> int:
        return int(str(self._said[-1]["totalProcessed"])) if self._said else 0

    def wait_for(self, count: int) -> None:
        """Return once so many records were copied, or nothing is left to copy."""
        with self._moved:
            assert self._moved.wait_for(
                lambda: self._copied() >= count or self._child.poll() is not None, COPYING_S
            ), self._said[-1:]
        assert self._copied() >= count or self._child.poll() == 0, "".join(self._complaints)

    def kill(self) -> None:
        """As a machine that is lost: its transactions stay open."""
        self._child.kill()
        self._child.wait()

    def wait(self) -> None:
        """Return when it has copied everything."""
        assert self._child.wait(COPYING_S) == 0, "".join(self._complaints)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for reader in self._readers:
            reader.join()
        for pipe in (self._child.stdout, self._child.stderr):
            assert pipe is not None
            pipe.close()


def filled(broker: Bounced, name: str, count: int, *, partitions: int = 1) -> str:
    """A topic with the numbers below `count`, spread evenly."""
    topic = broker.live.create(name, partitions=partitions)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, str(number), partition=number % partitions)
    return topic


def from_to(source: str, target: str, *, size: int) -> tuple[str, ...]:
    return (
        *(
            "--input-topic",
            source,
            "--output-topic",
            target,
            "--consumer-group",
            f"of-{source}",
            "--transaction-size",
            str(size),
        ),
        *("--input-partition", "0", "--enable-random-aborts", "--use-group-metadata"),
    )


def test_a_java_producer_of_the_second_version_copies_each_record_once_though_the_broker_is_killed(
    tmp_path: Path,
) -> None:
    count, size = 1_200, 30
    with bounced(tmp_path / "data") as broker:
        source = filled(broker, "source", count)
        target = broker.live.create("target")
        with Copier(broker, "copier", *from_to(source, target, size=size)) as copier:
            copier.wait_for(300)
            broker.bounce()
            copier.wait()
        assert read(broker.live, target) == [str(number) for number in range(count)]
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            found = admin.describe_transactions(["copier"])["copier"]
            # Every end, also of the aborted ones, has bumped the epoch: a producer of version 1 would have
            # kept its own.
            assert found.producer_epoch >= count // size
            assert admin.find_hanging_transactions(topics=[source, target], longer_than_ms=0) == []


@pytest.mark.long
def test_java_copiers_and_their_broker_are_killed_over_and_over(tmp_path: Path) -> None:
    count, partitions, size = 16_000, 2, 40
    with bounced(tmp_path / "data") as broker:
        source = filled(broker, "source", count, partitions=partitions)
        target = broker.live.create("target", partitions=partitions)
        ours = (*from_to(source, target, size=size), "--transaction-timeout", "5000", "--group-mode")
        for life in range(4):
            with Copier(broker, "a", *ours) as one, Copier(broker, "b", *ours) as other:
                one.wait_for(size * 4)
                broker.bounce()
                other.wait_for(size * 4)
                broker.bounce()
                if life == 3:
                    one.wait()
                    other.wait()
        expected = [str(number) for part in range(partitions) for number in range(part, count, partitions)]
        assert read(broker.live, target, partitions=partitions) == expected
