"""Links between simulated nodes: a real broker answers what another asks."""

from random import Random

from sparklog.effects import Loss
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse
from sparklog.wire.schema import Message
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.cluster import SimulatedNode
from sparklog_server.simulation.disk import SimulatedDisk

_TIMEOUT_US = 2_000_000


class Nodes:
    """Nodes that reach each other; each is a cluster of one."""

    def __init__(self, count: int) -> None:
        self.clock = VirtualClock()
        self.network: list[SimulatedNode] = []
        for number in range(1, count + 1):
            settings = BrokerSettings.of(
                {
                    "log.dirs": "/data",
                    "listeners": f"PLAINTEXT://127.0.0.{number}:9092",
                    "node.id": str(number),
                }
            )
            node = SimulatedNode(self.clock, Random(number), SimulatedDisk(), settings, network=self.network)
            node.start()
        self.settle()
        self.answers: list[Message | Loss] = []

    def settle(self, ms: int = 1000) -> None:
        self.clock.run(until_us=self.clock.now.mono_us + ms * 1000)

    def ask(self, source: int, target: int) -> None:
        node = self.network[source - 1]
        links = node.running._context.links
        links.ask(
            (f"127.0.0.{target}", 9092),
            "control",
            MetadataRequest(topics=None),
            lambda answer, _: self.answers.append(answer),
            self.clock.now,
            timeout_us=_TIMEOUT_US,
        )
        node._carry_out(node.running.tick(self.clock.now))


def test_a_node_asks_another() -> None:
    nodes = Nodes(2)
    nodes.ask(1, 2)
    nodes.ask(1, 2)
    nodes.settle()
    first, second = nodes.answers
    assert isinstance(first, MetadataResponse)
    assert isinstance(second, MetadataResponse)
    assert [broker.node_id for broker in first.brokers] == [2]


def test_no_process_at_the_address() -> None:
    nodes = Nodes(2)
    nodes.network[1].kill()
    nodes.ask(1, 2)
    nodes.settle()
    assert nodes.answers == [Loss.REFUSED]


def test_the_other_process_ends_while_the_request_is_under_way() -> None:
    nodes = Nodes(2)
    nodes.ask(1, 2)
    nodes.settle()
    nodes.network[1].pause()
    nodes.ask(1, 2)
    nodes.settle()
    nodes.network[1].kill()
    nodes.settle()
    assert isinstance(nodes.answers[0], MetadataResponse)
    assert nodes.answers[1:] == [Loss.ENDED]


def test_a_paused_process_costs_the_deadline_and_answers_nothing_late() -> None:
    nodes = Nodes(2)
    nodes.ask(1, 2)
    nodes.settle()
    nodes.network[1].pause()
    nodes.ask(1, 2)
    nodes.settle(3000)
    assert nodes.answers[1:] == [Loss.TIMED_OUT]
    nodes.network[1].resume()
    nodes.settle()
    assert len(nodes.answers) == 2
    nodes.ask(1, 2)
    nodes.settle()
    assert isinstance(nodes.answers[2], MetadataResponse)


def test_a_node_that_stops_closes_its_links() -> None:
    nodes = Nodes(2)
    nodes.ask(1, 2)
    nodes.settle()
    nodes.network[0].stop()
    nodes.settle()
    assert nodes.network[1]._connections == {}
