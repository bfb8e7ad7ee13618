"""Every record of a producer that is closed, or interrupted in the middle of a request, has an end."""

import os
import selectors
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.client.clock import now_us
from sparklog.client.failures import ClientClosed
from sparklog.client.producer.producer import Producer
from sparklog.client.transport.network import Network
from sparklog.record.batch import BatchBuilder
from tests.client.wire import ScriptedBroker, settings

PATIENCE_S = 20


def test_a_producer_that_is_closed_during_a_send_takes_no_record(broker: ScriptedBroker) -> None:
    def serialize(value: object) -> bytes:
        if value == "last":
            producer.close(0)
        return b""

    producer = Producer(bootstrap_servers=broker.address, value_serializer=serialize, linger_ms=0)
    producer.send("t", "first").result(PATIENCE_S)
    with pytest.raises(ClientClosed):
        producer.send("t", "last")


def test_a_close_ends_each_wait_for_memory(broker: ScriptedBroker) -> None:
    heard = threading.Semaphore(0)

    def serialize(_: object) -> bytes:
        heard.release()
        return bytes(100)

    producer = Producer(
        bootstrap_servers=broker.address,
        buffer_memory=200,
        max_request_size=200,
        max_block_ms=60_000,
        value_serializer=serialize,
    )
    broker.handlers["Produce"] = lambda _: b""
    producer.send("t")
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(producer.send, "t") for _ in range(3)]
        for _ in range(4):
            assert heard.acquire(timeout=PATIENCE_S)
        producer.close(0)
        assert [type(one.exception(PATIENCE_S)) for one in waiting] == [ClientClosed] * 3


# The thread that builds the batch is the one that is interrupted: on a busy machine, that of the producer.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("linger_ms", [0, 5])
def test_an_interrupted_request_ends_every_record(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, linger_ms: int
) -> None:
    producer = Producer(bootstrap_servers=broker.address, linger_ms=linger_ms)
    producer.partitions_for("t")
    told: list[object] = []
    is_told = threading.Event()

    def tell(_: object, error: object) -> None:
        told.append(error)
        is_told.set()

    def interrupt(*_: object, **__: object) -> bytearray:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(BatchBuilder, "build", interrupt)
        with pytest.raises((KeyboardInterrupt, ClientClosed)):
            producer.send("t", b"a", on_delivery=tell).result(PATIENCE_S)
    assert is_told.wait(PATIENCE_S)
    assert [type(error) for error in told] == [ClientClosed]
    with pytest.raises(ClientClosed):
        producer.send("t", b"b")
    producer.close()


def test_a_network_closes_after_an_interrupted_connect(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    network = Network(settings(bootstrap_servers=broker.address))
    monkeypatch.setattr(selectors.DefaultSelector, "register", interrupt)
    with pytest.raises(KeyboardInterrupt):
        network.poll(now_us())
    network.close()


def test_a_producer_may_be_closed_by_two_threads(broker: ScriptedBroker) -> None:
    producer = Producer(bootstrap_servers=broker.address)
    producer.send("t", b"a")
    with ThreadPoolExecutor(4) as pool:
        for closing in [pool.submit(producer.close) for _ in range(4)]:
            closing.result(PATIENCE_S)


def test_a_child_process_is_refused_though_a_thread_held_the_lock_at_the_fork(broker: ScriptedBroker) -> None:
    with Producer(bootstrap_servers=broker.address) as producer:
        with producer._lock:
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(PATIENCE_S)
                try:
                    producer.flush()
                except ClientClosed:
                    os._exit(0)
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
