"""One Spark session and one broker for the directory; a topic of its own for every test.

`SPARKLOG_TEST_BOOTSTRAP=host:port` runs the tests against the broker there, a real Kafka for instance,
instead of one of ours.
"""

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparklog import Admin
from sparklog.client.admin.admin import NewTopic
from tests.spark.jvm import jvm_options
from tests.tools import spark_connector_jars

NUMBERS = itertools.count(1)
SPARK_S_MAX = 300
MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark of two cores whose Python workers are this Python."""
    pyspark = pytest.importorskip("pyspark.sql", reason="needs pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "20s",
        # One session serves every test, so it has the settings of all of them.
        "spark.jars": ",".join(map(str, spark_connector_jars())),
        "spark.driver.extraJavaOptions": jvm_options(),
    }
    builder = pyspark.SparkSession.builder.master("local[2]").appName("sparklog-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> str:
    """The broker's address."""
    named = os.environ.get("SPARKLOG_TEST_BOOTSTRAP")
    return named or request.getfixturevalue("sparklog_broker").bootstrap_servers


@pytest.fixture(scope="session")
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as admin:
        yield admin


@pytest.fixture
def make_topic(admin: Admin) -> MakeTopic:
    """Makes a topic of `partitions` partitions that no other test uses, and tells its name."""

    def make(partitions: int = 1, *, prefix: str = "t") -> str:
        topic = f"{prefix}-{os.getpid()}-{next(NUMBERS)}"
        # No retention: some tests send records with timestamps of long ago.
        admin.create_topics([NewTopic(topic, partitions, configs={"retention.ms": "-1"})])
        return topic

    return make


@pytest.fixture
def sink() -> str:
    """The identity of a sink that no other test uses."""
    return f"sink-{os.getpid()}-{next(NUMBERS)}"


@pytest.fixture
def make_reader(servers: str) -> Iterator[Any]:
    """Makes stream readers as Spark does, from the earliest record unless told otherwise, and closes them."""
    from sparklog.spark.connections import close_idle
    from sparklog.spark.source import SparklogSource
    from sparklog.spark.stream_reader import StreamReader

    readers: list[StreamReader] = []

    def make(topic: str | None = None, **options: Any) -> StreamReader:
        named = {} if topic is None else {"subscribe": topic}
        given = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest", **named, **options}
        source = SparklogSource({name: str(value) for name, value in given.items()})
        reader = source.streamReader(source.schema())
        assert isinstance(reader, StreamReader)
        readers.append(reader)
        return reader

    yield make
    for reader in readers:
        reader.stop()
    close_idle()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time for the slowest machine: the first test pays for Spark's start, and a call that is broken off
    fails all after it as well.
    """
    for item in items:
        if item.get_closest_marker("spark") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_S_MAX))
