"""One broker and one Spark for all the tests of a file, the Spark started anew if it has died."""

import socket
from collections.abc import Iterator

import pytest

from tests.spark.kill_points.harness import Harness, KillableBroker
from tests.spark.kill_points.points import Points
from tests.tools import require_command


@pytest.fixture(scope="package")
def killable_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillableBroker]:
    """Ours, on a port that it keeps."""
    broker = KillableBroker(tmp_path_factory.mktemp("broker"), free_port())
    yield broker
    broker.kill()


@pytest.fixture(scope="package")
def one_harness(
    killable_broker: KillableBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    pytest.importorskip("pyspark.sql", reason="needs pyspark")
    require_command("java")
    with Points() as points:
        harness = Harness(killable_broker, points, tmp_path_factory.mktemp("spark"))
        yield harness
        harness.close()


@pytest.fixture
def harness(one_harness: Harness) -> Iterator[Harness]:
    """With no rules from another test; at the end every rule of this one must have been used."""
    one_harness.points.forget()
    yield one_harness
    one_harness.points.forget()


def free_port() -> int:
    """A port of the loopback without a listener."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
