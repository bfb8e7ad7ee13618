"""`__transaction_state` as Kafka's own tool reads it, after transactions of both versions."""

import json
import re

import confluent_kafka
import pytest

from sparklog.client.producer.producer import Producer
from sparklog_server.coordinator.placement import partition_for
from tests.compatibility import kafka_tools as tools
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.kafka_tools import kafka_tool
from tests.compatibility.test_kafka_tools import files_of

pytestmark = pytest.mark.compat


def test_dump_log_decodes_the_transactions_of_old_and_new_clients(live: LiveBroker) -> None:
    topic = live.create("in-the-transaction-log")
    old_id, new_id = f"{topic}-old", f"{topic}-new"
    old = confluent_kafka.Producer({"bootstrap.servers": live.bootstrap_servers, "transactional.id": old_id})
    old.init_transactions(PATIENCE_S)
    for end in (old.commit_transaction, old.abort_transaction):
        old.begin_transaction()
        old.produce(topic, b"v")
        old.flush(PATIENCE_S)
        end(PATIENCE_S)
    with Producer(bootstrap_servers=live.bootstrap_servers, transactional_id=new_id, linger_ms=0) as new:
        new.init()
        new.begin()
        new.send(topic, b"v")
        new.commit()

    told_old, told_new = _told(live, old_id), _told(live, new_id)
    # Empty, Ongoing, PrepareCommit, CompleteCommit, and the same with an abort; the last record follows the
    # answer to the client.
    assert [(state, epoch) for state, epoch, _ in told_old][:6] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (4, 0),
        (1, 0),
        (3, 0),
    ]
    assert [(state, epoch) for state, epoch, _ in told_new][:3] == [(0, 0), (1, 0), (2, 1)]
    assert {version for *_, version in told_old} == {0}
    assert {version for *_, version in told_new[1:]} == {2}


def _told(live: LiveBroker, transactional_id: str) -> list[tuple[int, int, int]]:
    """The (state, producer epoch, client's transaction version) of an id's records, as `kafka-dump-log`
    says them.
    """
    log = (
        files_of(live, f"__transaction_state-{partition_for(transactional_id, 50)}")
        / "00000000000000000000.log"
    )
    dumped = kafka_tool(tools.DUMP_LOG, "--deep-iteration", "--transaction-log-decoder", "--files", log)
    assert "isvalid: false" not in dumped
    assert "Could not decode" not in dumped
    payloads = re.findall(
        r'"transactionalId":"' + re.escape(transactional_id) + r'".* payload: (\{.*\})$', dumped, re.MULTILINE
    )
    values = [json.loads(payload)["data"] for payload in payloads]
    return [
        (one["transactionStatus"], one["producerEpoch"], one.get("clientTransactionVersion", 0))
        for one in values
    ]


def test_dump_log_decodes_offsets_that_were_committed_within_transactions(live: LiveBroker) -> None:
    topic = live.create("in-the-offsets")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": live.bootstrap_servers, "group.id": topic})
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": live.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions(PATIENCE_S)
    for offset, end in ((7, producer.commit_transaction), (9, producer.abort_transaction)):
        producer.begin_transaction()
        at = [confluent_kafka.TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), PATIENCE_S)
        end(PATIENCE_S)
    consumer.close()

    log = files_of(live, f"__consumer_offsets-{partition_for(topic, 50)}") / "00000000000000000000.log"
    dumped = kafka_tool(tools.DUMP_LOG, "--deep-iteration", "--offsets-decoder", "--files", log)
    assert "isvalid: false" not in dumped
    said = r'"group":"' + re.escape(topic) + r'".* payload: \{"version":"\d","data":\{"offset":(\d+),'
    assert re.findall(said, dumped) == ["7", "9"]
    assert re.findall(r"endTxnMarker: (COMMIT|ABORT)", dumped)[:2] == ["COMMIT", "ABORT"]
