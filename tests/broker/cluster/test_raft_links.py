"""Requests of a raft node over links: responses, and losses that are told once."""

from collections.abc import Callable

from sparklog.effects import Loss
from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Millis, NodeId
from sparklog.wire.messages.fetch import FetchRequest, FetchResponse
from sparklog.wire.messages.vote import VoteRequest, VoteResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.raft_links import RaftLinks
from sparklog_server.raft.peers import Endpoint, Purpose

NOW = Instant(Micros(0), Millis(0))
PEER, WHERE = NodeId(2), Endpoint("node2", 9093)


class Wires:
    """Stands for the links and for the quorum of a raft node, and notes what each is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, int], str, Callable[[Message | Loss, Instant], None]]] = []
        self.told: list[tuple[object, ...]] = []
        self.raft = self
        self.port = RaftLinks(self, timeout_us=1)  # type: ignore[arg-type]  # has what is used of Links
        self.port.serve(self)  # type: ignore[arg-type]  # has what is used of Quorum

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
        self.asked.append((address, purpose, then))

    def close(self, address: tuple[str, int], purpose: str) -> None:
        self.told.append(("closed", address))

    def replied(self, correlation: int, response: Message, now: Instant) -> None:
        self.told.append(("replied", correlation, response))

    def lost(self, peer: object, purpose: Purpose, loss: Loss, now: Instant) -> None:
        self.told.append(("lost", peer, purpose, loss))

    def turned(self, now: Instant) -> None:
        """The quorum follows its raft node."""


def test_each_purpose_is_a_link_of_its_own_to_the_endpoint_of_the_node() -> None:
    wires = Wires()
    wires.port.located(PEER, WHERE)
    wires.port.send(PEER, Purpose.ELECTION, 1, VoteRequest(), NOW)
    wires.port.send(PEER, Purpose.REPLICATION, 2, FetchRequest(), NOW)
    assert [(address, purpose) for address, purpose, _ in wires.asked] == [
        (WHERE, "election"),
        (WHERE, "replication"),
    ]
    response = FetchResponse()
    wires.asked[1][2](response, NOW)
    assert wires.told == [("replied", 2, response)]


def test_a_lost_link_is_told_once_and_requests_sent_since_are_not_lost_with_it() -> None:
    wires = Wires()
    wires.port.located(PEER, WHERE)
    for correlation in (1, 2):
        wires.port.send(PEER, Purpose.ELECTION, correlation, VoteRequest(), NOW)
    wires.asked[0][2](Loss.RESET, NOW)
    wires.port.send(PEER, Purpose.ELECTION, 3, VoteRequest(), NOW)
    wires.asked[1][2](Loss.RESET, NOW)
    assert wires.told == [("lost", PEER, Purpose.ELECTION, Loss.RESET)]
    wires.asked[2][2](VoteResponse(), NOW)
    assert wires.told[1][:2] == ("replied", 3)


def test_a_node_without_a_known_address_is_sent_nothing() -> None:
    wires = Wires()
    wires.port.send(PEER, Purpose.ELECTION, 1, VoteRequest(), NOW)
    assert wires.asked == []


def test_a_voter_that_knows_no_pre_vote_says_so_and_keeps_its_link() -> None:
    wires = Wires()
    wires.port.located(PEER, WHERE)
    wires.port.send(PEER, Purpose.ELECTION, 1, VoteRequest(), NOW)
    wires.asked[0][2](Loss.UNSUPPORTED, NOW)
    response = VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    assert wires.told == [("replied", 1, response)]


def test_a_probe_ends_its_link_and_tells_whether_a_process_answers() -> None:
    wires = Wires()
    found: list[Loss | None] = []
    wires.port.probe(WHERE, lambda loss, _now: found.append(loss), NOW)
    wires.port.probe(WHERE, lambda loss, _now: found.append(loss), NOW)
    wires.asked[0][2](Loss.REFUSED, NOW)
    wires.asked[1][2](VoteResponse(), NOW)
    assert found == [Loss.REFUSED, None]
    assert wires.told == [("closed", WHERE)] * 2
