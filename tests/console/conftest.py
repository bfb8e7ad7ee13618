"""One broker and one console for all tests of pages."""

from collections.abc import Iterator

import pytest

import sparklog
from sparklog.client.admin.admin import Admin
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.console.ask import Console
from sparklog_server.console.clusters import Target
from tests.console.browser import Browser, browsing


@pytest.fixture(scope="package")
def broker() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded() as broker:
        yield broker


@pytest.fixture(scope="package")
def browser(broker: EmbeddedBroker) -> Iterator[Browser]:
    with browsing(Console(Target({"bootstrap.servers": broker.bootstrap_servers}))) as browser:
        yield browser


@pytest.fixture(scope="package")
def admin(broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin
