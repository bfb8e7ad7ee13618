"""Access where there are several nodes: requests that a broker forwards, the requests of brokers among
themselves, and a node that does not know the rules yet.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.wire.codec import encode
from sparklog.wire.header import decode_reply
from sparklog.wire.messages.create_topics import CreateTopicsResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.broker.cluster.controller_link import PrincipalData, joined
from sparklog_server.config.access_settings import STANDARD_AUTHORIZER
from sparklog_server.metadata.acls import AclRule, Operation, PatternType, Permission, ResourceType
from tests.broker.access.test_access import Access
from tests.broker.cluster.test_controller_listener import LISTENERS, creating, forwarded, framed, in_envelope
from tests.broker.clusters import Cluster
from tests.compatibility.access_client import rule


def of(principal: str, host: str) -> AclRule:
    return AclRule(
        ResourceType.TOPIC, "t", PatternType.LITERAL, principal, host, Operation.CREATE, Permission.ALLOW
    )


@pytest.mark.parametrize(
    ("right", "address", "groups", "is_allowed"),
    [
        (of("User:alice", "*"), "10.1.2.3", [], True),
        (of("User:bob", "*"), "10.1.2.3", [], False),
        (of("User:alice", "10.1.2.3"), "10.1.2.3", [], True),
        (of("User:alice", "10.1.2.3"), "10.1.2.4", [], False),
        (of("Group:ops", "10.0.0.0/8"), "10.1.2.4", ["Group:ops"], True),
        (of("Group:ops", "10.0.0.0/8"), "10.1.2.4", [], False),
    ],
)
def test_a_forwarded_request_is_decided_for_the_principal_groups_and_address_of_its_client(
    right: AclRule, address: str, groups: list[str], is_allowed: bool
) -> None:
    access = Access(**LISTENERS)
    access.add([right, rule(ResourceType.CLUSTER, Operation.CLUSTER_ACTION, "kafka-cluster", host="client")])
    principal = b"\0\0" + joined(encode(PrincipalData(type="User", name="alice", groups=groups), 0))
    packed = bytes(int(part) for part in address.split("."))
    answer = forwarded(access.world, in_envelope(framed(creating(), 7), principal, packed))
    assert answer.response_data is not None
    _, reply = decode_reply(CreateTopicsResponse, 7, answer.response_data)
    expected = ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert reply.topics[0].error_code == expected


def test_an_envelope_of_a_client_is_refused() -> None:
    access = Access(**LISTENERS)
    answer = forwarded(access.world, in_envelope(framed(creating(), 7)))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_three_nodes_that_are_super_users_replicate() -> None:
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
    cluster = Cluster(**settings).start()
    cluster.run_until(lambda: cluster.is_ready)
    assert cluster.create(cluster.nodes[NodeId(1)], "t", replicas=3) == ErrorCode.NONE
    cluster.run_until(lambda: cluster.leading() is not None and cluster.isr() == {1, 2, 3})
    leader = cluster.leading()
    assert leader is not None
    client = cluster.send(leader, b"v")
    cluster.run_until(lambda: bool(client.replies))
    reply = client.replies[0]
    assert isinstance(reply, ProduceResponse)
    assert reply.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_a_node_that_does_not_know_the_rules_yet_ends_the_session_instead_of_refusing() -> None:
    cluster = Cluster(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:admin")
    node = cluster.nodes[NodeId(1)]
    node.start()
    cluster.run(100)
    client = node.connect()
    client.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9, MetadataResponse)
    cluster.run(100)
    assert (client.replies, client.is_closed) == ([], True)
