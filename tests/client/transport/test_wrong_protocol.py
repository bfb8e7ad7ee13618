"""A client at a port that does not speak Kafka's protocol."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sparklog import Admin, Consumer, Producer, TopicPartition, WrongProtocol

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
TLS = bytes([21, 3, 3, 0, 2, 2, 70])  # the alert of a listener that was sent plain text


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """A port that answers whatever it receives with these bytes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                with accepted:
                    accepted.recv(1 << 16)
                    accepted.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def describe(address: str) -> object:
    with Admin(bootstrap_servers=address) as admin:
        return admin.describe_cluster()


def consume(address: str) -> object:
    with Consumer(bootstrap_servers=address) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        return consumer.poll(30_000)


def produce(address: str) -> object:
    with Producer(bootstrap_servers=address) as producer:
        return producer.send("t", b"v").result()


@pytest.mark.parametrize("use", [describe, consume, produce])
@pytest.mark.parametrize(
    ("reply", "what"), [(HTTP, "it speaks HTTP"), (TLS, "it speaks TLS: set security.protocol")]
)
def test_a_port_of_another_protocol_is_named_as_such_at_the_first_reply(
    use: Callable[[str], object], reply: bytes, what: str
) -> None:
    with answering(reply) as address, pytest.raises(WrongProtocol, match=f"{address} .*{what}"):
        use(address)
