"""Settings as clients and Kafka's own tool change and tell them, against our broker and, side by side,
against a real Kafka.
"""

import re
from collections.abc import Callable
from pathlib import Path

import confluent_kafka.admin as confluent
import pytest
from confluent_kafka import KafkaException
from kafka.admin import ConfigResource, KafkaAdminClient

from sparklog_server.loggers import LOGGERS
from tests.compatibility import kafka_tools as tools
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.kafka_broker import NODE_ID, RealKafka
from tests.compatibility.kafka_tools import kafka_tool

pytestmark = pytest.mark.compat

NODE = str(NODE_ID)


# -- clients


def test_confluents_admin_client_alters_and_describes(live: LiveBroker) -> None:
    topic = live.create("told")
    admin = confluent.AdminClient({"bootstrap.servers": live.bootstrap_servers})
    operations = confluent.AlterConfigOpType

    def alter(
        kind: confluent.ResourceType, name: str, *changes: tuple[str, confluent.AlterConfigOpType, str]
    ) -> None:
        entries = [
            confluent.ConfigEntry(key, value, incremental_operation=operation)
            for key, operation, value in changes
        ]
        resource = confluent.ConfigResource(kind, name, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(timeout=PATIENCE_S)

    def told(kind: confluent.ResourceType, name: str, key: str) -> tuple[str, str]:
        resource = confluent.ConfigResource(kind, name)
        entry = admin.describe_configs([resource])[resource].result(timeout=PATIENCE_S)[key]
        return entry.value, confluent.ConfigSource(entry.source).name

    alter(
        confluent.ResourceType.TOPIC,
        topic,
        ("retention.ms", operations.SET, "1000"),
        ("cleanup.policy", operations.APPEND, "compact"),
    )
    assert told(confluent.ResourceType.TOPIC, topic, "cleanup.policy") == (
        "delete,compact",
        "DYNAMIC_TOPIC_CONFIG",
    )
    alter(
        confluent.ResourceType.TOPIC,
        topic,
        ("cleanup.policy", operations.SUBTRACT, "delete"),
        ("retention.ms", operations.DELETE, ""),
    )
    assert told(confluent.ResourceType.TOPIC, topic, "cleanup.policy") == ("compact", "DYNAMIC_TOPIC_CONFIG")
    assert told(confluent.ResourceType.TOPIC, topic, "retention.ms") == ("604800000", "DEFAULT_CONFIG")
    alter(confluent.ResourceType.BROKER, NODE, ("log.cleaner.backoff.ms", operations.SET, "14000"))
    assert told(confluent.ResourceType.BROKER, NODE, "log.cleaner.backoff.ms") == (
        "14000",
        "DYNAMIC_BROKER_CONFIG",
    )
    alter(confluent.ResourceType.BROKER, NODE, ("log.cleaner.backoff.ms", operations.DELETE, ""))
    assert told(confluent.ResourceType.BROKER, NODE, "log.cleaner.backoff.ms") == ("15000", "DEFAULT_CONFIG")
    with pytest.raises(
        KafkaException, match=r"Unknown topic config name: retention\.m, did you mean retention\.ms\?"
    ):
        alter(confluent.ResourceType.TOPIC, topic, ("retention.m", operations.SET, "1"))


def test_kafka_pythons_admin_client_alters_and_describes(live: LiveBroker) -> None:
    topic = live.create("told")
    admin = KafkaAdminClient(bootstrap_servers=live.bootstrap_servers)

    def of(kind: str, name: str) -> dict[str, dict[str, str]]:
        described = admin.describe_configs([ConfigResource(kind, name)], include_synonyms=True)
        return dict(described[kind.lower()][name])

    try:
        for is_incremental, retention in ((True, "1000"), (False, "2000")):
            admin.alter_configs(
                [ConfigResource("TOPIC", topic, {"retention.ms": retention})], incremental=is_incremental
            )
            assert of("TOPIC", topic)["retention.ms"]["value"] == retention
        admin.alter_configs([ConfigResource("GROUP", "a-group", {"consumer.session.timeout.ms": "50000"})])
        assert of("GROUP", "a-group")["consumer.session.timeout.ms"]["value"] == "50000"
    finally:
        admin.close()


# -- Kafka's own tool

Configs = Callable[..., str]


def configs_of(bootstrap_servers: str) -> Configs:
    """`kafka-configs` against a cluster: its output, the lines of each answer in order."""
    return lambda *arguments: kafka_tool(tools.CONFIGS, "--bootstrap-server", bootstrap_servers, *arguments)


def test_kafka_configs_alters_and_describes_a_topic(live: LiveBroker) -> None:
    configs = configs_of(live.bootstrap_servers)
    topic = live.create("told")
    entity = ("--entity-type", "topics", "--entity-name", topic)
    altered = configs("--alter", *entity, "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]")
    assert altered == f"Completed updating config for topic {topic}.\n"
    assert configs("--describe", *entity) == (
        f"Dynamic configs for topic {topic} are:\n"
        "  cleanup.policy=compact,delete sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
        "  retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}\n"
    )


def test_kafka_configs_describes_and_alters_the_levels_of_our_loggers(live: LiveBroker) -> None:
    configs = configs_of(live.bootstrap_servers)
    entity = ("--entity-type", "broker-loggers", "--entity-name", NODE)

    def levels() -> dict[str, str]:
        lines = configs("--describe", *entity).splitlines()
        assert lines[0] == f"Dynamic configs for broker-logger {NODE} are:"
        rows = [re.fullmatch(r"  (\S+)=(\S+) sensitive=false synonyms=\{\}", line) for line in lines[1:]]
        return {row[1]: row[2] for row in rows if row is not None}

    assert levels() == dict.fromkeys(LOGGERS, "INFO")
    altered = configs("--alter", *entity, "--add-config", "sparklog.network=DEBUG,root=WARN")
    assert altered == f"Completed updating config for broker-logger {NODE}.\n"
    assert levels() == {**dict.fromkeys(LOGGERS, "WARN"), "sparklog.network": "DEBUG"}
    assert configs("--alter", *entity, "--delete-config", "sparklog.network").startswith("Completed")
    assert configs("--alter", *entity, "--add-config", "root=INFO").startswith("Completed")
    assert levels() == dict.fromkeys(LOGGERS, "INFO")


def test_kafka_configs_is_refused_a_level_or_a_logger_that_does_not_exist(live: LiveBroker) -> None:
    entity = ("--alter", "--entity-type", "broker-loggers", "--entity-name", NODE)
    for change, expected in (
        (("--add-config", "sparklog.network=LOUD"), "Cannot set the log level of sparklog.network to LOUD"),
        (("--add-config", "none=INFO"), "Invalid broker logger(s): none"),
        (("--delete-config", "root"), "Removing the log level of the root logger is not allowed"),
    ):
        with pytest.raises(AssertionError, match=re.escape(expected)):
            configs_of(live.bootstrap_servers)(*entity, *change)


STEPS: dict[str, list[tuple[str, ...]]] = {
    "topics": [
        (
            "--alter",
            "--entity-name",
            "told",
            "--add-config",
            "retention.ms=1000,cleanup.policy=[compact,delete],max.message.bytes=5000",
        ),
        ("--describe", "--entity-name", "told"),
        ("--describe", "--entity-name", "told", "--all"),
        ("--alter", "--entity-name", "told", "--delete-config", "retention.ms,cleanup.policy"),
        ("--describe", "--entity-name", "told"),
        ("--describe",),
    ],
    "brokers": [
        (
            "--alter",
            "--entity-default",
            "--add-config",
            "log.segment.bytes=2097152,log.cleaner.threads=2,num.io.threads=9,min.insync.replicas=2",
        ),
        (
            "--alter",
            "--entity-name",
            NODE,
            "--add-config",
            "log.segment.bytes=3145728,log.retention.ms=100000",
        ),
        ("--describe", "--entity-default"),
        ("--describe", "--entity-name", NODE),
        ("--describe", "--entity-name", NODE, "--all"),
        ("--describe",),
    ],
    "topics again": [
        ("--describe", "--entity-name", "told", "--all"),
    ],
    "brokers again": [
        ("--alter", "--entity-name", NODE, "--delete-config", "log.segment.bytes,log.retention.ms"),
        (
            "--alter",
            "--entity-default",
            "--delete-config",
            "log.segment.bytes,log.cleaner.threads,num.io.threads,min.insync.replicas",
        ),
        ("--describe", "--entity-name", NODE),
        ("--describe", "--entity-default"),
    ],
    "groups": [
        (
            "--alter",
            "--entity-name",
            "a-group",
            "--add-config",
            "consumer.session.timeout.ms=50000,share.isolation.level=read_committed",
        ),
        ("--describe", "--entity-name", "a-group"),
        ("--describe", "--entity-name", "a-group", "--all"),
        ("--describe",),
        (
            "--alter",
            "--entity-name",
            "a-group",
            "--delete-config",
            "consumer.session.timeout.ms,share.isolation.level",
        ),
        ("--describe", "--entity-name", "a-group"),
    ],
    "client-metrics": [
        (
            "--alter",
            "--entity-name",
            "m",
            "--add-config",
            "interval.ms=1000,metrics=[org.apache.,x],match=[client_id=a.*]",
        ),
        ("--describe", "--entity-name", "m"),
        ("--describe",),
        ("--alter", "--entity-name", "m", "--delete-config", "interval.ms,metrics,match"),
        ("--describe",),
    ],
}
# What differs because the two brokers are told different things, or because a broker of one laptop must be
# finite and closed. Kafka writes a default of min.insync.replicas for the cluster where it keeps eligible
# leader replicas: we do not, so neither may the Kafka compared.
OTHERWISE = re.compile(
    r"^  (node\.id|broker\.id|log\.dirs?|listeners|advertised\.listeners|controller\.listener\.names|controller\.quorum\.voters"  # noqa: E501
    r"|process\.roles|max\.connections|queued\.max\.request\.bytes"
    r"|(offsets\.topic|transaction\.state\.log)\.(replication\.factor|min\.isr)|group\.initial\.rebalance\.delay\.ms|sparklog\.[a-z.]+)="
)


def told(bootstrap_servers: str) -> list[str]:
    """Everything that the tool prints on the way, line by line."""
    admin = confluent.AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([confluent.NewTopic("told", 1, 1)])["told"].result(timeout=PATIENCE_S)
    configs = configs_of(bootstrap_servers)
    lines: list[str] = []
    for kind, steps in STEPS.items():
        for step in steps:
            lines.append(f"{kind}: {' '.join(step)}")
            printed = configs(step[0], "--entity-type", kind.removesuffix(" again"), *step[1:])
            lines += [line for line in printed.splitlines() if OTHERWISE.match(line) is None]
    return lines


@pytest.mark.long
@pytest.mark.timeout(600)  # sixty starts of a JVM
def test_kafka_configs_prints_of_us_what_it_prints_of_a_real_kafka(live: LiveBroker, tmp_path: Path) -> None:
    real = RealKafka(tmp_path, features={"eligible.leader.replicas.version": 0})
    with real.running():
        expected = told(real.bootstrap_servers)
    assert told(live.bootstrap_servers) == expected
