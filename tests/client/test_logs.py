"""What a client tells: lines of the logger `sparklog.client`, and the causes in its errors."""

import logging
import os
import pickle
import traceback
from collections.abc import Callable

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.failures import BufferExhausted, ClientClosed, DeliveryFailed
from sparklog.client.logs import AWAY_US, REPEAT_US, Reports
from sparklog.client.producer.async_producer import AsyncProducer
from sparklog.client.producer.producer import Producer
from sparklog.client.settings import ClientSettings
from sparklog.errors import ErrorCode, RequestTimeout, SettingsError
from sparklog.model import Micros, TopicPartition
from tests.client.shell_log import Log, produced
from tests.client.wire import ScriptedBroker

PATIENCE_S = 20
UNREACHABLE = "127.0.0.1:1"
NOW = Micros(5_000_000)


def later(wait_us: int) -> Micros:
    return Micros(NOW + wait_us)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, "sparklog.client")
    return lambda: [one.getMessage() for one in caplog.records if one.name == "sparklog.client"]


def test_a_line_that_repeats_is_held_back_and_counted(lines: Callable[[], list[str]]) -> None:
    reports = Reports("me")
    for wait_us in (0, 1, 2, REPEAT_US):
        reports.failed("b:1", "refused", later(wait_us), was_ready=False)
    reports.failed("b:2", "refused", NOW, was_ready=True)
    assert lines() == [
        "connection_failed broker=b:1 reason=refused client_id=me",
        "connection_failed broker=b:1 reason=refused held_back=2 client_id=me",
        "disconnected broker=b:2 reason=refused client_id=me",
    ]


def test_what_a_broker_says_is_one_line_and_does_not_act(lines: Callable[[], list[str]]) -> None:
    reports = Reports("me")
    reports.failed("b:1", "\x1b]0;owned\x07\nforged\u202e\u200b", NOW, was_ready=False)
    reports.rebalanced("assigned", "g\x9b2J", "t-0\u3164", NOW)
    assert lines() == [
        r"connection_failed broker=b:1 reason=\x1b]0;owned\x07 forged\u202e\u200b client_id=me",
        r"partitions_assigned group=g\x9b2J partitions=t-0\u3164 client_id=me",
    ]


def test_a_client_without_brokers_says_so_within_five_seconds_and_again(
    lines: Callable[[], list[str]],
) -> None:
    reports = Reports("me")
    assert reports.deadline() is None
    reports.connecting(NOW, has_others=False)
    assert reports.deadline() == later(AWAY_US) <= later(5_000_000)
    for wait_us in (0, AWAY_US - 1, AWAY_US, AWAY_US + 1, AWAY_US + REPEAT_US):
        reports.looked("refused", ("a:1", "b:2"), later(wait_us))
    assert lines() == [
        "brokers_unreachable for_s=4 bootstrap_servers=a:1,b:2 last=refused client_id=me",
        "brokers_unreachable for_s=14 bootstrap_servers=a:1,b:2 last=refused client_id=me",
    ]
    reports.connected("a:1", later(AWAY_US + REPEAT_US))
    assert reports.deadline() is None


def test_a_connection_beside_others_is_no_absence() -> None:
    reports = Reports("me")
    reports.connecting(NOW, has_others=True)
    assert reports.deadline() is None


