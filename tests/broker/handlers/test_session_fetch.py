"""Incremental fetch sessions of consumers (KIP-227), as a client sees them."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.record.batch import decode_records
from sparklog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.groups import started
from tests.broker.world import FETCH_BY_NAME, PRODUCE_BY_NAME, World, produce

FETCH_BY_ID = 13
TOLD_IN_FULL = {0: [], 1: [], 2: []}


class Reader:
    """A consumer of topic `t` with three partitions, in its session."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connection = world.node.connect()
        self.session = (0, 0)

    def request(
        self,
        offsets: dict[int, int],
        *,
        forget: tuple[int, ...] = (),
        max_wait_ms: int = 0,
        session: tuple[int, int] | None = None,
        max_bytes: int = 1 << 20,
    ) -> FetchRequest:
        session_id, epoch = self.session if session is None else session
        parts = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
            for index, offset in offsets.items()
        ]
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic="t", partitions=parts)] if parts else [],
            forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))] if forget else [],
        )

    def ask(self, request: FetchRequest, version: int = FETCH_BY_NAME) -> FetchResponse:
        answer = self.world.ask(self.connection, request, version, FetchResponse)
        assert isinstance(answer, FetchResponse)
        return answer

    def fetch(
        self, offsets: dict[int, int], *, forget: tuple[int, ...] = (), max_bytes: int = 1 << 20
    ) -> dict[int, list[bytes]]:
        """Fetch in the session; returns the values in the partitions that the response names."""
        answer = self.ask(self.request(offsets, forget=forget, max_bytes=max_bytes))
        assert answer.error_code == 0
        self.session = (answer.session_id, self.session[1] + 1)
        return values_of(answer)

    def write(self, partition: int, value: bytes = b"value") -> None:
        write(self.world, partition, value)


def write(world: World, partition: int, value: bytes) -> None:
    client = world.node.connect()
    world.ask(client, produce("t", world.batch(value), partition=partition), PRODUCE_BY_NAME, ProduceResponse)


def parts_of(answer: FetchResponse) -> list[PartitionData]:
    return [part for topic in answer.responses for part in topic.partitions]


def values_of(answer: FetchResponse) -> dict[int, list[bytes]]:
    return {
        part.partition_index: [record.value or b"" for record in decode_records(part.records or b"")]
        for part in parts_of(answer)
    }


@pytest.fixture
def reader() -> Reader:
    return Reader(started())


def test_a_full_fetch_begins_a_session_and_the_next_says_only_what_is_new(reader: Reader) -> None:
    assert reader.fetch({0: 0, 1: 0, 2: 0}) == TOLD_IN_FULL
    assert reader.session[0] > 0
    assert reader.fetch({}) == {}
    reader.write(1)
    assert reader.fetch({}) == {1: [b"value"]}
    assert reader.fetch({1: 1}) == {}


def test_a_partition_is_forgotten_and_another_is_added(reader: Reader) -> None:
    reader.fetch({0: 0, 1: 0})
    reader.write(0)
    reader.write(2)
    assert reader.fetch({2: 0}, forget=(0,)) == {2: [b"value"]}


