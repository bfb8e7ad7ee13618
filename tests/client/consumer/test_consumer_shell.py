"""The consumer over real sockets, against a broker that follows a script."""

import pytest

from sparklog.client.consumer.consumer import Consumer, ConsumerRecord
from sparklog.client.failures import CorruptRecords, UnknownTopic
from sparklog.errors import ConnectionFailed
from sparklog.model import TopicPartition
from sparklog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.client.shell_log import T0, Log, fill
from tests.client.wire import TOPIC_ID, ScriptedBroker, metadata


def read_all(consumer: Consumer, count: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    for _ in range(100):
        found += [(record.offset, record.value) for record in consumer.poll(100, 3)]
        if len(found) >= count:
            break
    return found


def test_records_are_read_in_order_in_polls_of_bounded_size(broker: ScriptedBroker, log: Log) -> None:
    fill(log)
    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        assert read_all(consumer, 10) == [(n, b"%d" % n) for n in range(10)]
        assert consumer.position(T0) == 10
        assert consumer.poll(0) == []


def test_seeking_moves_in_both_directions_also_amid_a_batch(broker: ScriptedBroker, log: Log) -> None:
    fill(log)
    with Consumer(bootstrap_servers=broker.address) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 6)
        assert [record.offset for record in consumer.poll(1000, 1)] == [6]
        assert consumer.position(T0) == 7
        consumer.seek(T0, 2)
        assert read_all(consumer, 8) == [(n, b"%d" % n) for n in range(2, 10)]
        consumer.seek_to_beginning()
        assert consumer.position(T0) == 0
        consumer.seek_to_end()
        assert consumer.position(T0) == 10


def test_batches_come_as_they_are(broker: ScriptedBroker, log: Log) -> None:
    fill(log)
    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        (batches,) = consumer.poll_batches(1000)
        assert bytes(batches.records) == b"".join(log.batches)
        assert (batches.fetch_offset, batches.next_offset, batches.high_watermark) == (0, 10, 10)
        assert consumer.position(T0) == 10


def test_a_corrupt_batch_is_raised_with_partition_and_offset(broker: ScriptedBroker, log: Log) -> None:
    fill(log)
    log.batches[1] = log.batches[1][:-1] + b"\xff"
    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
        broker.handlers["Fetch"] = lambda _: FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=TOPIC_ID, partitions=[PartitionData(records=b"".join(log.batches))]
                )
            ]
        )
        consumer.assign([T0])
        assert [record.offset for record in consumer.poll(1000)] == [0, 1, 2, 3]
        with pytest.raises(CorruptRecords) as caught:
            consumer.poll(1000)
        assert (caught.value.topic_partition, caught.value.offset) == (T0, 4)


def test_deserializers_and_interceptors_have_their_say(broker: ScriptedBroker, log: Log) -> None:
    fill(log, 3)
    with Consumer(
        bootstrap_servers=broker.address,
        auto_offset_reset="earliest",
        value_deserializer=lambda value: int(value or b""),
        interceptors=[lambda records: [record for record in records if record.offset != 1]],
    ) as consumer:
        consumer.assign([T0])
        assert [record.value for record in consumer.poll(1000)] == [0, 2]


@pytest.mark.parametrize("refused", [3, 4, 5])
def test_records_before_one_that_a_deserializer_refuses_are_handed_out_first(
    broker: ScriptedBroker, log: Log, refused: int
) -> None:
    def refuse(value: bytes | None) -> bytes | None:
        if value == b"%d" % refused:
            raise ValueError("refused")
        return value

    fill(log, 8, per_batch=4)
    with Consumer(
        bootstrap_servers=broker.address, auto_offset_reset="earliest", value_deserializer=refuse
    ) as consumer:
        consumer.assign([T0])
        assert [record.offset for record in consumer.poll(1000)] == list(range(refused))
        for _ in range(2):
            with pytest.raises(ValueError, match="refused"):
                consumer.poll(1000)
        assert consumer.position(T0) == refused
        consumer.seek(T0, refused + 1)
        assert [record.offset for record in consumer.poll(1000)] == list(range(refused + 1, 8))


def test_records_of_a_poll_that_raises_come_again(broker: ScriptedBroker, log: Log) -> None:
    polls = 0

    def interrupt_first(records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        nonlocal polls
        polls += 1
        if polls == 1:
            raise KeyboardInterrupt
        return records

    fill(log, 8, per_batch=4)
    with Consumer(
        bootstrap_servers=broker.address, auto_offset_reset="earliest", interceptors=[interrupt_first]
    ) as consumer:
        consumer.assign([T0])
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(1000, 6)
        assert consumer.position(T0) == 0
        assert [record.offset for record in consumer.poll(1000)] == list(range(8))


def test_a_broker_whose_name_is_no_host_name_cannot_be_found() -> None:
    with (
        Consumer(bootstrap_servers="a..b:9092", default_api_timeout_ms=100) as consumer,
        pytest.raises(ConnectionFailed, match=r"cannot find a\.\.b"),
    ):
        consumer.topics()


def test_questions_about_offsets_and_topics(broker: ScriptedBroker, log: Log) -> None:
    fill(log)
    with Consumer(bootstrap_servers=broker.address) as consumer:
        assert consumer.topics() == ["t"]
        assert consumer.partitions_for("t") == [0]
        assert (consumer.beginning_offsets([T0]), consumer.end_offsets([T0])) == ({T0: 0}, {T0: 10})
        assert consumer.offsets_for_times({T0: 1 << 50}) == {T0: None}
        with pytest.raises(UnknownTopic):
            consumer.partitions_for("nowhere")


def test_a_connection_that_breaks_at_the_first_of_two_requests_is_opened_again(log: Log) -> None:
    fill(log)
    other = TopicPartition("t", 1)
    with ScriptedBroker() as broker:
        broker.handlers |= {
            "Metadata": lambda _: metadata({"t": [1, 1]}, nodes=[(1, broker.port)]),
            "Fetch": log.fetch,
            "ListOffsets": log.list_offsets,
        }
        with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
            consumer.assign([T0, other])
            consumer.seek(other, 0)
            consumer.pause([other])
            assert read_all(consumer, 10)
            consumer.pause([T0])
            consumer.poll(100)  # no fetch is in flight
            consumer.resume([T0])
            consumer.seek(T0, 0)
            consumer.seek_to_beginning([other])
            broker.reset_connections()
            assert read_all(consumer, 10) == [(n, b"%d" % n) for n in range(10)]
