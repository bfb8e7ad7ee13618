"""Batches that lie, and bombs: a real Kafka and ours give the same error, and store the same bytes."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from sparklog.errors import ErrorCode
from sparklog.local_broker import embedded
from sparklog.record.compression import Codec
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.world import fetch, produce, produced
from tests.compatibility.kafka_broker import RealKafka
from tests.hostile.conftest import MIB, Client
from tests.hostile.test_batches import (
    LIES,
    OF_ZEROS,
    STREAMS,
    UNUSUAL,
    a_topic,
    bomb_of_one_record,
    with_records,
)

pytestmark = pytest.mark.compat

BOMB_BYTES = 3 * MIB
"""Larger ones meet `sparklog.decompress.ratio.max`."""
_NEW_TOPIC = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_FAILED = ErrorCode.UNKNOWN_SERVER_ERROR
_REFUSED = ErrorCode.INVALID_RECORD
DIFFERENT = {
    "magic 3": (ErrorCode.CORRUPT_MESSAGE, _REFUSED),
    "magic -1": (ErrorCode.CORRUPT_MESSAGE, _REFUSED),
    "bytes behind the batch": (ErrorCode.NONE, _REFUSED),
    "a record with a false offset": (ErrorCode.NONE, _REFUSED),
    "the time of the broker": (ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP),
    "a first time of -5": (ErrorCode.NONE, ErrorCode.NONE),
}
"""Kafka's error and ours, where ours is stricter: Kafka drops the bytes and the attribute, and stores the
offset. Of records before -1 ms, Kafka stores -1 as the last time, ours their own. Where Kafka's code fails by
an exception, ours refuses the batch.
"""
_EPOCH = slice(12, 16)


class Answer(NamedTuple):
    """The error of a batch, its base offset, and what is stored, without the leader epoch."""

    code: int
    offset: int
    stored: str


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    """A connection to Kafka, and one to ours."""
    kafka = RealKafka(tmp_path_factory.mktemp("kafka"))
    with kafka.running(), embedded() as ours:
        found = [one.bootstrap_servers.rpartition(":") for one in (kafka, ours)]
        first, second = (Client((host, int(port))) for host, _, port in found)
        with first, second:
            yield first, second


def answer(client: Client, topic: str, content: bytes) -> Answer:
    request = produce(topic, content, acks=-1, timeout_ms=10_000)
    code, offset = produced(client.ask(request, 9, ProduceResponse))
    while code in _NEW_TOPIC:
        code, offset = produced(client.ask(request, 9, ProduceResponse))
    stored = bytearray()
    while code == ErrorCode.NONE and not stored:
        told = client.ask(fetch(topic, 0, max_bytes=16 * MIB), 12, FetchResponse)
        assert isinstance(told, FetchResponse)
        stored = bytearray(told.responses[0].partitions[0].records or b"")
    if stored:
        stored[_EPOCH] = struct.pack(">i", 0)
    return Answer(code, offset, stored[:200].hex() + f" of {len(stored)}")


def test_each_batch_is_answered_and_stored_as_kafka_does(clients: tuple[Client, Client]) -> None:
    batches = {name: make() for name, make in (LIES | UNUSUAL).items()}
    batches |= {name: with_records(make(), codec) for name, (codec, make) in STREAMS.items()}
    different = {}
    for name, content in batches.items():
        kafkas, own = (answer(client, a_topic(client), content) for client in clients)
        is_refused = kafkas.code == _FAILED and own.code in (_REFUSED, ErrorCode.MESSAGE_TOO_LARGE)
        if kafkas != own and not is_refused:
            different[name] = (kafkas, own)
    codes = {name: (kafkas.code, own.code) for name, (kafkas, own) in different.items()}
    assert codes == DIFFERENT, different


@pytest.mark.parametrize("codec", OF_ZEROS, ids=lambda one: one.name)
def test_a_bomb_of_one_valid_record_is_answered_as_kafka_does(
    clients: tuple[Client, Client], codec: Codec
) -> None:
    bomb = bomb_of_one_record(codec, BOMB_BYTES)
    kafkas, own = (
        answer(client, a_topic(client, **{"max.message.bytes": str(8 * MIB)}), bomb) for client in clients
    )
    assert kafkas == own
    assert kafkas.code == 0
