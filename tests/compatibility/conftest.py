"""A live broker for the tests against real clients: ours in a child process, or any other that speaks the
protocol.

`SPARKLOG_COMPAT_BOOTSTRAP=host:port` (and `SPARKLOG_COMPAT_DATA=directory` for its files) runs the same
tests against a broker that is already up, such as a real Kafka: that is how the tests themselves are
checked.
"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.local_broker import embedded

TOPIC_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """Where a broker listens, and the directory in which it keeps its files (its metadata log included)."""

    bootstrap_servers: str
    data_dir: Path

    def create(self, name: str, *, partitions: int = 1) -> str:
        """A new topic called `name-N`, ready to be written."""
        topic = f"{name}-{os.getpid()}-{next(TOPIC_NUMBERS)}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(timeout=30)
        return topic


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """The broker that all compatibility tests share."""
    other = os.environ.get("SPARKLOG_COMPAT_BOOTSTRAP")
    if other is not None:
        yield LiveBroker(other, Path(os.environ.get("SPARKLOG_COMPAT_DATA", "")))
        return
    with embedded(data_dir=tmp_path_factory.mktemp("live") / "data") as broker:
        yield LiveBroker(broker.bootstrap_servers, broker.data_dir)
