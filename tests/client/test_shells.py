"""The blocking shells against a broker that follows a script, over real sockets on loopback."""

import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.clock import now_us
from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.failures import (
    BrokerGone,
    BufferExhausted,
    ClientClosed,
    DeliveryFailed,
    OffsetOutOfRange,
    RecordTooLarge,
    UnknownTopic,
    WrongProtocol,
)
from sparklog.client.producer.producer import Producer, ProducerRecord, RecordMetadata
from sparklog.client.producer.writer import BatchWriter
from sparklog.client.transport import network as transport
from sparklog.client.transport.network import Network
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, RequestTimeout, SparklogError
from sparklog.model import Micros, NodeId
from sparklog.record.batch import build_batch
from sparklog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.schema import Message
from tests.client.shell_log import Log, fill, produced
from tests.client.wire import ScriptedBroker, settings, versions

# -- producer ------------------------------------------------------------------------------------------------


def test_records_arrive_in_order_with_offsets_and_callbacks(broker: ScriptedBroker, log: Log) -> None:
    told: list[int] = []
    with Producer(bootstrap_servers=broker.address, linger_ms=0) as producer:
        deliveries = [
            producer.send(
                "t",
                b"%d" % number,
                on_delivery=lambda metadata, _: told.append(metadata.offset if metadata else -1),
            )
            for number in range(50)
        ]
        assert [delivery.result(5).offset for delivery in deliveries] == list(range(50))
    assert log.values() == [b"%d" % number for number in range(50)]
    assert told == list(range(50))


