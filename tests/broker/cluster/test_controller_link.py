"""Commands find the active controller, wherever it is, and each gets one reply."""

from collections.abc import Callable

import pytest

from sparklog.client.transport.connection import api_of
from sparklog.effects import Loss
from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Millis, SessionId
from sparklog.wire.codec import decode, encode
from sparklog.wire.frame import Framer, spare_buffers
from sparklog.wire.header import decode_request_header, encode_reply
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from sparklog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from sparklog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.controller_link import (
    COMMAND_US,
    COMMANDS_MAX,
    ControllerLink,
    PrincipalData,
    joined,
)
from sparklog_server.broker.session import Call, Forwarding, Session

ONE, TWO = ("one", 9093), ("two", 9093)
FRAMER = Framer(frame_bytes_max=1000, shared=bytearray(1000), spares=spare_buffers())
HEARTBEAT_US = 9_000_000
ALICE = "User:alice"
CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t")], timeout_ms=1000)
CREATED = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", num_partitions=1)])
STANDBY = CreateTopicsResponse(
    topics=[CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER, error_message=None)]
)


class Asked:
    """A request that a link was asked to send."""

    def __init__(
        self,
        address: tuple[str, int],
        purpose: str,
        request: Message,
        then: Callable[[Message | Loss, Instant], None],
        timeout_us: int,
    ) -> None:
        self.address = address
        self.purpose = purpose
        self.request = request
        self.then = then
        self.timeout_us = timeout_us


class Surroundings:
    """The quorum and the links of one node, on virtual time."""

    def __init__(self) -> None:
        self.now_us = 1_000_000
        self.is_leader = False
        self.leader: tuple[str, int] | None = None
        self.asked: list[Asked] = []
        self.proposed: list[tuple[Message, Callable[[Message, Instant], None], str]] = []
        self.replies: list[Message] = []
        self.traces: list[str] = []
        self.link = ControllerLink(
            self, self, lambda event, **_: self.traces.append(event), heartbeat_us=HEARTBEAT_US
        )

    @property
    def now(self) -> Instant:
        return Instant(Micros(self.now_us), Millis(0))

    def controller_address(self) -> tuple[str, int] | None:
        return self.leader

    def propose(
        self, command: Message, then: Callable[[Message, Instant], None], principal: str, now: Instant
    ) -> None:
        self.proposed.append((command, then, principal))

    def ask(
        self,
        address: tuple[str, int],
        purpose: str,
        request: Message,
        then: Callable[[Message | Loss, Instant], None],
        now: Instant,
        *,
        timeout_us: int,
    ) -> None:
        self.asked.append(Asked(address, purpose, request, then, timeout_us))

    def command(
        self,
        command: Message = CREATE,
        address: str = "10.1.2.3:555",
        version: int = 7,
        *,
        is_by_token: bool = False,
        forwarding: Forwarding | None = None,
    ) -> None:
        """A client's command."""
        session = Session(SessionId(1), FRAMER, listener="PLAINTEXT", peer_address=address)
        session.principal, session.token_id = ALICE, "id-1" if is_by_token else None
        call = Call(session, api_of(type(command)).key, version, 1, "c", session.principal)
        call.forwarding = forwarding
        self.link.propose(command, lambda reply, _: self.replies.append(reply), call, self.now)

    def own_command(self, command: Message) -> None:
        self.link.propose(command, lambda reply, _: self.replies.append(reply), None, self.now)

    def answer(self, told: Message | Loss, index: int = -1) -> None:
        self.asked[index].then(told, self.now)

    def run(self, us: int) -> None:
        """Let time pass, with a tick whenever one is wanted."""
        end_us = self.now_us + us
        while self.link.deadline_us is not None and self.link.deadline_us <= end_us:
            self.now_us = max(self.now_us, self.link.deadline_us)
            self.link.tick(self.now)
        self.now_us = end_us

    @property
    def errors(self) -> list[int]:
        found = []
        for reply in self.replies:
            assert isinstance(reply, CreateTopicsResponse)
            found.append(reply.topics[0].error_code)
        return found


@pytest.fixture
def node() -> Surroundings:
    return Surroundings()


def in_envelope(reply: Message, api_key: int = 19, version: int = 7) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=joined(encode_reply(reply, api_key, version, 0))[4:])


def test_the_active_controller_decides_itself(node: Surroundings) -> None:
    node.is_leader = True
    node.command()
    [(command, then, principal)] = node.proposed
    assert (command, principal, node.asked) == (CREATE, ALICE, [])
    then(CREATED, node.now)
    assert node.replies == [CREATED]
    assert node.link.deadline_us is None


