"""InitProducerId 6 (KIP-939): spoken where the broker is told to, and there transactions that outlive
every timeout.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.broker.transactions import SETTINGS, Producer, describe
from tests.broker.world import World

NEWEST = 6


def started(*, is_enabled: bool) -> World:
    settings = {
        "transaction.two.phase.commit.enable": str(is_enabled),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    world = World(1, **(SETTINGS | settings))
    world.node.start()
    world.settle()
    world.create(world.node.connect(), "t", partitions=3)
    Producer(world, "a").find()
    world.settle()
    return world


def init(world: World, producer: Producer, *, keep_prepared: bool = False) -> ErrorCode:
    request = InitProducerIdRequest("a", 60_000, enable2_pc=True, keep_prepared_txn=keep_prepared)
    answer = producer.ask(request, NEWEST, InitProducerIdResponse)
    assert isinstance(answer, InitProducerIdResponse)
    producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize("is_enabled", [False, True])
def test_the_version_is_told_only_where_it_is_served(*, is_enabled: bool) -> None:
    world = started(is_enabled=is_enabled)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = world.ask(world.node.connect(), request, 4, ApiVersionsResponse)
    assert isinstance(answer, ApiVersionsResponse)
    assert {one.api_key: one.max_version for one in answer.api_keys}[22] == (
        NEWEST if is_enabled else NEWEST - 1
    )


def test_where_it_is_not_served_it_ends_the_connection_as_any_unknown_version() -> None:
    world = started(is_enabled=False)
    client = world.node.connect()
    client.send(InitProducerIdRequest("a", 60_000, enable2_pc=True), NEWEST, InitProducerIdResponse)
    world.settle()
    assert client.is_closed
    assert world.node.halted is None


def test_a_prepared_transaction_is_never_timed_out_and_ends_as_its_producer_says() -> None:
    world = started(is_enabled=True)
    producer = Producer(world, "a")
    assert init(world, producer) is ErrorCode.NONE
    assert producer.add(0, 1) == [ErrorCode.NONE] * 2
    world.settle(3_600_000)
    (told,) = describe(world, world.node.connect(), "a")
    assert told.transaction_state == "Ongoing"
    assert producer.end(commit=True) is ErrorCode.NONE


def test_to_keep_what_was_prepared_is_refused_as_by_kafka() -> None:
    world = started(is_enabled=True)
    assert init(world, Producer(world, "a"), keep_prepared=True) is ErrorCode.UNSUPPORTED_VERSION
