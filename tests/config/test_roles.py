"""The roles of a node and its quorum: what is understood, and what is said about a contradiction."""

import pytest

from sparklog.errors import SettingsError
from sparklog_server.config.quorum_settings import Voter
from sparklog_server.config.settings import BrokerSettings

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
}
VOTERS = {"controller.quorum.voters": "1@127.0.0.1:9093,2@[::1]:9095"}
BOOTSTRAP = {"controller.quorum.bootstrap.servers": "127.0.0.1:9095, node2:9093"}
BROKER = {"process.roles": "broker", "controller.listener.names": "CONTROLLER"}
CONTROLLER = {
    "process.roles": "controller",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
}


def test_a_node_without_a_quorum_key_is_alone() -> None:
    assert BrokerSettings.of({}).is_alone
    assert BrokerSettings.of({"controller.quorum.voters": "1@localhost:9093"}).is_alone
    own = LISTENERS | {"controller.quorum.bootstrap.servers": "localhost:9093"}
    assert BrokerSettings.of(own).is_alone
    assert not BrokerSettings.of(own | {"controller.quorum.bootstrap.servers": "localhost:9094"}).is_alone
    assert not BrokerSettings.of(LISTENERS | BOOTSTRAP).is_alone


def test_voters_and_bootstrap_servers_are_addresses() -> None:
    settings = BrokerSettings.of(LISTENERS | VOTERS)
    assert settings.quorum.voters == (Voter(1, "127.0.0.1", 9093), Voter(2, "::1", 9095))
    assert BrokerSettings.of(LISTENERS | BOOTSTRAP).quorum.bootstrap_servers == (
        ("127.0.0.1", 9095),
        ("node2", 9093),
    )


def test_a_broker_and_a_controller_may_be_nodes_of_their_own() -> None:
    broker = BrokerSettings.of(BROKER | BOOTSTRAP)
    assert (broker.is_alone, [str(one) for one in broker.listeners]) == (
        False,
        ["PLAINTEXT://127.0.0.1:9092"],
    )
    controller = BrokerSettings.of(CONTROLLER | VOTERS)
    assert [one.name for one in controller.listeners] == ["CONTROLLER"]


def test_a_listeners_name_is_the_same_in_any_case() -> None:
    settings = BrokerSettings.of(LISTENERS | VOTERS | {"controller.listener.names": "controller"})
    assert settings.controller_listener_names == ("CONTROLLER",)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"process.roles": ""}, "a node needs a role: broker, controller, or both"),
        ({"process.roles": "controller"}, "set controller.quorum.bootstrap.servers=HOST:PORT"),
        (BROKER, "set controller.quorum.bootstrap.servers=HOST:PORT of its controllers"),
        (LISTENERS | VOTERS | {"node.id": "3"}, "add 3@HOST:PORT, or set process.roles=broker"),
        (BROKER | VOTERS, "node 1 is a voter and has only the role broker"),
        (
            BROKER | BOOTSTRAP | {"controller.listener.names": ""},
            "as in controller.listener.names=CONTROLLER",
        ),
        (BROKER | BOOTSTRAP | LISTENERS, "listeners: a node with process.roles=broker has no listener of"),
        (
            BROKER
            | BOOTSTRAP
            | {"advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"},
            "advertised.listeners: a node with process.roles=broker has no listener of",
        ),
        (CONTROLLER | VOTERS | {"listeners": LISTENERS["listeners"]}, "has only the listeners of"),
        (CONTROLLER | VOTERS | {"inter.broker.listener.name": "CONTROLLER"}, "remove it"),
        (VOTERS, "a controller of several nodes needs a listener for them"),
        (
            LISTENERS | VOTERS | {"controller.listener.names": "CONTROLLER,OTHER"},
            "OTHER for configuration controller.listener.names: a controller opens each",
        ),
        (
            LISTENERS | VOTERS | {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://0.0.0.0:9093"},
            "add CONTROLLER://<a name the nodes can resolve>:9093 to advertised.listeners",
        ),
        (LISTENERS | {"controller.quorum.voters": "1@127.0.0.1:1,1@127.0.0.1:2"}, "a node id appears twice"),
        (LISTENERS | {"controller.quorum.voters": "127.0.0.1:9093"}, "an entry is written ID@HOST:PORT"),
        (LISTENERS | {"controller.quorum.voters": "1@127.0.0.1"}, "an entry is written ID@HOST:PORT"),
        (LISTENERS | {"controller.quorum.voters": "1@::1:9093"}, "brackets"),
        (
            LISTENERS | {"controller.quorum.bootstrap.servers": "a:99999"},
            "HOST:PORT, the port from 0 to 65535",
        ),
    ],
)
def test_a_contradiction_is_refused_with_what_to_set(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        BrokerSettings.of(given, is_insecure_allowed=True)
