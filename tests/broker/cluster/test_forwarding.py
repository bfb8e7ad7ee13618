"""A broker forwards its clients' commands to the active controller on another node, and answers with the
decision.
"""

from collections.abc import Callable
from functools import partial

import pytest

from sparklog.client.transport.connection import api_of
from sparklog.effects import Loss
from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from sparklog.wire.messages.create_topics import CreateTopicsResponse
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from sparklog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Allow, Operation, Resource
from sparklog_server.broker.cluster.controller_link import ControllerLink
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.cluster.test_controller_listener import LISTENERS, creating
from tests.broker.world import World

CONTROLLER = ("controller", 9093)


class Cluster:
    """A controller, and a broker whose commands it decides; each has metadata of its own, so that a command
    shows where it was decided. The broker's links are connections to the controller, without a network.
    """

    def __init__(self, allow: Allow | None = None) -> None:
        self.controller = World(1, allow=allow, **LISTENERS)
        self.controller.node.start()
        self.controller.settle()
        self.broker = World(2, allow=allow)
        self.broker.clock = self.controller.clock
        self.broker.node._clock = self.controller.clock
        self.broker.node.start()
        self.broker.settle()
        self.is_reachable = True
        running = self.broker.node.running
        link = ControllerLink(self, self, running._trace, heartbeat_us=9_000_000)
        running._context.controllers = running._context.proposals.controllers = link
        running._controller_epoch = running._quorum.epoch  # its heartbeats went to itself
        self._links: dict[str, SimulatedConnection] = {}
        self.purposes: list[str] = []

    # -- the quorum of the broker: it does not lead

    is_leader = False

    def controller_address(self) -> tuple[str, int]:
        return CONTROLLER

    def propose(self, *_: object) -> None:
        raise AssertionError("decided on the wrong node")

    # -- its links

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
        assert address == CONTROLLER
        clock = self.controller.clock
        if not self.is_reachable:
            clock.after(100, partial(self._told, then, Loss.REFUSED))
            return
        link = self._links.get(purpose)
        if link is None:
            link = self._links[purpose] = self.controller.node.connect(listener="CONTROLLER")
        self.purposes.append(purpose)
        link.heard = lambda: clock.after(100, partial(self._told, then, link.replies[-1])) and None
        api = api_of(type(request))
        link.send(request, api.until, api.reply())

    def _told(self, then: Callable[[Message | Loss, Instant], None], told: Message | Loss) -> None:
        then(told, self.controller.clock.now)
        self.broker.node._carry_out(self.broker.node.running._end_of_turn(self.controller.clock.now))

    def ask_broker(self, request: Message, version: int, reply: type[Message]) -> Message:
        return self.broker.ask(self.broker.node.connect(), request, version, reply)

    @property
    def topics(self) -> tuple[list[str], list[str]]:
        """The topics in the metadata of the controller, and of the broker."""
        return (
            list(self.controller.node.running._quorum.image.topics_by_name),
            list(self.broker.node.running._quorum.image.topics_by_name),
        )


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_by_the_controller_in_each_version(version: int) -> None:
    cluster = Cluster()
    answer = cluster.ask_broker(creating("t"), version, CreateTopicsResponse)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert cluster.topics == (["t"], [])
    again = cluster.ask_broker(creating("t"), version, CreateTopicsResponse)
    assert isinstance(again, CreateTopicsResponse)
    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


COMMANDS: dict[str, tuple[Message, int, type[Message]]] = {
    "DeleteTopics by name": (
        DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000),
        5,
        DeleteTopicsResponse,
    ),
    "CreatePartitions": (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)], timeout_ms=1000),
        3,
        CreatePartitionsResponse,
    ),
    "IncrementalAlterConfigs": (
        IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(2, "t", [AlterableConfig("retention.ms", 0, "1000")])]
        ),
        1,
        IncrementalAlterConfigsResponse,
    ),
    "AlterClientQuotas": (
        AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntryData(
                    [EntityData("user", "alice")], [OpData("producer_byte_rate", 1000.0)]
                )
            ]
        ),
        1,
        AlterClientQuotasResponse,
    ),
    "ElectLeaders": (ElectLeadersRequest(topic_partitions=None, timeout_ms=1000), 2, ElectLeadersResponse),
    "AlterPartitionReassignments": (
        AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic("t", [ReassignablePartition(0, [1])])], timeout_ms=1000
        ),
        1,
        AlterPartitionReassignmentsResponse,
    ),
    "UpdateFeatures": (UpdateFeaturesRequest(timeout_ms=1000), 1, UpdateFeaturesResponse),
    "UnregisterBroker": (UnregisterBrokerRequest(broker_id=7), 0, UnregisterBrokerResponse),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_forwarded_command_is_answered_as_by_the_controller_itself(name: str) -> None:
    request, version, reply = COMMANDS[name]
    cluster, alone = Cluster(), World(1)
    alone.node.start()
    alone.settle()
    cluster.ask_broker(creating("t"), 7, CreateTopicsResponse)
    alone.ask(alone.node.connect(), creating("t"), 7, CreateTopicsResponse)
    expected = alone.ask(alone.node.connect(), request, version, reply)
    assert cluster.ask_broker(request, version, reply) == expected
    assert cluster.purposes == ["control", "control"]


def test_metadata_has_a_topic_created_in_the_name_of_its_client() -> None:
    cluster = Cluster()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
    cluster.ask_broker(request, 12, MetadataResponse)
    assert cluster.topics == (["auto"], [])


def test_both_nodes_check_the_rights_of_the_client() -> None:
    asked: list[tuple[str, str]] = []

    def allow(principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        asked.append((principal, operation.name))
        return True

    cluster = Cluster(allow)
    asked.clear()
    cluster.ask_broker(creating("t"), 7, CreateTopicsResponse)
    needed = [one for _, one in asked if one != "DESCRIBE_CONFIGS"]  # which only hides a part of the response
    assert needed == ["CREATE", "CLUSTER_ACTION", "CREATE"]


def test_a_command_waits_for_a_controller_that_is_not_reached() -> None:
    cluster = Cluster()
    cluster.is_reachable = False
    client = cluster.broker.node.connect()
    client.send(creating("t"), 7, CreateTopicsResponse)
    cluster.broker.settle(5_000)
    assert client.replies == []
    cluster.is_reachable = True
    cluster.broker.settle(200)
    [answer] = client.replies
    assert isinstance(answer, CreateTopicsResponse)
    assert (answer.topics[0].error_code, cluster.topics) == (ErrorCode.NONE, (["t"], []))


def test_a_command_that_no_controller_decides_is_timed_out() -> None:
    cluster = Cluster()
    cluster.is_reachable = False
    client = cluster.broker.node.connect()
    client.send(creating("t"), 7, CreateTopicsResponse)
    cluster.broker.settle(31_000)
    [answer] = client.replies
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_client_that_leaves_does_not_disturb_its_command() -> None:
    cluster = Cluster()
    client = cluster.broker.node.connect()
    client.send(creating("t"), 7, CreateTopicsResponse)
    cluster.broker.node.disconnect(client)
    cluster.broker.settle()
    assert cluster.topics == (["t"], [])
