"""Links on virtual time, against a peer that decodes what is sent and answers by script."""

from typing import cast

import pytest

from sparklog.client.sasl.login import PasswordLogin
from sparklog.effects import Chunk, Disconnect, Effect, LinkId, Loss, SendTo
from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Millis
from sparklog.wire.api_keys import API_VERSIONS
from sparklog.wire.codec import decode_request
from sparklog.wire.header import decode_request_header, encode_reply
from sparklog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster import links as module
from sparklog_server.broker.cluster.links import IN_FLIGHT_MAX, Links, Logins

SASL_HANDSHAKE = 17
_HERE = ("127.0.0.1", 9092)
_REQUESTS = {3: MetadataRequest, 10: FindCoordinatorRequest, 17: SaslHandshakeRequest}
_TIMEOUT_US = 1_000_000


class Peer:
    """The outside of one `Links`, and the broker at the other end of each link."""

    def __init__(self, logins: Logins | None = None) -> None:
        self.effects: list[Effect] = []
        self.links = Links(self.effects, "test", logins)
        self.us = 0
        self.asked: list[tuple[LinkId, int, int, Message]] = []  # correlation, version, request
        self.opened: list[LinkId] = []
        self.answers: list[tuple[str, Message | Loss]] = []
        self.versions = {3: (0, 12), 10: (0, 4), API_VERSIONS: (0, 4)}

    @property
    def now(self) -> Instant:
        return Instant(Micros(self.us), Millis(0))

    def ask(self, name: str, request: Message | None = None, purpose: str = "control") -> None:
        self.links.ask(
            _HERE,
            purpose,
            MetadataRequest() if request is None else request,
            lambda answer, _: self.answers.append((name, answer)),
            self.now,
            timeout_us=_TIMEOUT_US,
        )
        self.turn()

    def turn(self) -> None:
        """Carry out the effects and give the answers out, as the broker does at the end of a turn."""
        while self.effects or self.links.has_answers:
            effects = self.effects[:]
            self.effects.clear()
            for effect in effects:
                if isinstance(effect, SendTo):
                    self._sent(effect)
            if self.links.has_answers:
                self.links.deliver(self.now)

    def _sent(self, effect: SendTo) -> None:
        if effect.link not in self.opened:
            self.opened.append(effect.link)
        data = b"".join(bytes(cast(bytes, chunk)) for chunk in effect.chunks)
        while data:
            size = int.from_bytes(data[:4], "big")
            frame, data = memoryview(data[4 : 4 + size]), data[4 + size :]
            header, body = decode_request_header(frame)
            if header.api_key == API_VERSIONS:
                self.hello = (effect.link, header.correlation_id, header.api_version)
            else:
                cls = _REQUESTS[header.api_key]
                request = decode_request(cls, header.api_version, body)
                self.asked.append((effect.link, header.correlation_id, header.api_version, request))

    def handshake(self) -> None:
        link, correlation, version = self.hello
        keys = [ApiVersion(key, low, high) for key, (low, high) in self.versions.items()]
        self.send(link, encode_reply(ApiVersionsResponse(api_keys=keys), API_VERSIONS, version, correlation))

    def reply(self, key: int, response: Message) -> None:
        link, correlation, version, _ = self.asked.pop(0)
        self.send(link, encode_reply(response, key, version, correlation))

    def send(self, link: LinkId, chunks: list[Chunk]) -> None:
        data = b"".join(bytes(cast(bytes, chunk)) for chunk in chunks)
        while data:
            room = self.links.buffer(link)
            if room is None:
                break
            size = min(3, len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.links.received(link, size, self.now)
        self.turn()

    def lose(self, loss: Loss) -> None:
        self.links.lost(self.opened[-1], loss)
        self.turn()

    def at(self, us: int) -> None:
        self.us = us
        self.links.tick(self.now)
        self.turn()


@pytest.fixture
def peer() -> Peer:
    return Peer()


def test_a_link_is_opened_by_the_first_request_and_answers_in_order(peer: Peer) -> None:
    peer.ask("first")
    peer.ask("second")
    assert len(peer.opened) == 1
    assert peer.asked == []  # the versions of the other side are not known yet
    peer.handshake()
    assert len(peer.asked) == 2
    peer.reply(3, MetadataResponse(controller_id=1))
    peer.reply(3, MetadataResponse(controller_id=2))
    assert [name for name, _ in peer.answers] == ["first", "second"]
    assert [cast(MetadataResponse, reply).controller_id for _, reply in peer.answers] == [1, 2]


def test_each_purpose_has_a_link_of_its_own(peer: Peer) -> None:
    peer.ask("a", purpose="control")
    peer.ask("b", purpose="heartbeat")
    assert len({link.purpose for link in peer.opened}) == len(peer.opened) == 2


@pytest.mark.parametrize("loss", [Loss.REFUSED, Loss.ENDED, Loss.RESET, Loss.UNREACHABLE, Loss.UNKNOWN_NAME])
@pytest.mark.parametrize("is_ready", [False, True])
def test_a_lost_link_tells_every_request_once_and_the_next_opens_another(
    peer: Peer, loss: Loss, *, is_ready: bool
) -> None:
    peer.ask("first")
    if is_ready:
        peer.handshake()
    peer.ask("second")
    peer.lose(loss)
    peer.lose(loss)
    assert peer.answers == [("first", loss), ("second", loss)]
    peer.ask("third")
    assert len(peer.opened) == 2
    assert peer.opened[0] != peer.opened[1]


def test_a_request_without_response_ends_its_link_at_its_deadline(peer: Peer) -> None:
    peer.ask("first")
    peer.handshake()
    peer.us = 400_000
    peer.ask("second")
    peer.at(_TIMEOUT_US - 1)
    assert peer.answers == []
    assert peer.links.deadline_us == _TIMEOUT_US
    peer.at(_TIMEOUT_US)
    assert peer.answers == [("first", Loss.TIMED_OUT), ("second", Loss.TIMED_OUT)]
    assert peer.links.deadline_us is None


def test_a_peer_that_never_accepts_costs_the_deadline(peer: Peer) -> None:
    peer.ask("first")
    assert peer.links.deadline_us == _TIMEOUT_US
    peer.at(_TIMEOUT_US)
    assert peer.answers == [("first", Loss.TIMED_OUT)]


def test_an_answered_request_leaves_no_deadline_behind(peer: Peer) -> None:
    peer.ask("first")
    peer.handshake()
    peer.reply(3, MetadataResponse())
    peer.at(_TIMEOUT_US)
    assert peer.links.deadline_us is None
    peer.ask("second")
    assert len(peer.opened) == 1
    assert peer.links.deadline_us == 2 * _TIMEOUT_US


def test_a_request_that_the_peer_has_no_version_for_is_refused_alone(peer: Peer) -> None:
    peer.versions[10] = (9, 9)
    peer.ask("group", FindCoordinatorRequest(key="g"))
    peer.ask("metadata")
    peer.handshake()
    assert peer.answers == [("group", Loss.UNSUPPORTED)]
    peer.reply(3, MetadataResponse())
    assert peer.answers[-1][0] == "metadata"


def test_bytes_that_are_no_response_end_the_link(peer: Peer) -> None:
    peer.ask("first")
    peer.send(peer.opened[0], [b"HTTP/1.1 400 Bad Request"])
    assert peer.answers == [("first", Loss.UNUSABLE)]
    assert peer.links.buffer(peer.opened[0]) is None


def test_a_response_to_another_request_ends_the_link(peer: Peer) -> None:
    peer.ask("first")
    peer.handshake()
    link, correlation, version, _ = peer.asked[0]
    peer.send(link, encode_reply(MetadataResponse(), 3, version, correlation + 1))
    assert peer.answers == [("first", Loss.UNUSABLE)]


class NodeLogins:
    def login(self, *, is_controller: bool) -> PasswordLogin:
        return PasswordLogin("PLAIN", "node", "n-secret", bytes)


def test_a_refused_login_is_not_told_as_the_end_of_the_peer() -> None:
    peer = Peer(NodeLogins())
    peer.versions[SASL_HANDSHAKE] = (0, 1)
    for name in ("answered", "closed", "reset"):
        peer.ask(name)
        peer.handshake()
        link, correlation, version, _ = peer.asked[-1]
        if name == "answered":
            refusal = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            peer.send(link, encode_reply(refusal, SASL_HANDSHAKE, version, correlation))
        else:
            peer.links.lost(link, Loss.ENDED if name == "closed" else Loss.RESET)
            peer.turn()
        assert peer.answers[-1] == (name, Loss.UNUSABLE)


def test_requests_beyond_the_room_in_flight_wait_and_those_beyond_the_limit_are_refused(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", IN_FLIGHT_MAX + 2)
    for number in range(IN_FLIGHT_MAX + 3):
        peer.ask(str(number))
    # The question for versions is one of them.
    assert [answer for _, answer in peer.answers] == [Loss.CROWDED, Loss.CROWDED]
    peer.handshake()
    assert len(peer.asked) == IN_FLIGHT_MAX
    peer.reply(3, MetadataResponse())
    assert len(peer.asked) == IN_FLIGHT_MAX


def test_a_request_that_still_waits_expires_alone(peer: Peer) -> None:
    peer.ask("first")
    peer.handshake()
    for number in range(IN_FLIGHT_MAX - 1):
        peer.ask(str(number))
    peer.us = 10
    for _ in range(IN_FLIGHT_MAX):
        peer.reply(3, MetadataResponse())
        peer.ask("later")
    peer.links.ask(
        _HERE,
        "control",
        MetadataRequest(),
        lambda answer, _: peer.answers.append(("short", answer)),
        peer.now,
        timeout_us=100,
    )
    peer.at(200)
    assert peer.answers[-1] == ("short", Loss.TIMED_OUT)
    assert len(peer.opened) == 1
    assert peer.links.deadline_us == _TIMEOUT_US + 10


def test_the_number_of_links_is_bounded(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINKS_MAX", 1)
    peer.ask("a", purpose="control")
    peer.ask("b", purpose="heartbeat")
    assert peer.answers == [("b", Loss.CROWDED)]


def test_a_closed_link_tells_its_requests_and_its_late_bytes_count_for_nothing(peer: Peer) -> None:
    peer.ask("first")
    peer.handshake()
    peer.links.close(_HERE, "control")
    assert any(isinstance(effect, Disconnect) for effect in peer.effects)
    peer.turn()
    assert peer.answers == [("first", Loss.ENDED)]
    peer.reply(3, MetadataResponse())
    assert len(peer.answers) == 1


def test_a_request_is_never_answered_within_ask(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINKS_MAX", 0)
    told: list[Message | Loss] = []
    peer.links.ask(
        _HERE, "control", MetadataRequest(), lambda answer, _: told.append(answer), peer.now, timeout_us=1
    )
    assert told == []
    peer.links.deliver(peer.now)
    assert told == [Loss.CROWDED]


def test_nothing_is_told_once_the_broker_has_stopped(peer: Peer) -> None:
    peer.ask("first")
    peer.links.close_all()
    peer.turn()
    assert peer.answers == []
    assert peer.links.deadline_us is None
