"""Kafka's own tools with the `client.properties` of `sparklog init --secure`."""

from collections.abc import Iterator

import pytest

from sparklog.local_broker import EmbeddedBroker, embedded
from tests.compatibility.kafka_tools import (
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    TOPICS,
    all_that_is_said,
    kafka_tool,
)

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded(secure=True) as one:
        yield one


def test_kafkas_console_tools_write_and_read(broker: EmbeddedBroker) -> None:
    common = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "console")
    config = ("--command-config", broker.data_dir / "client.properties")
    kafka_tool(TOPICS, *common, *config, "--create")
    kafka_tool(CONSOLE_PRODUCER, *common, *config, given="one\ntwo\n")
    reading = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "20000")
    reading += ("--command-property", "group.protocol=consumer")
    assert kafka_tool(CONSOLE_CONSUMER, *common, *config, *reading) == "one\ntwo\n"


def test_a_user_whom_the_administrator_adds_may_do_nothing_yet(broker: EmbeddedBroker) -> None:
    common = ("--bootstrap-server", broker.bootstrap_servers)
    admin = broker.data_dir / "client.properties"
    user = ("--alter", "--entity-type", "users", "--entity-name", "bob")
    password = ("--add-config", "SCRAM-SHA-512=[password=secret]")
    kafka_tool(CONFIGS, *common, "--command-config", admin, *user, *password)
    bob = broker.data_dir / "bob.properties"
    jaas = 'required username="bob" password="secret";\n'
    bob.write_text(admin.read_text().partition("required")[0] + jaas)
    refused = all_that_is_said(
        TOPICS, *common, "--command-config", bob, "--create", "--topic", "bobs", "--partitions", "1"
    )
    assert "Authorization failed" in refused
