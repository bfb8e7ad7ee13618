"""The pytest plugin, installed with the package: a live broker for a test session, and a topic for a test.

    def test_orders_arrive(sparklog_broker, sparklog_topic):
        with Producer(bootstrap_servers=sparklog_broker.bootstrap_servers) as producer:
            producer.send(sparklog_topic, value=b"one")

pytest loads this module in every project that has sparklog installed, so it imports only modules that pytest
imports.
"""

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sparklog.local_broker import EmbeddedBroker

_TOPIC_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def sparklog_broker() -> Iterator["EmbeddedBroker"]:
    """A private broker for the test session: a child process with a temporary directory, removed at the end
    of the session.
    """
    from sparklog.local_broker import embedded

    with embedded() as broker:
        yield broker


@pytest.fixture(scope="session")
def sparklog_cluster() -> Iterator["EmbeddedBroker"]:
    """A private cluster of three nodes for the test session, with a temporary directory, removed at the end
    of the session.
    """
    from sparklog.local_broker import embedded

    with embedded(nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def sparklog_secure_broker() -> Iterator["EmbeddedBroker"]:
    """A private broker with TLS, passwords and access rules for the test session; `client_settings` are the
    arguments with which a Producer, Consumer or Admin connects as its administrator.
    """
    from sparklog.local_broker import embedded

    with embedded(secure=True) as broker:
        yield broker


@pytest.fixture
def sparklog_topic(sparklog_broker: "EmbeddedBroker", request: pytest.FixtureRequest) -> str:
    """The name of a topic with one partition, created for this test and named after it."""
    from sparklog.client.admin.admin import Admin

    topic = f"{re.sub('[^A-Za-z0-9._-]+', '-', request.node.name)[:200].strip('-.')}-{next(_TOPIC_NUMBERS)}"
    with Admin(bootstrap_servers=sparklog_broker.bootstrap_servers) as admin:
        admin.create_topics({topic: 1})
    return topic