def test_a_clients_command_travels_in_an_envelope(node: Surroundings) -> None:
    node.leader = ONE
    node.command()
    [asked] = node.asked
    envelope = asked.request
    assert isinstance(envelope, EnvelopeRequest)
    header, _ = decode_request_header(envelope.request_data)
    assert (asked.address, asked.purpose, asked.timeout_us) == (ONE, "control", COMMAND_US)
    assert (header.api_key, header.api_version) == (19, 7)
    assert envelope.request_principal == b"\0\0\x05User\x06alice\0\0"
    assert envelope.client_host_address == bytes((10, 1, 2, 3))
    node.answer(in_envelope(CREATED))
    assert node.replies == [CREATED]
    assert node.link.deadline_us is None


@pytest.mark.parametrize(
    ("address", "packed"), [("[::1]:5", bytes(15) + b"\1"), ("client:7", bytes(4)), ("", bytes(4))]
)
def test_any_address_of_a_client_is_forwarded(node: Surroundings, address: str, packed: bytes) -> None:
    node.leader = ONE
    node.command(address=address)
    assert isinstance(node.asked[0].request, EnvelopeRequest)
    assert node.asked[0].request.client_host_address == packed


def test_a_request_is_forwarded_in_the_version_of_its_client(node: Surroundings) -> None:
    node.leader = ONE
    node.command(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), version=1)
    assert isinstance(node.asked[0].request, EnvelopeRequest)
    header, body = decode_request_header(node.asked[0].request.request_data)
    assert header.api_version == 1
    assert decode(DeleteTopicsRequest, 1, body).topic_names == ["t"]
    node.answer(in_envelope(DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")]), 20, 1))
    assert isinstance(node.replies[0], DeleteTopicsResponse)


def test_a_topic_that_metadata_creates_is_forwarded_as_a_creation(node: Surroundings) -> None:
    node.leader = ONE
    session = Session(SessionId(1), FRAMER, listener="PLAINTEXT", peer_address="10.1.2.3:4")
    node.link.propose(CREATE, lambda *_: None, Call(session, 3, 13, 1, "c", session.principal), node.now)
    assert isinstance(node.asked[0].request, EnvelopeRequest)
    header, _ = decode_request_header(node.asked[0].request.request_data)
    assert (header.api_key, header.api_version, header.client_id) == (19, 7, "c")


def test_the_brokers_own_commands_travel_as_themselves_and_heartbeats_apart(node: Surroundings) -> None:
    node.leader = ONE
    heartbeat = BrokerHeartbeatRequest(broker_id=1)
    node.own_command(CREATE)
    node.own_command(heartbeat)
    assert [(one.purpose, one.request, one.timeout_us) for one in node.asked] == [
        ("control", CREATE, COMMAND_US),
        ("heartbeat", heartbeat, HEARTBEAT_US),
    ]
    node.answer(BrokerHeartbeatResponse(is_fenced=False))
    assert node.replies == [BrokerHeartbeatResponse(is_fenced=False)]


@pytest.mark.parametrize(
    "refusal",
    [
        EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER),
        in_envelope(STANDBY),
        Loss.REFUSED,
        Loss.ENDED,
        Loss.TIMED_OUT,
        EnvelopeResponse(response_data=b"\0"),
    ],
)
def test_another_node_is_asked_when_one_does_not_decide(node: Surroundings, refusal: Message | Loss) -> None:
    node.leader = ONE
    node.command()
    node.answer(refusal)
    node.leader = TWO
    assert len(node.asked) == 1
    node.run(20_000)
    assert [one.address for one in node.asked] == [ONE, TWO]
    node.answer(in_envelope(CREATED))
    assert node.replies == [CREATED]


def test_a_command_waits_until_a_leader_is_known(node: Surroundings) -> None:
    node.command()
    node.run(1_000_000)
    assert (node.asked, node.replies) == ([], [])
    node.leader = TWO
    node.run(100_000)
    assert [one.address for one in node.asked] == [TWO]


def test_this_node_becomes_the_leader_while_a_command_waits(node: Surroundings) -> None:
    node.leader = ONE
    node.command()
    node.answer(Loss.RESET)
    node.is_leader = True
    node.run(20_000)
    assert [command for command, _, _ in node.proposed] == [CREATE]


def test_this_node_stops_leading_before_its_decision_is_committed(node: Surroundings) -> None:
    node.is_leader = True
    node.command()
    node.is_leader, node.leader = False, TWO
    node.proposed[0][1](STANDBY, node.now)
    node.run(20_000)
    assert [one.address for one in node.asked] == [TWO]
    node.answer(in_envelope(CREATED))
    assert node.replies == [CREATED]


def test_a_leader_that_answers_nothing_is_left_when_another_is_elected(node: Surroundings) -> None:
    node.leader = ONE
    node.command()
    node.run(3_000_000)
    assert len(node.asked) == 1
    node.leader = None
    node.run(1_000_000)
    assert len(node.asked) == 1, "a leader that is not known is no better one"
    node.leader = TWO
    node.run(100_000)
    assert [one.address for one in node.asked] == [ONE, TWO]
    node.answer(in_envelope(CREATED), index=0)
    node.answer(in_envelope(CREATED), index=1)
    assert node.replies == [CREATED], "the decision of the former leader counts, and counts once"


def test_the_loss_of_a_former_leader_does_not_disturb_the_attempt_at_the_new_one(node: Surroundings) -> None:
    node.leader = ONE
    node.command()
    node.leader = TWO
    node.run(100_000)
    node.answer(Loss.TIMED_OUT, index=0)
    node.run(90_000)
    assert [one.address for one in node.asked] == [ONE, TWO]


def test_pauses_between_attempts_grow_to_a_tenth_of_a_second(node: Surroundings) -> None:
    node.leader = ONE
    node.command()
    at_ms = []
    for _ in range(6):
        begun, count = node.now_us, len(node.asked)
        node.answer(Loss.REFUSED)
        while len(node.asked) == count:
            node.run(1_000)
        at_ms.append((node.now_us - begun) // 1000)
    assert at_ms == [20, 40, 80, 100, 100, 100]


def test_a_command_is_tried_until_its_time_is_over(node: Surroundings) -> None:
    node.command()
    node.run(COMMAND_US - 1)
    assert node.replies == []
    node.run(1)
    assert node.errors == [ErrorCode.REQUEST_TIMED_OUT]
    assert node.link.deadline_us is None


def test_a_reply_after_the_time_of_its_command_is_ignored(node: Surroundings) -> None:
    node.leader = ONE
    node.command()
    node.run(COMMAND_US)
    node.answer(in_envelope(CREATED))
    assert node.errors == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), ErrorCode.UNSUPPORTED_VERSION),
        (EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.UNKNOWN_SERVER_ERROR),
        (
            EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
    ],
)
def test_a_refused_envelope_is_the_clusters_fault_and_not_the_clients(
    node: Surroundings, told: Message, code: ErrorCode
) -> None:
    node.leader = ONE
    node.command()
    node.answer(told)
    assert (node.errors, node.traces) == ([code], ["envelope-refused"])