def test_a_refused_batch_is_sent_again(broker: ScriptedBroker, log: Log) -> None:
    log.trouble = [lambda: produced(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    with Producer(bootstrap_servers=broker.address, retry_backoff_ms=1) as producer:
        assert producer.send("t", b"a").result(5).offset == 0
    assert log.values() == [b"a"]


def test_a_broken_connection_is_made_again_and_the_batch_with_it(broker: ScriptedBroker, log: Log) -> None:
    log.trouble = [lambda: None, lambda: b"\0\0\0\1x"]
    with Producer(bootstrap_servers=broker.address, retry_backoff_ms=1, reconnect_backoff_ms=1) as producer:
        assert producer.send("t", b"a").result(5).offset == 0
    assert log.values() == [b"a"]


def test_what_the_broker_refuses_for_good_is_told(broker: ScriptedBroker, log: Log) -> None:
    log.trouble = [lambda: produced(code=ErrorCode.MESSAGE_TOO_LARGE)]
    with Producer(bootstrap_servers=broker.address) as producer:
        refused = producer.send("t", b"a")
        with pytest.raises(RecordTooLarge, match="MESSAGE_TOO_LARGE"):
            refused.result(5)


def test_a_silent_broker_ends_in_a_delivery_failure(broker: ScriptedBroker) -> None:
    del broker.handlers["Produce"]
    with Producer(
        bootstrap_servers=broker.address, linger_ms=0, request_timeout_ms=50, delivery_timeout_ms=150
    ) as producer:
        error = producer.send("t", b"a").exception(5)
        assert isinstance(error, DeliveryFailed)


def test_a_full_buffer_blocks_for_max_block_ms_and_no_longer(broker: ScriptedBroker) -> None:
    del broker.handlers["Produce"]
    with Producer(
        bootstrap_servers=broker.address, buffer_memory=2000, max_block_ms=100, delivery_timeout_ms=40_000
    ) as producer:
        started = time.monotonic()
        fill_up = partial(deque, (producer.send("t", bytes(100)) for _ in range(100)), 0)
        with pytest.raises(BufferExhausted):
            fill_up()
        assert 0.1 <= time.monotonic() - started < 2
        producer.close(10)


def test_a_full_buffer_goes_on_when_the_broker_answers(broker: ScriptedBroker, log: Log) -> None:
    with Producer(bootstrap_servers=broker.address, buffer_memory=3000, batch_size=1000) as producer:
        for number in range(300):
            producer.send("t", b"%0100d" % number)
    assert log.values() == [b"%0100d" % number for number in range(300)]


def test_an_unknown_topic_is_waited_for_no_longer_than_max_block_ms(broker: ScriptedBroker) -> None:
    with (
        Producer(bootstrap_servers=broker.address, max_block_ms=100) as producer,
        pytest.raises(RequestTimeout, match="UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        producer.send("nowhere", b"a").result()


def test_a_record_too_large_is_refused_at_once(broker: ScriptedBroker) -> None:
    with (
        Producer(bootstrap_servers=broker.address, max_request_size=1000) as producer,
        pytest.raises(RecordTooLarge),
    ):
        producer.send("t", bytes(2000))


def test_closing_gives_up_what_cannot_be_delivered(broker: ScriptedBroker) -> None:
    del broker.handlers["Produce"]
    producer = Producer(bootstrap_servers=broker.address)
    delivery = producer.send("t", b"a")
    producer.close(50)
    assert isinstance(delivery.exception(0), ClientClosed)
    with pytest.raises(ClientClosed):
        producer.send("t", b"b")


def test_closing_ends_the_waits_of_all_threads(broker: ScriptedBroker) -> None:
    del broker.handlers["Produce"]
    producer = Producer(bootstrap_servers=broker.address)
    delivery = producer.send("t", b"a")
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(delivery.exception, 60) for _ in range(3)]
        producer.close(50)
        assert all(isinstance(one.result(60), ClientClosed) for one in waiting)


def test_a_record_that_has_lingered_leaves_though_another_thread_waits_for_the_one_before(
    broker: ScriptedBroker, log: Log
) -> None:
    first, second = threading.Event(), threading.Event()
    log.trouble = [first.set, second.set]  # which answers neither
    producer = Producer(bootstrap_servers=broker.address)
    delivery = producer.send("t", b"a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(delivery.exception, 60)
        assert first.wait(60)
        producer.send("t", b"b")
        assert second.wait(60)
        producer.close(0)
        assert isinstance(waiting.result(60), ClientClosed)


def test_answers_are_heard_though_nobody_sends_or_waits_any_more(broker: ScriptedBroker, log: Log) -> None:
    heard = threading.Event()
    with Producer(bootstrap_servers=broker.address, batch_size=500) as producer:
        last = [producer.send("t", b"%0100d" % number) for number in range(200)][-1]
        last.add_done_callback(lambda _: heard.set())
        assert heard.wait(60)


def test_flush_says_when_time_is_up(broker: ScriptedBroker) -> None:
    del broker.handlers["Produce"]
    producer = Producer(bootstrap_servers=broker.address)
    producer.send("t", b"a")
    with pytest.raises(RequestTimeout):
        producer.flush(50)
    producer.close(0)


def test_many_threads_may_send(broker: ScriptedBroker, log: Log) -> None:
    with (
        Producer(bootstrap_servers=broker.address, batch_size=500) as producer,
        ThreadPoolExecutor(4) as pool,
    ):
        list(pool.map(lambda who: [producer.send("t", b"%d-%03d" % (who, n)) for n in range(200)], range(4)))
        producer.flush()
    for who in range(4):
        mine = [value for value in log.values() if value is not None and value.startswith(b"%d-" % who)]
        assert mine == [b"%d-%03d" % (who, n) for n in range(200)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_can_be_read_back(broker: ScriptedBroker, log: Log, codec: str) -> None:
    with Producer(bootstrap_servers=broker.address, compression_type=codec) as producer:  # type: ignore[arg-type]
        for _ in range(20):
            producer.send("t", b"same", b"key", headers=[("h", b"1")])
    assert log.values() == [b"same"] * 20


class Marking:
    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.topic, f"[{record.value}]", record.key)

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: SparklogError | None) -> None:
        assert error is None
        assert metadata is not None
        self.acknowledged.append(metadata.offset)


def test_interceptors_serializers_and_partitioners_have_their_say(broker: ScriptedBroker, log: Log) -> None:
    marking = Marking()
    asked: list[object] = []

    def partition(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        asked.append((topic, key, value, count))
        return 0

    with Producer(
        bootstrap_servers=broker.address,
        key_serializer=lambda key: str(key).encode(),
        value_serializer=lambda value: str(value).upper().encode(),
        partitioner=partition,
        interceptors=[marking],
    ) as producer:
        producer.send("t", "a", 5)
    assert log.values() == [b"[A]"]
    assert asked == [("t", b"5", b"[A]", 1)]
    assert marking.acknowledged == [0]


# -- whole batches -------------------------------------------------------------------------------------------


def test_the_writer_returns_from_flush_when_every_batch_is_acknowledged(
    broker: ScriptedBroker, log: Log
) -> None:
    log.trouble = [lambda: None]
    with BatchWriter(
        settings(bootstrap_servers=broker.address, reconnect_backoff_ms=1, retry_backoff_ms=1)
    ) as writer:
        assert writer.partition_count("t") == 1
        for number in range(20):
            writer.add("t", 0, build_batch([(None, b"%d" % number, (), 0)]), 1)
        writer.flush()
    assert log.values() == [b"%d" % number for number in range(20)]


def test_the_writer_waits_while_too_much_is_on_the_way(broker: ScriptedBroker, log: Log) -> None:
    with BatchWriter(settings(bootstrap_servers=broker.address, buffer_memory=500)) as writer:
        for number in range(50):
            writer.add("t", 0, build_batch([(None, b"%0100d" % number, (), 0)]), 1)
            assert len(log.batches) >= number - 3
        writer.flush()
    assert len(log.batches) == 50


def test_the_writer_raises_what_was_refused(broker: ScriptedBroker, log: Log) -> None:
    log.trouble = [lambda: produced(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with BatchWriter(settings(bootstrap_servers=broker.address)) as writer:
        writer.add("t", 0, build_batch([(None, b"a", (), 0)]), 1)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            writer.flush()
        with pytest.raises(UnknownTopic), BatchWriter(settings(bootstrap_servers=broker.address)) as other:
            other.add("t", 5, build_batch([(None, b"a", (), 0)]), 1)


def test_a_range_is_read_batch_by_batch_and_ends_with_the_batch_that_holds_its_last_record(
    broker: ScriptedBroker, log: Log
) -> None:
    fill(log, 12)
    with RangeReader(settings(bootstrap_servers=broker.address)) as reader:
        views = [bytes(view) for view in reader.read("t", 0, 5, 8)]
        assert b"".join(views) == log.batches[1]
        views = [bytes(view) for view in reader.read("t", 0, 0, 12)]
        assert b"".join(views) == b"".join(log.batches)
        assert list(reader.read("t", 0, 3, 3)) == []


def test_a_range_that_is_gone_tells_where_the_log_starts(broker: ScriptedBroker, log: Log) -> None:
    fill(log)
    log.start = 4
    with (
        RangeReader(settings(bootstrap_servers=broker.address)) as reader,
        pytest.raises(OffsetOutOfRange) as caught,
    ):
        next(reader.read("t", 0, 0, 10))
    assert (caught.value.offset, caught.value.log_start_offset, caught.value.log_end_offset) == (0, 4, 10)


def test_a_range_beyond_the_end_is_waited_for_and_given_up(broker: ScriptedBroker, log: Log) -> None:
    fill(log)
    with (
        RangeReader(settings(bootstrap_servers=broker.address, default_api_timeout_ms=100)) as reader,
        pytest.raises(RequestTimeout),
    ):
        list(reader.read("t", 0, 10, 11))


def test_reading_a_range_survives_a_lost_connection(broker: ScriptedBroker, log: Log) -> None:
    fill(log)
    answers = iter([None, log.fetch, log.fetch])

    def fetch(request: Message) -> Message | None:
        answer = next(answers)
        return answer and answer(request)

    broker.handlers["Fetch"] = fetch
    with RangeReader(
        settings(bootstrap_servers=broker.address, reconnect_backoff_ms=1, retry_backoff_ms=1)
    ) as reader:
        assert b"".join(bytes(view) for view in reader.read("t", 0, 0, 10)) == b"".join(log.batches)


# -- administration and reaching -----------------------------------------------------------------------------


def test_topics_are_listed_and_described(broker: ScriptedBroker) -> None:
    broker.handlers["ApiVersions"] = lambda _: versions(DescribeTopicPartitions=(0, -1))
    with Admin(bootstrap_servers=broker.address) as admin:
        assert list(admin.list_topics()) == ["t"]
        assert admin.describe_topics(["t"])["t"].partitions[0].leader == 1
        with pytest.raises(UnknownTopic):
            admin.describe_topics(["nowhere"])


def test_the_second_bootstrap_address_serves_when_nobody_listens_at_the_first(broker: ScriptedBroker) -> None:
    with ScriptedBroker() as gone:
        dead = gone.address
    with Admin(bootstrap_servers=[dead, broker.address], reconnect_backoff_ms=1) as admin:
        assert list(admin.list_topics()) == ["t"]


def test_brokers_that_accept_and_say_nothing_do_not_hold_up_a_call(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_OPENING_US", 10_000)
    with ExitStack() as stack:
        mute = [stack.enter_context(ScriptedBroker()) for _ in range(8)]
        for one in mute:
            del one.handlers["ApiVersions"]
        addresses = [*(one.address for one in mute), broker.address]
        with Admin(bootstrap_servers=addresses, default_api_timeout_ms=5_000) as admin:
            assert list(admin.list_topics()) == ["t"]


def test_a_request_to_a_broker_that_left_the_cluster_is_not_waited_for(broker: ScriptedBroker) -> None:
    with Network(settings(bootstrap_servers=broker.address)) as network:
        deadline = Micros(now_us() + 10_000_000)
        while not network.cluster.answers:
            network.poll(deadline)
        with pytest.raises(BrokerGone, match="broker 7 is not in the cluster"):
            network.call(ListGroupsRequest(), ListGroupsResponse, node=NodeId(7), deadline=deadline)


def test_nobody_there_is_told_with_the_reason() -> None:
    with ScriptedBroker() as gone:
        dead = gone.address
    with (
        Admin(bootstrap_servers=dead, default_api_timeout_ms=100) as admin,
        pytest.raises(ConnectionFailed, match="refused"),
    ):
        admin.list_topics()


def test_a_listener_that_is_no_kafka_broker_is_told_as_such() -> None:
    with ScriptedBroker({"ApiVersions": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n"}) as web:
        admin = Admin(bootstrap_servers=web.address, default_api_timeout_ms=100)
        with pytest.raises(WrongProtocol, match="speaks HTTP"):
            admin.list_topics()
        admin.close()


def test_a_broker_that_never_answers_is_a_timeout() -> None:
    with ScriptedBroker() as mute:
        del mute.handlers["ApiVersions"]
        with (
            Admin(bootstrap_servers=mute.address, default_api_timeout_ms=100) as admin,
            pytest.raises(RequestTimeout),
        ):
            admin.list_topics()
