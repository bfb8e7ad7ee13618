"""Quotas of users that authenticate by SASL, set with Kafka's own tool: the most specific one applies, in
Kafka's order.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from sparklog import Admin
from sparklog.local_broker import EmbeddedBroker, embedded
from sparklog.record.batch import build_batch
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.world import produce
from tests.compatibility.kafka_tools import CONFIGS, kafka_tool
from tests.hostile.conftest import JAAS, USERS, Client

pytestmark = pytest.mark.compat

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
CLIENT_ID = "hostile"  # of `Client`
TOPIC = "limited"
TINY, HUGE = "1", "1000000000"
Entity = tuple[str, ...]


def users(name: str | None) -> Entity:
    return ("--entity-type", "users", *(("--entity-default",) if name is None else ("--entity-name", name)))


def clients(name: str | None) -> Entity:
    return ("--entity-type", "clients", *(("--entity-default",) if name is None else ("--entity-name", name)))


LADDER: list[Entity] = [
    clients(None),
    clients(CLIENT_ID),
    users(None),
    users(None) + clients(None),
    users(None) + clients(CLIENT_ID),
    users("alice"),
    users("alice") + clients(None),
    users("alice") + clients(CLIENT_ID),
]
"""From the least specific entity to the most specific one."""


class Limited:
    """A broker whose clients authenticate, and Kafka's tool as the user alice."""

    def __init__(self, broker: EmbeddedBroker, config: Path) -> None:
        self._broker = broker
        self._config = config
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={MODULE} required username="alice" password="{USERS["alice"]}";\n'
        )

    def configs(self, *arguments: str) -> str:
        server = ("--bootstrap-server", self._broker.bootstrap_servers, "--command-config", self._config)
        return kafka_tool(CONFIGS, *server, *arguments)

    def limit(self, entity: Entity, rate: str) -> None:
        self.configs("--alter", *entity, "--add-config", f"producer_byte_rate={rate}")

    def is_throttled(self, user: str) -> bool:
        """Whether a batch of a new connection exceeds the quota."""
        host, port = self._broker.bootstrap_servers.rsplit(":", 1)
        with Client((host, int(port))) as client:
            client.authenticate(user)
            batch = bytes(build_batch([(None, bytes(10_000), (), 1_700_000_000_000)]))
            told = client.ask(produce(TOPIC, batch), 9, ProduceResponse)
        assert isinstance(told, ProduceResponse)
        assert told.responses[0].partition_responses[0].error_code == 0
        return told.throttle_time_ms > 0

    def climb(self, entities: Sequence[Entity], user: str) -> None:
        """Give each entity the opposite of the quota of the one before: the later one applies."""
        for number, entity in enumerate(entities):
            self.limit(entity, HUGE if number % 2 else TINY)
            assert self.is_throttled(user) == (number % 2 == 0), entity


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    with embedded(
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=JAAS.replace(
            "required", f'required username="alice" password="{USERS["alice"]}"'
        ),
    ) as broker:
        with Admin(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password=USERS["alice"],
        ) as admin:
            admin.create_topics({TOPIC: 1})
        yield Limited(broker, tmp_path / "alice.properties")


def test_the_quota_of_a_user_and_client_id_wins_over_that_of_the_user(limited: Limited) -> None:
    assert not limited.is_throttled("alice")
    limited.climb([users("alice"), users("alice") + clients(CLIENT_ID)], "alice")
    assert not limited.is_throttled("mallory")
    told = limited.configs("--describe", *users("alice"), *clients(CLIENT_ID))
    assert told == (
        f"Quota configs for user-principal 'alice', client-id '{CLIENT_ID}' are producer_byte_rate=1.0E9\n"
    )


@pytest.mark.long
@pytest.mark.timeout(300)
def test_each_entity_wins_over_the_less_specific_ones(limited: Limited) -> None:
    limited.climb(LADDER, "alice")
    assert not limited.is_throttled("alice")
    assert limited.is_throttled("mallory")  # that of any user with this client id
    for entity, below in pairwise(reversed(LADDER)):
        limited.configs("--alter", *entity, "--delete-config", "producer_byte_rate")
        assert limited.is_throttled("alice") == (LADDER.index(below) % 2 == 0), below