def test_commands_of_clients_are_finite_in_number(node: Surroundings) -> None:
    for _ in range(COMMANDS_MAX + 3):
        node.command()
    assert node.replies == [], "a reply comes in a later turn"
    node.run(0)
    assert node.errors == [ErrorCode.REQUEST_TIMED_OUT] * 3
    node.own_command(BrokerHeartbeatRequest(broker_id=1))
    node.run(0)
    assert len(node.replies) == 3, "the broker's own commands are few, and are not refused"


def test_commands_of_clients_are_finite_in_bytes(node: Surroundings) -> None:
    node.leader = ONE
    topics = [CreatableTopic(name="t" * 30_000) for _ in range(400)]
    for _ in range(5):
        node.command(CreateTopicsRequest(topics=topics, timeout_ms=1000))
    node.run(0)
    assert (len(node.asked), len(node.replies)) == (3, 2)
    for index in range(3):
        node.answer(in_envelope(CREATED), index)
    node.command()
    assert len(node.asked) == 4


def test_a_broker_that_stops_forgets_its_commands(node: Surroundings) -> None:
    node.leader = ONE
    node.command()
    node.link.close()
    node.answer(in_envelope(CREATED))
    node.command()
    node.run(COMMAND_US)
    assert (node.replies, len(node.asked), node.link.deadline_us) == ([], 1, None)


def test_an_envelope_says_that_a_token_has_authenticated_the_client(node: Surroundings) -> None:
    node.leader = TWO
    node.command(is_by_token=True)
    envelope = node.asked[0].request
    assert isinstance(envelope, EnvelopeRequest)
    assert envelope.request_principal == b"\0\0\x05User\x06alice\x01\0"


def test_a_forwarded_request_is_forwarded_again_for_its_client(node: Surroundings) -> None:
    node.leader = TWO
    node.command(forwarding=Forwarding(0, 1, ALICE, "10.9.9.9", ("Group:ops",), is_token_authenticated=True))
    envelope = node.asked[0].request
    assert isinstance(envelope, EnvelopeRequest)
    assert envelope.client_host_address == bytes((10, 9, 9, 9))
    principal = PrincipalData(type="User", name="alice", token_authenticated=True, groups=["Group:ops"])
    assert envelope.request_principal == b"\0\0" + joined(encode(principal, 0))
