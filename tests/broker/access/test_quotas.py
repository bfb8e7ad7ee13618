"""Client quotas: stored, told, and held to. Who uses too much is answered, told how long to rest, and not
read meanwhile (KIP-219).
"""

from itertools import count
from typing import TypeVar

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import (
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    World,
    fetch,
    fetched,
    latest,
    listed,
    produce,
    produced,
)

M = TypeVar("M", bound=Message)
USER = {"user": "ANONYMOUS"}
DEFAULT_USER = {"user": None}
ANY_CLIENT = {"client-id": None}
THIS_CLIENT = {"client-id": "simulation"}
Entity = dict[str, str | None]


def ask(world: World, connection: SimulatedConnection, request: Message, version: int, reply: type[M]) -> M:
    answer = world.ask(connection, request, version, reply)
    assert isinstance(answer, reply)
    return answer


def entry(entity: Entity, **numbers: float | None) -> AlterClientQuotasRequestEntryData:
    ops = [OpData(key, value or 0.0, value is None) for key, value in numbers.items()]
    return AlterClientQuotasRequestEntryData([EntityData(kind, name) for kind, name in entity.items()], ops)


def altered(
    world: World, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    told = ask(world, world.node.connect(), request, 1, AlterClientQuotasResponse)
    return [(one.error_code, one.error_message) for one in told.entries]


def limit(world: World, entity: Entity, **numbers: float | None) -> None:
    assert altered(world, entry(entity, **numbers)) == [(0, None)]


def described(world: World, *components: ComponentData, strict: bool = False) -> DescribeClientQuotasResponse:
    return ask(
        world,
        world.node.connect(),
        DescribeClientQuotasRequest(list(components), strict),
        1,
        DescribeClientQuotasResponse,
    )


def told_by(
    world: World, *components: ComponentData, strict: bool = False
) -> list[tuple[Entity, dict[str, float]]]:
    told = described(world, *components, strict=strict)
    assert told.error_code == 0
    return [
        (
            {part.entity_type: part.entity_name for part in one.entity},
            {part.key: part.value for part in one.values},
        )
        for one in told.entries or ()
    ]


def send(
    world: World, client: SimulatedConnection, size: int, topic: str = "t", acks: int = 1
) -> ProduceResponse | None:
    """Produce one record of about `size` bytes, and let a millisecond pass."""
    before = len(client.replies)
    client.send(
        produce(topic, world.batch(b"x" * size), acks=acks),
        PRODUCE_BY_NAME,
        ProduceResponse if acks else None,
    )
    world.settle(1)
    if len(client.replies) == before:
        return None
    answer = client.replies[-1]
    assert isinstance(answer, ProduceResponse)
    return answer


# -- stored and told


def test_quotas_are_kept_through_a_restart_and_a_removed_one_is_gone(world: World) -> None:
    limit(world, {"user": "u", "client-id": "c"}, producer_byte_rate=1000, request_percentage=12.5)
    limit(world, {"ip": "127.0.0.1"}, connection_creation_rate=10)
    limit(world, ANY_CLIENT, controller_mutation_rate=0.5)
    world.node.stop()
    world.node.start()
    world.settle()
    assert told_by(world) == [
        ({"client-id": "c", "user": "u"}, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 10.0}),
        ({"client-id": None}, {"controller_mutation_rate": 0.5}),
    ]
    limit(world, {"client-id": "c", "user": "u"}, producer_byte_rate=None)
    limit(world, ANY_CLIENT, controller_mutation_rate=None, consumer_byte_rate=None)
    assert told_by(world, ComponentData("client-id", 2, None)) == [
        ({"client-id": "c", "user": "u"}, {"request_percentage": 12.5})
    ]


def test_what_is_only_validated_is_not_kept_and_the_same_again_writes_nothing(world: World) -> None:
    assert altered(world, entry(USER, producer_byte_rate=1.0), validate_only=True) == [(0, None)]
    assert told_by(world) == []
    limit(world, USER, producer_byte_rate=10.0)
    before = len([line for line in world.node.trace if line.startswith("metadata-change")])
    limit(world, USER, producer_byte_rate=10.0)
    assert len([line for line in world.node.trace if line.startswith("metadata-change")]) == before


