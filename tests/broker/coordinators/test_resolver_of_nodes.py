"""The resolver of the exactly-once sink over three brokers: transactions whose timeout has passed end as the
decision says, which the leader of the sink's partition has, though that broker was down at the timeout.
"""

import pytest

from sparklog.client.exactly_once.decisions import (
    PARTITION_COUNT,
    TOPIC,
    About,
    Decision,
    encode_decision,
    key_of,
    partition_of,
    sink_name,
    task_id,
)
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.errors import ErrorCode
from sparklog.model import NodeId, ProducerEpoch, ProducerId
from sparklog.record.batch import build_batch
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.coordinators.test_coordinators_of_nodes import Client, Producer, formed

SINK = sink_name("s")
_TIMEOUT_MS = 5_000
_READ_COMMITTED = 1
NONE = ErrorCode.NONE


def write_decision(client: Client, *committed: Producer) -> None:
    """Write the decision that commits these and names no other transaction."""
    named = tuple(
        ProducerIdentity(one.id, ProducerId(one.producer_id), ProducerEpoch(one.epoch)) for one in committed
    )
    value = encode_decision(Decision("s", "q", 0, "u", named))
    batch = build_batch([(key_of(SINK, About.DECISION), value, (), client.cluster.clock.now.wall_ms)])
    partition = partition_of(SINK, PARTITION_COUNT)
    data = [PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    answer = client.ask(client.leader(TOPIC, partition), request, 9, ProduceResponse)
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == NONE


def aborted(client: Client, partition: int) -> set[int]:
    """The producer ids of the aborted transactions of a partition of `t`."""
    asked = [FetchTopic(topic="t", partitions=[FetchPartition(partition, partition_max_bytes=1 << 20)])]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, isolation_level=_READ_COMMITTED, topics=asked
    )
    answer = client.ask(client.leader("t", partition), request, 12, FetchResponse)
    assert isinstance(answer, FetchResponse)
    part = answer.responses[0].partitions[0]
    assert part.error_code == NONE
    return {one.producer_id for one in part.aborted_transactions or ()}


@pytest.mark.parametrize("is_down", [False, True])
def test_transactions_of_a_sink_end_as_the_decision_on_another_broker_says(*, is_down: bool) -> None:
    cluster, client = formed()
    node = cluster.nodes[NodeId(1)]
    assert cluster.create(node, TOPIC, PARTITION_COUNT) == NONE
    cluster.run_until(lambda: all(TOPIC in quorum.image.topics_by_name for quorum in cluster.quorums))
    ours, stray = (
        Producer(client, task_id(SINK, 0, number, "aa"), node, timeout_ms=_TIMEOUT_MS) for number in (0, 1)
    )
    for partition in range(3):
        assert ours.produce("t", partition, b"ours") is NONE
        assert stray.produce("t", partition, b"stray") is NONE
    write_decision(client, ours)
    if is_down:
        decider = client.leader(TOPIC, partition_of(SINK, PARTITION_COUNT))
        others = [index for index in range(3) if client.leader("t", index) is not decider]
        assert others
        decider.kill()
        cluster.run(6 * _TIMEOUT_MS)
        assert [client.end_offset("t", index, _READ_COMMITTED) for index in others] == [0] * len(others)
        decider.start()
        cluster.run_until(lambda: cluster.is_ready)
    cluster.run(8 * _TIMEOUT_MS)
    for partition in range(3):
        assert aborted(client, partition) == {stray.producer_id}
        assert client.end_offset("t", partition, _READ_COMMITTED) == client.end_offset("t", partition, 0)
