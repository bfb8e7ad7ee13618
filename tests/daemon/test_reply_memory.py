"""Replies that clients do not read: the broker closes them, and goes on serving those that do."""

import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog import Admin
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.daemon.broker_process import BrokerProcess, broker, receive_until_closed, wait_until

TOPICS = 200
NAME = "x" * 240
LIMITED = ["--set", "sparklog.reply.memory.max=1048576", "--set", "socket.send.buffer.bytes=4096"]


def metadata_frame(correlation_id: int) -> bytes:
    (frame,) = encode_request(MetadataRequest(topics=None), 9, correlation_id, "t")
    assert isinstance(frame, bytes)
    return frame


def connected(process_address: tuple[str, int]) -> socket.socket:
    """A connection of which the systems on both sides buffer little."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(process_address)
    return client


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[tuple[BrokerProcess, tuple[str, int]]]:
    with broker(tmp_path / "data", *LIMITED) as process:
        address = process.address()
        with Admin(bootstrap_servers="{}:{}".format(*address)) as admin:
            admin.create_topics({f"{NAME}-{index}": 1 for index in range(TOPICS)})
            wait_until(lambda: len(admin.list_topics()) == TOPICS)
        yield process, address


def topics_answered(client: socket.socket) -> int:
    length = int.from_bytes(receive_until_closed(client, at_most=4), "big")
    _, answer = decode_reply(MetadataResponse, 9, memoryview(receive_until_closed(client, at_most=length)))
    assert isinstance(answer, MetadataResponse)
    return len(answer.topics)


def test_clients_that_read_nothing_are_closed_and_one_that_reads_is_answered(
    limited: tuple[BrokerProcess, tuple[str, int]],
) -> None:
    process, address = limited
    with contextlib.ExitStack() as open_until_then:
        silent = [open_until_then.enter_context(connected(address)) for _ in range(40)]
        for client in silent:
            client.sendall(metadata_frame(1) * 100)
        with connected(address) as honest:
            for number in range(5):
                honest.sendall(metadata_frame(number))
                assert topics_answered(honest) == TOPICS
        _, _, err = process.end(signal.SIGTERM)
    assert 20 <= err.count("has not read") <= 40


def test_a_client_that_sends_much_before_it_reads_is_answered_in_full(
    limited: tuple[BrokerProcess, tuple[str, int]],
) -> None:
    process, address = limited
    with connected(address) as client:
        client.sendall(metadata_frame(7) * 60)
        assert [topics_answered(client) for _ in range(60)] == [TOPICS] * 60
    _, _, err = process.end(signal.SIGTERM)
    assert "session-closed" not in err