def test_connects_and_disconnects_are_told(
    broker: ScriptedBroker, lines: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(bootstrap_servers=broker.address, client_id="me") as producer:
        producer.send("t", b"x").result(PATIENCE_S)
        assert f"connected broker={broker.address} client_id=me" in lines()
        broker.stop()
        with (
            Producer(bootstrap_servers=broker.address, max_block_ms=100) as other,
            pytest.raises(RequestTimeout),
        ):
            other.send("t", b"x").result()
        producer.close(0)
    told = [one for one in lines() if one.startswith("connection_failed")]
    assert f"broker={broker.address} reason=" in told[0]
    assert {one.levelname for one in caplog.records if one.getMessage().startswith("connection_failed")} == {
        "WARNING"
    }


def test_a_retry_is_told_with_its_reason(
    broker: ScriptedBroker, log: Log, lines: Callable[[], list[str]]
) -> None:
    log.trouble = [lambda: produced(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    with Producer(bootstrap_servers=broker.address, retry_backoff_ms=1) as producer:
        producer.send("t", b"x").result(PATIENCE_S)
    (told,) = [one for one in lines() if one.startswith("batch_retried")]
    assert "NOT_LEADER_OR_FOLLOWER" in told


def test_a_consumer_whose_broker_is_away_warns(lines: Callable[[], list[str]]) -> None:
    with Consumer(bootstrap_servers=UNREACHABLE) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.poll(100)
    assert any(one.startswith(f"connection_failed broker={UNREACHABLE}") for one in lines())


def test_a_send_without_a_broker_names_it_first() -> None:
    refused = pytest.raises(
        RequestTimeout, match=rf"^no broker answers \({UNREACHABLE}: .*\); no metadata of topic 't'"
    )
    with Producer(bootstrap_servers=UNREACHABLE, max_block_ms=100) as producer, refused:
        producer.send("t", b"x").result()


def test_full_memory_names_the_broker_that_is_away(broker: ScriptedBroker) -> None:
    producer = Producer(
        bootstrap_servers=broker.address, buffer_memory=300, max_request_size=300, max_block_ms=300
    )
    producer.send("t", b"x").result(PATIENCE_S)
    broker.stop()
    producer.send("t", bytes(150))
    with pytest.raises(BufferExhausted, match=f"{broker.address}.*; buffer_memory=300 was full"):
        producer.send("t", bytes(150))
    producer.close(0)


def test_a_record_that_is_given_up_names_the_broker_that_is_away(broker: ScriptedBroker) -> None:
    producer = Producer(
        bootstrap_servers=broker.address, request_timeout_ms=100, delivery_timeout_ms=300, linger_ms=0
    )
    producer.send("t", b"x").result(PATIENCE_S)
    broker.stop()
    error = producer.send("t", b"y").exception(PATIENCE_S)
    assert isinstance(error, DeliveryFailed)
    assert any(word in str(error) for word in (broker.address, "connection"))
    producer.close(0)


def test_a_pickled_client_is_refused_in_one_sentence(broker: ScriptedBroker) -> None:
    with (
        Producer(bootstrap_servers=broker.address) as producer,
        Consumer(bootstrap_servers=broker.address) as consumer,
        Admin(bootstrap_servers=broker.address) as admin,
    ):
        for client in (producer, consumer, admin, AsyncProducer(bootstrap_servers=broker.address)):
            with pytest.raises(TypeError, match="has connections and cannot be pickled: make one in each"):
                pickle.dumps(client)


def in_a_child(call: Callable[[], object]) -> bool:
    """Whether the call raises ClientClosed in a forked child, naming the cause."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            call()
        except ClientClosed as error:
            status = 0 if "belongs to the parent process" in str(error) else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_client_is_refused_in_one_sentence_and_its_parent_goes_on(broker: ScriptedBroker) -> None:
    with (
        Producer(bootstrap_servers=broker.address) as producer,
        Consumer(bootstrap_servers=broker.address, group_id="g") as consumer,
        Admin(bootstrap_servers=broker.address) as admin,
    ):
        consumer.assign([TopicPartition("t", 0)])
        assert in_a_child(lambda: producer.send("t", b"x"))
        assert in_a_child(lambda: consumer.poll(0))
        assert in_a_child(admin.list_topics)
        producer.send("t", b"x").result(PATIENCE_S)


def test_dotted_names_are_taken_everywhere_and_twice_is_an_error() -> None:
    dotted = {"bootstrap.servers": "a:1", "client.id": "me", "linger.ms": 7}
    assert ClientSettings.for_role("producer", dotted) == ClientSettings.for_role(
        "producer", {"bootstrap_servers": "a:1", "client_id": "me", "linger_ms": 7}
    )
    with pytest.raises(SettingsError, match="given twice"):
        ClientSettings.for_role("producer", {"linger.ms": 7, "linger_ms": 7})
    with pytest.raises(SettingsError, match="is not a setting of a consumer"):
        ClientSettings.for_role("consumer", {"linger.ms": 7})
    with pytest.raises(SettingsError, match=r"did you mean linger\.ms"):
        ClientSettings.for_role("producer", {"linger.m": 7})
