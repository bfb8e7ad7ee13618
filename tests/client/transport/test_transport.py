"""The connections of a client to the brokers of a cluster."""

from sparklog.client.clock import now_us
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.network import Network
from sparklog.model import Micros, NodeId
from tests.client.wire import ScriptedBroker, metadata


def test_the_broker_of_a_connection_may_leave_in_the_turn_in_which_the_connection_opens() -> None:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        nodes = [(1, one.port), (2, two.port)]
        one.handlers["Metadata"] = lambda _: metadata(nodes=nodes)
        network = Network(ClientSettings.for_role("admin", {"bootstrap_servers": one.address}))
        until = Micros(now_us() + 10_000_000)
        while NodeId(2) not in network.cluster.brokers or not network.is_ready(NodeId(1)):
            network.poll(until)
        nodes.pop()
        network.cluster.refresh_now()
        network._ask_metadata(now_us())
        assert len(network._selector.select(10)) == 1, "the response of broker 1 is here first"
        assert not network.is_ready(NodeId(2))
        network.poll(now_us())
        assert list(network.cluster.brokers) == [1]
        network.close()
