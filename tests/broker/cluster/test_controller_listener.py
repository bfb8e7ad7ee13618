"""A listener of controllers: its APIs, commands of other nodes, and requests that brokers forward."""

from collections.abc import Callable
from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.api_keys import API_BY_KEY, CONTROLLER_ONLY, FORWARDABLE, ON_CONTROLLERS
from sparklog.wire.codec import encode
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.describe_configs import DescribeConfigsRequest
from sparklog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Allow, Operation, Resource
from sparklog_server.broker.cluster.controller_link import PrincipalData, says_not_controller
from sparklog_server.broker.dispatch import SERVED
from sparklog_server.broker.dispatch_controller import CONTROLLER, NEWEST_OF_CONTROLLER
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.test_hostile_requests import bound_growth
from tests.broker.world import World
from tests.wire.arbitrary import arbitrary
from tests.wire.hostile import mutations

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
}
LOCALHOST = bytes((127, 0, 0, 1))
ALICE = b"\0\0" + b"".join(map(bytes, encode(PrincipalData(type="User", name="alice"), 0)))  # type: ignore[arg-type]
HELLO = ApiVersionsRequest(client_software_name="x", client_software_version="1")


def started(allow: Allow | None = None) -> World:
    world = World(1, allow=allow, **LISTENERS)
    world.node.start()
    world.settle()
    return world


def of_controllers(world: World) -> SimulatedConnection:
    return world.node.connect(listener="CONTROLLER")


def creating(name: str = "t") -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def framed(request: Message, version: int, correlation_id: int = 7) -> bytes:
    return b"".join(map(bytes, encode_request(request, version, correlation_id, "a client")))[4:]  # type: ignore[arg-type]


def forwarded(world: World, envelope: EnvelopeRequest) -> EnvelopeResponse:
    answer = world.ask(of_controllers(world), envelope, 0, EnvelopeResponse)
    assert isinstance(answer, EnvelopeResponse)
    return answer


def in_envelope(data: bytes, principal: bytes | None = ALICE, address: bytes = LOCALHOST) -> EnvelopeRequest:
    return EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)


def told(world: World, listener: str) -> dict[int, int]:
    answer = world.ask(world.node.connect(listener=listener), HELLO, 3, ApiVersionsResponse)
    assert isinstance(answer, ApiVersionsResponse)
    return {one.api_key: one.max_version for one in answer.api_keys}


def test_each_listener_tells_the_apis_that_it_serves() -> None:
    world = started()
    assert told(world, "PLAINTEXT").keys() == set(SERVED)
    assert told(world, "CONTROLLER") == NEWEST_OF_CONTROLLER
    assert CONTROLLER.keys() <= NEWEST_OF_CONTROLLER.keys()
    assert NEWEST_OF_CONTROLLER.keys() <= ON_CONTROLLERS
    assert not CONTROLLER_ONLY & set(SERVED)


@pytest.mark.parametrize(
    ("listener", "api_key"), [("PLAINTEXT", key) for key in sorted(CONTROLLER_ONLY)] + [("CONTROLLER", 3)]
)
def test_a_request_of_the_other_listener_ends_the_session(listener: str, api_key: int) -> None:
    world = started()
    api = API_BY_KEY[api_key]
    client = world.node.connect(listener=listener)
    client.send(api.request()(), api.until, api.reply())
    world.settle()
    assert (client.replies, client.is_closed) == ([], True)
    assert world.create(world.node.connect(), "t") == ErrorCode.NONE


