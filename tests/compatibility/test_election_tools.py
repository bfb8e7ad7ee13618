"""Kafka's leader election tool and its description of eligible leader replicas, on a cluster of three nodes
of which one hangs.
"""

import os
import re
import signal
from collections.abc import Iterator

import pytest

import sparklog
from sparklog import Admin
from sparklog.local_broker import EmbeddedBroker
from tests.compatibility import kafka_tools as tools
from tests.compatibility.kafka_tools import all_that_is_said, kafka_tool
from tests.daemon.broker_process import wait_until

pytestmark = pytest.mark.compat

ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded(nodes=3, broker_session_timeout_ms=3000) as cluster:
        yield cluster


def at(cluster: EmbeddedBroker) -> tuple[str, str]:
    """The address of a broker that does not hang."""
    return "--bootstrap-server", cluster.bootstrap_servers.split(",")[0]


def rows(cluster: EmbeddedBroker) -> dict[str, tuple[str, ...]]:
    """(leader, replicas, ISR, ELR, last known leader) by topic, each of one partition."""
    told = kafka_tool(tools.TOPICS, *at(cluster), "--describe")
    field = r"([\w,]*)"
    pattern = (
        rf"Topic: (\w+)\tPartition: 0\tLeader: {field}\tReplicas: {field}\t"
        rf"Isr: {field}\tElr: {field}\tLastKnownElr: {field}"
    )
    return {topic: tuple(columns) for topic, *columns in re.findall(pattern, told)}


def create(cluster: EmbeddedBroker, topic: str, replicas: str, min_isr: int) -> None:
    kafka_tool(
        tools.TOPICS,
        *(*at(cluster), "--create", "--topic", topic),
        *("--replica-assignment", replicas.replace(",", ":")),
        *("--config", f"min.insync.replicas={min_isr}"),
    )


def elect(cluster: EmbeddedBroker, kind: str, *topics: str) -> str:
    named = ("--topic", topics[0], "--partition", "0") if topics else ("--all-topic-partitions",)
    return all_that_is_said(ELECTION, *at(cluster), "--election-type", kind, *named)


def is_led(cluster: EmbeddedBroker, topic: str, leader: int | None) -> bool:
    with Admin(bootstrap_servers=at(cluster)[1]) as admin:
        (partition,) = admin.describe_topics([topic])[topic].partitions
        return partition.leader == leader


def test_a_hanging_broker_stays_eligible_and_is_elected_again(cluster: EmbeddedBroker) -> None:
    create(cluster, "lone", "3", 1)
    create(cluster, "pair", "3,2", 2)
    create(cluster, "three", "3,1,2", 2)
    assert rows(cluster)["three"] == ("3", "3,1,2", "3,1,2", "", "")
    assert "Valid replica already elected for partitions" in elect(cluster, "preferred", "pair")
    assert "Valid replica already elected for partitions" in elect(cluster, "unclean", "pair")
    assert "UnknownTopicOrPartitionException" in elect(cluster, "preferred", "missing")
    os.kill(cluster.pids[2], signal.SIGSTOP)
    try:
        wait_until(lambda: is_led(cluster, "pair", 2))
        found = rows(cluster)
        assert found["lone"] == ("none", "3", "", "3", "3")
        assert found["pair"] == ("2", "3,2", "2", "3", "")
        assert found["three"][3:] == ("", "")
        assert "PreferredLeaderNotAvailableException" in elect(cluster, "preferred", "pair")
        assert "PreferredLeaderNotAvailableException" in elect(cluster, "preferred", "lone")
        assert "EligibleLeadersNotAvailableException" in elect(cluster, "unclean", "lone")
    finally:
        os.kill(cluster.pids[2], signal.SIGCONT)
    wait_until(lambda: is_led(cluster, "lone", 3))
    wait_until(lambda: rows(cluster)["three"][2].count(",") == 2 and rows(cluster)["pair"][2].count(",") == 1)
    told = elect(cluster, "preferred")
    assert re.search(r"Successfully completed leader election \(PREFERRED\) for partitions .*pair-0", told)
    assert {leader for leader, *_ in rows(cluster).values()} == {"3"}