@pytest.mark.parametrize(
    ("entity", "numbers", "said"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ({"ip": "127.0.0.1", "user": "u"}, {"connection_creation_rate": 1.0}, "should not be combined"),
        (
            {"ip": "300.1.1.1"},
            {"connection_creation_rate": 1.0},
            "300.1.1.1 is not a valid IP or resolvable host.",
        ),
        ({"ip": None}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        (USER, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        (USER, {"no.such": 1.0}, "Invalid configuration key no.such"),
        (USER, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
        (USER, {"producer_byte_rate": float("nan")}, "must be greater than 0"),
        (USER, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            USER,
            {"producer_byte_rate": 1e300},
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            {"ip": None},
            {"connection_creation_rate": 3e9},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_quotas_that_make_no_sense_are_refused_with_kafkas_reason(
    world: World, entity: Entity, numbers: dict[str, float], said: str
) -> None:
    given = AlterClientQuotasRequestEntryData(
        [EntityData(kind, name) for kind, name in entity.items()],
        [OpData(key, value) for key, value in numbers.items()],
    )
    good = entry({"user": "good"}, request_percentage=50.0)
    (code, message), other = altered(world, given, good)
    assert (code, said in (message or "")) == (ErrorCode.INVALID_REQUEST, True), message
    assert other == (0, None)
    assert told_by(world) == [({"user": "good"}, {"request_percentage": 50.0})]


def test_a_number_or_an_entity_that_comes_twice_is_refused(world: World) -> None:
    twice = AlterClientQuotasRequestEntryData(
        [EntityData("user", "u")], [OpData("request_percentage", 1.0), OpData("request_percentage", 2.0)]
    )
    assert altered(world, twice)[0][0] == ErrorCode.INVALID_REQUEST
    same = entry(USER, request_percentage=1.0)
    ((code, message),) = altered(world, same, same)
    assert (code, message) == (
        ErrorCode.INVALID_REQUEST,
        "Ignoring duplicate entity ClientQuotaEntity(entries={user=ANONYMOUS})",
    )


def test_a_filter_finds_by_name_by_default_and_by_type_and_strictly_only_those(world: World) -> None:
    entities: list[Entity] = [
        {"user": "u"},
        {"user": None},
        {"user": "u", "client-id": "c"},
        {"client-id": "c"},
    ]
    for entity in entities:
        limit(world, entity, request_percentage=1.0)

    def found(*components: ComponentData, strict: bool = False) -> list[Entity]:
        return [entity for entity, _ in told_by(world, *components, strict=strict)]

    assert found(ComponentData("user", 0, "u")) == [entities[0], entities[2]]
    assert found(ComponentData("user", 0, "u"), strict=True) == [entities[0]]
    assert found(ComponentData("user", 1, None)) == [entities[1]]
    assert found(ComponentData("user", 2, None)) == entities[:3]
    assert found(ComponentData("user", 2, None), ComponentData("client-id", 0, "c")) == [entities[2]]
    assert found(strict=True) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([ComponentData("", 0, "u")], ErrorCode.INVALID_REQUEST),
        ([ComponentData("group", 0, "u")], ErrorCode.UNSUPPORTED_VERSION),
        ([ComponentData("user", 0, "u"), ComponentData("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 1, "u")], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 2, "u")], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 2, None), ComponentData("ip", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    world: World, components: list[ComponentData], code: ErrorCode
) -> None:
    told = described(world, *components)
    assert (told.error_code, told.entries) == (code, None)


def test_a_hundred_thousand_entities_in_one_request_end_the_session_alone(world: World) -> None:
    client = world.node.connect()
    client.send(
        AlterClientQuotasRequest(
            entries=[entry({"user": f"u{n}"}, request_percentage=1.0) for n in range(100_000)]
        ),
        1,
        None,
    )
    world.settle()
    assert client.is_closed
    too_many = [entry({"user": f"u{n}"}, request_percentage=1.0) for n in range(10_001)]
    assert {code for code, _ in altered(world, *too_many)} == {ErrorCode.POLICY_VIOLATION}
    assert told_by(world) == []


# -- produce


def test_a_producer_over_its_quota_is_answered_at_once_and_read_again_when_its_rate_is_down(
    world: World,
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    limit(world, USER, producer_byte_rate=10_000)
    answer = send(world, client, 150_000)
    assert answer is not None
    # 150 kB in ten windows of a second are 15 kB a second: five more seconds bring that down to ten.
    assert answer.throttle_time_ms == pytest.approx(5_000, rel=0.01)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert send(world, client, 10) is None
    world.settle(answer.throttle_time_ms - 10)
    assert len(client.replies) == 2
    world.settle(10)
    assert produced(client.replies[-1]) == (0, 1)


def test_over_many_windows_a_producer_averages_its_quota_and_others_are_not_disturbed(world: World) -> None:
    client, other = world.node.connect(), world.node.connect(client_id="other")
    world.create(client, "t")
    world.create(client, "u")
    limit(world, THIS_CLIENT, producer_byte_rate=20_000)
    begun_us, sent = world.clock.now.mono_us, 0
    delays = 0
    while world.clock.now.mono_us < begun_us + 60_000_000:
        replies = len(client.replies)
        client.send(produce("t", world.batch(b"x" * 10_000)), PRODUCE_BY_NAME, ProduceResponse)
        sent += 10_000
        while len(client.replies) == replies:
            world.settle(100)
            undisturbed = send(world, other, 10_000, "u")
            assert undisturbed is not None
            assert undisturbed.throttle_time_ms == 0
        delays += client.replies[-1].throttle_time_ms > 0  # type: ignore[attr-defined]
    # What ten windows hold may be had at once in the beginning.
    assert sent / 60 == pytest.approx(20_000, rel=0.2)
    assert delays > 5


def test_a_producer_that_wants_no_answers_is_muted_all_the_same(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    limit(world, DEFAULT_USER, producer_byte_rate=10_000)
    for _ in range(2):
        send(world, client, 150_000, acks=0)
    end = ask(world, world.node.connect(), latest("t"), 7, ListOffsetsResponse)
    assert listed(end) == (0, 1)
    world.settle(5_000)
    assert listed(ask(world, world.node.connect(), latest("t"), 7, ListOffsetsResponse)) == (0, 2)


def test_a_session_that_ends_while_it_rests_leaves_nothing_behind(world: World) -> None:
    world.create(world.node.connect(), "t")
    limit(world, USER, producer_byte_rate=1)
    for _ in range(3):
        client = world.node.connect()
        answer = send(world, client, 1000)
        assert answer is not None
        assert answer.throttle_time_ms > 0
        world.node.disconnect(client)
        world.settle(10)
    limit(world, USER, producer_byte_rate=None)
    fresh = send(world, world.node.connect(), 1000)
    assert fresh is not None
    assert fresh.throttle_time_ms == 0


# -- shared quotas


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ([(USER, 1)], 1),
        ([(USER, 1), (DEFAULT_USER, 2)], 1),
        ([(DEFAULT_USER, 1), (THIS_CLIENT, 2)], 1),
        ([(THIS_CLIENT, 1), (ANY_CLIENT, 2)], 1),
        ([(ANY_CLIENT, 1)], 1),
        ([({**USER, **THIS_CLIENT}, 1), ({**USER, **ANY_CLIENT}, 2), (USER, 3)], 1),
        ([({**USER, **ANY_CLIENT}, 1), (USER, 2), ({**DEFAULT_USER, **THIS_CLIENT}, 3)], 1),
        ([(USER, 1), ({**DEFAULT_USER, **THIS_CLIENT}, 2), ({**DEFAULT_USER, **ANY_CLIENT}, 3)], 1),
        ([({**DEFAULT_USER, **THIS_CLIENT}, 1), ({**DEFAULT_USER, **ANY_CLIENT}, 2), (DEFAULT_USER, 3)], 1),
        ([({**DEFAULT_USER, **ANY_CLIENT}, 1), (DEFAULT_USER, 2), (THIS_CLIENT, 3)], 1),
        ([({"user": "somebody"}, 1), ({"client-id": "another"}, 1)], None),
    ],
)
def test_the_most_specific_entity_counts(
    world: World, quotas: list[tuple[Entity, int]], expected: int | None
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    for entity, thousands in quotas:
        limit(world, entity, producer_byte_rate=thousands * 1000)
    answer = send(world, client, 100_000)
    assert answer is not None
    if expected is None:
        assert answer.throttle_time_ms == 0
    else:
        assert answer.throttle_time_ms == pytest.approx((100_000 / expected / 1000 - 10) * 1000, rel=0.02)


def test_the_clients_of_one_user_share_what_is_the_users_and_not_what_is_each_ones_default(
    world: World,
) -> None:
    first, second = world.node.connect(client_id="a"), world.node.connect(client_id="b")
    world.create(first, "t")
    limit(world, ANY_CLIENT, producer_byte_rate=10_000)
    for client in (first, second):
        answer = send(world, client, 60_000)
        assert answer is not None
        assert answer.throttle_time_ms == 0
    limit(world, USER, producer_byte_rate=10_000)
    delays = []
    for client in (first, second):
        answer = send(world, client, 60_000)
        assert answer is not None
        delays.append(answer.throttle_time_ms)
    assert delays[0] == 0
    assert delays[1] > 1000


# -- fetch


def test_a_fetch_over_the_quota_is_withheld_and_given_later(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    for _ in range(4):
        send(world, client, 40_000)
    limit(world, USER, consumer_byte_rate=10_000)
    first = ask(world, client, fetch("t", 0, max_bytes=90_000), FETCH_BY_NAME, FetchResponse)
    assert (first.throttle_time_ms, len(fetched(first)[1])) == (0, 2)
    withheld = ask(world, client, fetch("t", 2, max_bytes=90_000), FETCH_BY_NAME, FetchResponse)
    assert (withheld.responses, withheld.error_code) == ([], 0)
    assert withheld.throttle_time_ms > 1000
    before = len(client.replies)
    client.send(fetch("t", 2, max_bytes=90_000), FETCH_BY_NAME, FetchResponse)
    world.settle(withheld.throttle_time_ms - 1500)
    assert len(client.replies) == before
    world.settle(20_000)
    assert len(client.replies) == before + 1


def test_a_fetch_asks_for_no_more_than_its_windows_hold_so_that_it_may_be_given_at_all(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    for _ in range(20):
        send(world, client, 10_000)
    limit(world, USER, consumer_byte_rate=5_000)
    answer = ask(world, client, fetch("t", 0), FETCH_BY_NAME, FetchResponse)
    assert (answer.throttle_time_ms, len(fetched(answer)[1])) == (0, 4)


# -- requests, and changes to the cluster


def test_who_keeps_the_broker_busy_rests_a_window_at_most(world: World) -> None:
    client, other = world.node.connect(), world.node.connect(client_id="other")
    world.create(client, "t")
    limit(world, THIS_CLIENT, request_percentage=1.0)
    ticks = count(step=200_000_000)
    world.node.work_clock = lambda: next(ticks)  # every request takes 200 ms
    answer = ask(world, client, latest("t"), 7, ListOffsetsResponse)
    # 0.2 s of the last 10 are 2 %: ten seconds more would bring that down to one.
    assert answer.throttle_time_ms == 1000
    assert ask(world, other, latest("t"), 7, ListOffsetsResponse).throttle_time_ms == 0
    limit(world, THIS_CLIENT, request_percentage=None)
    world.settle(2000)
    assert ask(world, client, latest("t"), 7, ListOffsetsResponse).throttle_time_ms == 0


def created(
    world: World, client: SimulatedConnection, *topics: tuple[str, int], version: int = 7
) -> CreateTopicsResponse:
    asked = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        for name, partitions in topics
    ]
    return ask(
        world, client, CreateTopicsRequest(topics=asked, timeout_ms=1000), version, CreateTopicsResponse
    )


def test_changes_to_the_cluster_stop_when_they_are_used_up_and_go_on_as_they_come_back(world: World) -> None:
    client = world.node.connect()
    limit(world, USER, controller_mutation_rate=1.0)
    # Eleven windows of a second hold eleven; the last of them may take more than is left.
    answer = created(world, client, ("a", 10), ("b", 5), ("c", 1))
    assert [(one.name, one.error_code) for one in answer.topics] == [
        ("a", 0),
        ("b", 0),
        ("c", ErrorCode.THROTTLING_QUOTA_EXCEEDED),
    ]
    assert answer.throttle_time_ms == 4000
    world.settle(4000)
    answer = created(world, client, ("c", 1))
    assert ([one.error_code for one in answer.topics], answer.throttle_time_ms) == ([0], 0)
    told = ask(
        world, client, DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1000), 5, DeleteTopicsResponse
    )
    assert {one.name: one.error_code for one in told.responses} == {
        "a": 0,
        "b": ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }


def test_what_was_refused_is_not_counted_and_earlier_clients_are_served_and_rest_afterwards(
    world: World,
) -> None:
    client = world.node.connect()
    limit(world, USER, controller_mutation_rate=1.0)
    answer = created(world, client, ("a/b", 100), version=5)
    world.settle(200_000)
    answer = created(world, client, ("bad/name", 11))
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    answer = created(world, client, ("a", 11))
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)
    answer = created(world, client, ("b", 20), version=5)
    assert answer.topics[0].error_code == 0
    assert answer.throttle_time_ms > 15_000