def test_a_forwarded_request_is_decided_in_the_name_of_its_client() -> None:
    asked: list[tuple[str, Operation]] = []

    def allow(principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        asked.append((principal, operation))
        return True

    world = started(allow)
    asked.clear()
    answer = forwarded(world, in_envelope(framed(creating(), 7)))
    assert answer.error_code == ErrorCode.NONE
    assert answer.response_data is not None
    correlation_id, reply = decode_reply(CreateTopicsResponse, 7, answer.response_data)
    assert (correlation_id, reply.topics[0].error_code) == (7, ErrorCode.NONE)
    assert "t" in world.node.running._quorum.image.topics_by_name
    assert asked == [
        ("User:ANONYMOUS", Operation.CLUSTER_ACTION),
        ("User:alice", Operation.CREATE),
        ("User:alice", Operation.DESCRIBE_CONFIGS),
    ]


def test_forwarded_requests_of_one_session_are_answered_in_order() -> None:
    world = started()
    session = of_controllers(world)
    for number in range(5):
        session.send(in_envelope(framed(creating(f"t{number}"), 7, number)), 0, EnvelopeResponse)
    world.settle()
    replies = [one for one in session.replies if isinstance(one, EnvelopeResponse)]
    found = [decode_reply(CreateTopicsResponse, 7, one.response_data or b"")[0] for one in replies]
    assert found == list(range(5))


def test_an_envelope_needs_cluster_action() -> None:
    def allow(principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        return operation is not Operation.CLUSTER_ACTION

    world = started(allow)
    assert (
        forwarded(world, in_envelope(framed(creating(), 7))).error_code
        == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
    refused = world.ask(of_controllers(world), BrokerHeartbeatRequest(), 1, BrokerHeartbeatResponse)
    assert isinstance(refused, BrokerHeartbeatResponse)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


BAD: dict[str, tuple[Callable[[], EnvelopeRequest], ErrorCode]] = {
    "another envelope": (
        lambda: in_envelope(framed(in_envelope(framed(creating(), 7)), 0)),
        ErrorCode.INVALID_REQUEST,
    ),
    "an API that is not forwardable": (
        lambda: in_envelope(framed(DescribeConfigsRequest(), 4)),
        ErrorCode.INVALID_REQUEST,
    ),
    "an API of the future": (
        lambda: in_envelope(b"\x7f\xff" + framed(creating(), 7)[2:]),
        ErrorCode.INVALID_REQUEST,
    ),
    "a version of the future": (
        lambda: in_envelope(framed(creating(), 7)[:2] + b"\0\x63" + framed(creating(), 7)[4:]),
        ErrorCode.UNSUPPORTED_VERSION,
    ),
    "no request": (lambda: in_envelope(b""), ErrorCode.UNSUPPORTED_VERSION),
    "half a request": (lambda: in_envelope(framed(creating(), 7)[:-9]), ErrorCode.UNSUPPORTED_VERSION),
    "no principal": (
        lambda: in_envelope(framed(creating(), 7), None),
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
    ),
    "a garbled principal": (
        lambda: in_envelope(framed(creating(), 7), b"\0\0\xff\xff\xff"),
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
    ),
    "a principal of the future": (
        lambda: in_envelope(framed(creating(), 7), b"\0\1" + ALICE[2:]),
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
    ),
    "an address of 5 bytes": (
        lambda: in_envelope(framed(creating(), 7), ALICE, b"12345"),
        ErrorCode.INVALID_REQUEST,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_envelope_is_refused_as_kafka_does(name: str) -> None:
    world = started()
    make, code = BAD[name]
    answer = forwarded(world, make())
    assert (answer.error_code, answer.response_data) == (code, None)
    assert forwarded(world, in_envelope(framed(creating(), 7))).error_code == ErrorCode.NONE


@pytest.mark.parametrize("api_key", NEWEST_OF_CONTROLLER)
def test_no_request_however_absurd_takes_a_controller_down(api_key: int) -> None:
    world, random = started(), Random(api_key)
    api = API_BY_KEY[api_key]
    for version in range(api.since, api.until + 1):
        for _ in range(10):
            request = arbitrary(api.request(), version, random)
            assert isinstance(request, Message)
            bound_growth(request)
            try:
                whole = framed(request, version)
            except ValueError:
                continue  # such a request cannot be written at this version
            bent = next(iter(mutations(whole, random, count=1)))
            for frame in (whole, bent, *([framed(in_envelope(whole), 0)] if api_key in FORWARDABLE else ())):
                client = of_controllers(world)
                client.expects_anything = True
                client.send_bytes(len(frame).to_bytes(4, "big") + frame)
                world.settle(ms=50)
                world.node.disconnect(client)
    assert told(world, "CONTROLLER") == NEWEST_OF_CONTROLLER


def test_another_node_is_decided_on_by_its_epoch() -> None:
    world = started()
    session = of_controllers(world)
    stale = world.ask(session, BrokerHeartbeatRequest(broker_id=2), 1, BrokerHeartbeatResponse)
    assert isinstance(stale, BrokerHeartbeatResponse)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    epoch = world.node.running._context.broker_epoch.value
    granted = world.ask(
        session, AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch), 0, AllocateProducerIdsResponse
    )
    assert isinstance(granted, AllocateProducerIdsResponse)
    assert (granted.error_code, granted.producer_id_len) == (ErrorCode.NONE, 1000)


def test_a_refusal_of_a_standby_is_found_in_any_part_of_a_reply() -> None:
    from sparklog.wire.messages.create_topics import CreatableTopicResult

    refused = CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name="t"),
            CreatableTopicResult(name="u", error_code=ErrorCode.NOT_CONTROLLER),
        ]
    )
    assert says_not_controller(refused)
    assert not says_not_controller(CreateTopicsResponse(topics=[CreatableTopicResult(name="t")]))
    assert says_not_controller(BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER))