def test_a_session_without_partitions_ends(reader: Reader) -> None:
    reader.fetch({0: 0})
    answer = reader.ask(reader.request({}, forget=(0,), max_wait_ms=60_000))
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert reader.ask(reader.request({0: 0})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_with_the_id_of_a_session_ends_it(reader: Reader) -> None:
    reader.fetch({0: 0})
    session_id, _ = reader.session
    answer = reader.ask(reader.request({}, session=(session_id, -1), max_wait_ms=60_000))
    assert (answer.error_code, answer.session_id) == (0, 0)
    lost = reader.ask(reader.request({}, session=(session_id, 1)))
    assert (lost.error_code, lost.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_a_request_of_another_epoch_is_refused_and_changes_nothing(reader: Reader) -> None:
    reader.fetch({0: 0})
    session_id, _ = reader.session
    for epoch in (2, 7, -2):
        answer = reader.ask(reader.request({1: 0}, session=(session_id, epoch)))
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    reader.write(1)
    assert reader.fetch({}) == {}


def test_a_session_by_name_is_not_resumed_by_topic_id(reader: Reader) -> None:
    reader.fetch({0: 0})
    answer = reader.ask(reader.request({}), version=FETCH_BY_ID)
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_by_topic_id(reader: Reader) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    told = reader.world.ask(reader.connection, asked, 12, MetadataResponse)
    assert isinstance(told, MetadataResponse)
    request = reader.request({0: 0, 1: 0})
    request.topics[0].topic_id = told.topics[0].topic_id
    reader.session = (reader.ask(request, FETCH_BY_ID).session_id, 1)
    reader.write(1)
    answer = reader.ask(reader.request({}), FETCH_BY_ID)
    assert [topic.topic_id for topic in answer.responses] == [told.topics[0].topic_id]
    assert values_of(answer) == {1: [b"value"]}


def test_a_fetch_of_a_session_waits_for_records_of_any_of_its_partitions(reader: Reader) -> None:
    reader.fetch({0: 0, 1: 0, 2: 0})
    reader.connection.replies.clear()
    reader.connection.send(reader.request({}, max_wait_ms=60_000), FETCH_BY_NAME, FetchResponse)
    reader.world.settle()
    assert not reader.connection.replies
    reader.write(2)
    (answer,) = reader.connection.replies
    assert isinstance(answer, FetchResponse)
    assert values_of(answer) == {2: [b"value"]}


def test_when_the_wait_is_over_the_response_has_no_partitions(reader: Reader) -> None:
    reader.fetch({0: 0, 1: 0, 2: 0})
    answer = reader.ask(reader.request({}, max_wait_ms=500))
    assert (answer.error_code, answer.session_id, answer.responses) == (0, reader.session[0], [])


def test_a_parked_fetch_of_which_the_session_has_moved_on_is_refused(reader: Reader) -> None:
    reader.fetch({0: 0})
    session_id, _ = reader.session
    other = reader.world.node.connect()
    reader.connection.replies.clear()
    reader.connection.send(reader.request({}, max_wait_ms=60_000), FETCH_BY_NAME, FetchResponse)
    reader.world.ask(
        other, reader.request({}, forget=(0,), session=(session_id, 2)), FETCH_BY_NAME, FetchResponse
    )
    reader.write(0)
    (answer,) = reader.connection.replies
    assert isinstance(answer, FetchResponse)
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_fetch_that_is_abandoned_begins_no_session() -> None:
    reader = Reader(started(**{"max.incremental.fetch.session.cache.slots": "1"}))
    abandoned = reader.world.node.connect()
    abandoned.send(reader.request({0: 0}, max_wait_ms=60_000), FETCH_BY_NAME, FetchResponse)
    reader.world.node.disconnect(abandoned)
    reader.write(0)
    assert reader.ask(reader.request({0: 0})).session_id > 0
    assert reader.ask(reader.request({0: 0})).session_id == 0


def test_an_error_is_told_each_time_and_its_end_too(reader: Reader) -> None:
    reader.write(0)
    reader.fetch({0: 1, 1: 0})
    for _ in range(2):
        answer = reader.ask(reader.request({0: 9}))
        reader.session = (reader.session[0], reader.session[1] + 1)
        assert [(part.partition_index, part.error_code) for part in parts_of(answer)] == [
            (0, ErrorCode.OFFSET_OUT_OF_RANGE)
        ]
    assert reader.fetch({0: 1}) == {0: []}
    assert reader.fetch({}) == {}


def test_no_partition_starves_when_a_response_has_room_for_one(reader: Reader) -> None:
    positions = {0: 0, 1: 0, 2: 0}
    changed: dict[int, int] = {}
    reader.fetch(positions)
    for index in positions:
        for _ in range(2):
            reader.write(index)
    read = []
    for _ in range(6):
        told = reader.fetch(changed, max_bytes=1)
        (index,) = [index for index, values in told.items() if values]
        read.append(index)
        positions[index] += 1
        changed = {index: positions[index]}
    assert read == [0, 1, 2, 0, 1, 2]


def test_without_slots_every_fetch_is_answered_without_a_session() -> None:
    reader = Reader(started(**{"max.incremental.fetch.session.cache.slots": "0"}))
    for _ in range(2):
        answer = reader.ask(reader.request({0: 0, 1: 0, 2: 0}))
        assert (answer.session_id, values_of(answer)) == (0, TOLD_IN_FULL)


def test_a_fetch_of_no_partitions_is_answered_at_once(reader: Reader) -> None:
    connection = reader.world.node.connect()
    connection.send(reader.request({}, session=(0, -1), max_wait_ms=60_000), FETCH_BY_NAME, FetchResponse)
    assert len(connection.replies) == 1
