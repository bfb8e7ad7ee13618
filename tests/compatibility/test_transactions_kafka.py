"""Tests that need a real Kafka broker: both transaction versions, a change between them, a kill, and
transactions that hang.
"""

import time
from pathlib import Path

import confluent_kafka
import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.clock import now_us
from sparklog.client.producer.producer import Producer
from sparklog.client.producer.writer import BatchWriter
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.network import Network, wait_for_topic
from sparklog.kernels import scan
from sparklog.local_broker import embedded
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import build_batch
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.kafka_broker import RealKafka
from tests.compatibility.test_groups_tools import commit, committed_of, place, write
from tests.compatibility.test_transactions_own import read

pytestmark = [pytest.mark.compat, pytest.mark.long]


def at_version(kafka: RealKafka, level: int) -> None:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        now = admin.describe_features()["transaction.version"].finalized_level
        if now != level:
            admin.update_features(
                {"transaction.version": level}, upgrade_type="upgrade" if level > now else "safe-downgrade"
            )


def writes(one: Producer, topic: str, *names: str) -> None:
    """A transaction for each name; those that begin with `x` are aborted."""
    for name in names:
        one.begin()
        one.send(topic, name)
        one.flush()
        one.abort() if name.startswith("x") else one.commit()


def test_transactions_of_every_version_and_across_a_change_of_it(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path)
    with kafka.running():
        live = LiveBroker(kafka.bootstrap_servers, kafka.data_dir)
        topic = live.create("versions")
        at_version(kafka, 1)
        with Producer(
            bootstrap_servers=kafka.bootstrap_servers, transactional_id="v", connections_max_idle_ms=1
        ) as one:
            one.init()
            writes(one, topic, "a", "xb", "c")
            at_version(kafka, 2)
            writes(one, topic, "d", "xe", "f")
        with Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="v") as one:
            one.init()
            writes(one, topic, "g", "xh", "i")
        assert read(live, topic) == ["a", "c", "d", "f", "g", "i"]


def test_a_producer_goes_on_with_its_transaction_after_the_broker_was_killed(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path)
    quick = {"retry_backoff_ms": 50, "reconnect_backoff_max_ms": 200}
    with Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="k", **quick) as one:  # type: ignore[arg-type]
        with kafka.running(is_killed=True):
            live = LiveBroker(kafka.bootstrap_servers, kafka.data_dir)
            topic = live.create("killed")
            one.init()
            writes(one, topic, "a", "xb")
            one.begin()
            one.send(topic, "c").result(PATIENCE_S)
        with kafka.running():
            one.send(topic, "d")
            one.commit(1000 * PATIENCE_S)
            writes(one, topic, "xe", "f")
            assert read(live, topic) == ["a", "c", "d", "f"]


def test_a_transaction_that_no_coordinator_knows_is_found_and_ended(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path, {"transaction.partition.verification.enable": "false"})
    with kafka.running(), Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        live = LiveBroker(kafka.bootstrap_servers, kafka.data_dir)
        topic = live.create("hangs")
        at = TopicPartition(topic, 0)
        settings = ClientSettings.from_kafka(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "h"}
        )
        with BatchWriter(settings) as writer:
            writer.init()
            identity = writer.identity
        stray = build_batch([(None, b"stray", (), int(time.time() * 1000) - 3_600_000)])
        scan.stamp_producer(stray, identity.producer_id, identity.producer_epoch, 0, True)
        with Network(settings) as network:
            deadline = Micros(now_us() + int(PATIENCE_S * 1e6))
            wait_for_topic(network, topic, deadline)
            data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, stray)])]
            request = ProduceRequest("h", -1, 30_000, data)
            reply = network.call(
                request, ProduceResponse, node=network.cluster.leader(at), deadline=deadline, version_max=11
            )
            assert reply.responses[0].partition_responses[0].error_code == 0
        with Producer(bootstrap_servers=kafka.bootstrap_servers) as plain:
            plain.send(topic, "after").result(PATIENCE_S)
        assert read(live, topic, is_stable=True) == []
        (hanging,) = admin.find_hanging_transactions(topics=[topic])
        assert (hanging.partition, hanging.producer.transaction_start_offset) == (at, 0)
        held = hanging.producer
        admin.abort_transaction(
            at,
            producer_id=held.producer_id,
            producer_epoch=held.producer_epoch,
            coordinator_epoch=held.coordinator_epoch,
        )
        assert admin.find_hanging_transactions(topics=[topic]) == []
        assert read(live, topic) == ["after"]


def in_transaction(bootstrap_servers: str, name: str, offset: int) -> confluent_kafka.Producer:
    """A producer that has committed an offset of `t-0` for the group of its own name, in a transaction
    that is open.
    """
    one = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": 600_000}
    )
    one.init_transactions(PATIENCE_S)
    one.begin_transaction()
    group = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": name}
    ).consumer_group_metadata()
    one.send_offsets_to_transaction([confluent_kafka.TopicPartition("t", 0, offset)], group, PATIENCE_S)
    return one


def committed_by(bootstrap_servers: str, group: str) -> int:
    """What a consumer, which waits until it is decided, finds committed for `t-0`."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group, "isolation.level": "read_committed"}
    )
    try:
        (found,) = consumer.committed([confluent_kafka.TopicPartition("t", 0)], timeout=5)
    finally:
        consumer.close()
    return int(found.offset)


def test_we_go_on_with_the_transactions_of_offsets_that_a_real_kafka_has_begun(tmp_path: Path) -> None:
    kafka, data_dir = RealKafka(tmp_path), tmp_path / "ours"
    with kafka.running():
        write(kafka.bootstrap_servers, "t", 10)
        for name in ("kept", "dropped", "open"):
            commit(kafka.bootstrap_servers, name, "t", 2, 2)
        in_transaction(kafka.bootstrap_servers, "kept", 5).commit_transaction(PATIENCE_S)
        in_transaction(kafka.bootstrap_servers, "dropped", 6).abort_transaction(PATIENCE_S)
        left_open = in_transaction(kafka.bootstrap_servers, "open", 7)
    del left_open
    with embedded(data_dir=data_dir) as ours:
        write(ours.bootstrap_servers, "t", 10)
        commit(ours.bootstrap_servers, "unused", "t", 1, 1)
        confluent_kafka.Producer(
            {"bootstrap.servers": ours.bootstrap_servers, "transactional.id": "unused"}
        ).init_transactions(PATIENCE_S)
    for topic in ("__consumer_offsets", "__transaction_state"):
        place(kafka.data_dir, data_dir, topic)
    with embedded(data_dir=data_dir) as ours:
        servers = ours.bootstrap_servers
        # By an administrator, who asks by name: to a consumer, `t` is another topic now than the one that
        # offsets were committed of.
        assert [committed_of(servers, name) for name in ("kept", "dropped")] == [[5, 2], [2, 2]]
        with pytest.raises(confluent_kafka.KafkaException):  # not before it is decided
            committed_by(servers, "open")
        with Admin(bootstrap_servers=servers) as admin:
            told = admin.describe_transactions(["kept", "dropped", "open"])
            assert [told[name].state for name in ("kept", "dropped", "open")] == [
                "CompleteCommit",
                "CompleteAbort",
                "Ongoing",
            ]
            admin.fence_producers(["open"])
        assert committed_by(servers, "open") < 0
        assert committed_of(servers, "open") == [2, 2]
