"""Every key that may change while running has a reader of its new value."""

import pytest

from sparklog.model import Offset
from sparklog.wire.schema import Message
from sparklog_server.broker.coordinators.group_coordinator_service import group_settings_of
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig, cleaning_limits
from sparklog_server.config.keys import Key, Kind, Update, text_of
from sparklog_server.config.layers import default_of
from sparklog_server.config.settings import BrokerSettings, broker_keys, key_of
from sparklog_server.config.tls_settings import tls_keys
from sparklog_server.config.topic_settings import topic_keys_of_broker
from sparklog_server.metadata.image import BROKER_RESOURCE, MetadataImage
from sparklog_server.metadata.records import ConfigRecord

ASKED_WHEN_NEEDED = {
    "cordoned.log.dirs": "by whoever places a partition: tests/broker/test_cordoned.py",
    "max.connection.creation.rate": "by the server at each connection",
    "max.connections": "by the server at each connection",
    "max.connections.per.ip": "by the server at each connection",
    "min.insync.replicas": "by each partition when topics are reconfigured",
    "transaction.partition.verification.enable": "by Produce, each time",
    "sasl.enabled.mechanisms": "at each new session: tests/broker/access/test_sasl.py",
    "sasl.jaas.config": "at each new session: tests/broker/access/test_sasl.py",
    "sasl.mechanism.inter.broker.protocol": "at each new link: tests/broker/access/test_sasl.py",
    "sparklog.slow.request.ms": "by the observers of requests: tests/broker/metrics/test_slow_requests.py",
    "sparklog.ack.flush": "by each partition when topics are reconfigured",
    "unclean.leader.election.enable": "by the controller at each election",
    **dict.fromkeys(tls_keys(), "by the listeners' certificates: tests/daemon/test_tls.py"),
}
LIVE = sorted(
    name
    for name in (*broker_keys(), *topic_keys_of_broker())
    if key_of(name).update is not Update.READ_ONLY
    and key_of(name).has_effect
    and name not in ASKED_WHEN_NEEDED
)


def another(key: Key) -> str:
    """A value that is not the default."""
    default = default_of(key.name)
    if key.choices:
        return next(choice for choice in key.choices if choice != default)
    if key.kind is Kind.BOOLEAN:
        return "false" if default == "true" else "true"
    if key.kind is Kind.DOUBLE:
        return "0.25"
    return str(key.at_least + 7 if isinstance(key.at_least, int) else 12_345)


@pytest.mark.parametrize("name", LIVE)
def test_a_key_that_changes_while_running_changes_what_holds(name: str) -> None:
    live = DynamicBrokerConfig(BrokerSettings.of({}), lambda *_, **__: None)
    record: Message = ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name="", name=name, value=another(key_of(name))
    )
    _, delta = MetadataImage().apply([(Offset(0), record)])

    def seen() -> tuple[object, ...]:
        return live.log("t"), cleaning_limits(live.settings), group_settings_of(live.settings)

    before = seen()
    assert live.follow(delta)
    assert seen() != before
    assert live.layers.text(name) == text_of(key_of(name).parse(another(key_of(name))))
