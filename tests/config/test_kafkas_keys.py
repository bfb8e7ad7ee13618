"""Every key of Kafka 4.3 is known with Kafka's type, default, bounds and time of change; each difference
is listed here with its reason.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from sparklog_server.config.keys import Key, Update, text_of
from sparklog_server.config.layers import default_of
from sparklog_server.config.settings import key_of
from sparklog_server.config.topic_settings import TopicSettings, topic_keys

# A laptop's broker of one must run as it comes, be reachable from nowhere else, and hold finite amounts of
# everything.
OUR_DEFAULTS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dir": "./sparklog-data",
    "max.connections": "10000",
    "queued.max.request.bytes": "67108864",
    "socket.listen.backlog.size": "1024",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
# Where Kafka checks in another place, or not at all, what a value must be to make sense.
OUR_BOUNDS = {
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "initial.broker.registration.timeout.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "replica.lag.time.max.ms",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "queued.max.request.bytes",
    "log.retention.ms",
    "log.roll.ms",
    "log.roll.jitter.ms",
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
    "internal.segment.bytes",
}
# A listener is opened and closed with the broker: better to refuse the change than to take it and do nothing.
OUR_UPDATES = {"listeners": Update.READ_ONLY, "listener.security.protocol.map": Update.READ_ONLY}
UPDATES = {
    "read-only": Update.READ_ONLY,
    "per-broker": Update.PER_BROKER,
    "cluster-wide": Update.CLUSTER_WIDE,
}


class KafkaKey(NamedTuple):
    """One line of the table."""

    scope: str
    name: str
    kind: str
    default: str
    bounds: str
    update: str


TABLE = [
    KafkaKey(*line.split("\t"))
    for line in (Path(__file__).parent / "kafka_4_3_keys.tsv").read_text().splitlines()
    if not line.startswith("#")
]


def ours(row: KafkaKey) -> tuple[Key, str | None]:
    if row.scope == "broker":
        return key_of(row.name), default_of(row.name)
    field, key = topic_keys()[row.name]
    return key, text_of(getattr(TopicSettings(), field))


def bounds_of(text: str) -> tuple[float | None, float | None]:
    found = re.match(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]", text)
    if found is None:
        return None, None
    return float(found[1]), None if found[2] is None else float(found[2])


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.scope}:{row.name}")
def test_a_key_is_as_in_kafka_unless_there_is_a_reason(row: KafkaKey) -> None:
    key, default = ours(row)
    assert key.kind.name == row.kind
    assert key.doc
    told = None if row.default in ("<null>", "<required>") else row.default
    assert default == OUR_DEFAULTS.get(row.name, told)
    if row.name not in OUR_BOUNDS:
        assert (key.at_least, key.at_most) == bounds_of(row.bounds)
    if row.scope == "broker":
        assert key.update == OUR_UPDATES.get(row.name, UPDATES[row.update])
