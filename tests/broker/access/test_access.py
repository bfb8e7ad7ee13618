"""Every API asks for what Kafka asks for, and a refusal is Kafka's: one request of each API, by a client with
no rights, some, or all.
"""

import pytest

from sparklog.client.transport.connection import api_of
from sparklog.errors import ErrorCode
from sparklog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from sparklog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from sparklog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.metadata import MetadataResponse
from sparklog.wire.schema import Message
from sparklog_server.config.access_settings import STANDARD_AUTHORIZER
from sparklog_server.metadata.acls import AclRule, Operation, PatternType, Permission, ResourceType
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import World
from tests.compatibility.access_client import ADMINISTRATOR, CLIENT, outcome, rule
from tests.compatibility.access_coordinators import TOPICS, Asked
from tests.compatibility.access_matrix import is_refused, rights
from tests.compatibility.access_requests import requests

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
}
OPEN_TO_ALL = {"Metadata of all", "ListGroups", "ListTransactions", "DescribeCluster"}
"""They answer everyone, with what the client may see."""


class Access:
    """A broker with rules, its administrator, and the client under test."""

    def __init__(self, **more: str) -> None:
        self.world = World(1, **{**SETTINGS, **more})
        self.world.node.start()
        self.world.settle()
        self.admin = self.world.node.connect(host=ADMINISTRATOR)
        self.client = self.world.node.connect(host=CLIENT)
        self.add(
            [
                rule(
                    kind,
                    Operation.ALL,
                    "kafka-cluster" if kind is ResourceType.CLUSTER else "*",
                    host=ADMINISTRATOR,
                )
                for kind in ResourceType
                if kind is not ResourceType.ANY
            ]
        )
        for one in TOPICS:
            self.world.create(self.admin, one, partitions=1)

    def ask(self, asked: Asked, connection: SimulatedConnection | None = None) -> Message:
        version = api_of(type(asked.request)).until if asked.version is None else asked.version
        return self.world.ask(connection or self.client, asked.request, version, asked.reply)

    def add(
        self, rules: list[AclRule], connection: SimulatedConnection | None = None
    ) -> list[tuple[int, str | None]]:
        creations = [
            AclCreation(
                one.resource_type,
                one.resource_name,
                one.pattern_type,
                one.principal,
                one.host,
                one.operation,
                one.permission_type,
            )
            for one in rules
        ]
        reply = self.ask(Asked(CreateAclsRequest(creations), CreateAclsResponse), self.admin)
        assert isinstance(reply, CreateAclsResponse)
        return [(one.error_code, one.error_message) for one in reply.results]


@pytest.fixture
def access() -> Access:
    return Access()


def test_a_client_without_rights_is_refused_by_every_api_that_needs_one(access: Access) -> None:
    answers = {name: outcome(access.ask(asked)) for name, asked in requests("nothing").items()}
    assert {name for name, told in answers.items() if not is_refused(told)} == OPEN_TO_ALL
    assert not any("seen" in one or "hidden" in one for name in OPEN_TO_ALL for one in answers[name])


def test_a_client_with_every_right_is_refused_by_none(access: Access) -> None:
    access.add(rights()["everything"])
    answers = {name: outcome(access.ask(asked)) for name, asked in requests("everything").items()}
    assert [name for name, told in answers.items() if is_refused(told)] == []


def test_a_client_with_half_of_the_rights_learns_nothing_of_the_other_half(access: Access) -> None:
    access.add(rights()["half"])
    seen = access.ask(requests("half")["Metadata"])
    assert isinstance(seen, MetadataResponse)
    codes = {one.name: one.error_code for one in seen.topics}
    assert codes == {
        "seen": ErrorCode.NONE,
        "seen-none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "hidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "hid-none": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    listed = access.ask(requests("half")["Metadata of all"])
    assert isinstance(listed, MetadataResponse)
    assert [one.name for one in listed.topics] == ["seen"]


def test_a_client_that_pretends_to_be_a_follower_gets_no_records(access: Access) -> None:
    access.add(rights()["read"])
    pretended = access.ask(requests("-")["Fetch as a follower"])
    assert isinstance(pretended, FetchResponse)
    parts = [part for topic in pretended.responses for part in topic.partitions]
    assert {part.error_code for part in parts} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert not is_refused(outcome(access.ask(requests("-")["Fetch"])))


def test_a_request_that_names_a_topic_twice_changes_nothing(access: Access) -> None:
    twice = [
        Asked(
            DeleteTopicsRequest(
                topics=[DeleteTopicState("seen"), DeleteTopicState("seen", b"i" * 16)], timeout_ms=5000
            ),
            DeleteTopicsResponse,
        ),
        Asked(
            DeleteTopicsRequest(topics=[DeleteTopicState("seen"), DeleteTopicState("seen")], timeout_ms=5000),
            DeleteTopicsResponse,
        ),
        Asked(
            CreateTopicsRequest([CreatableTopic("new", 1, 1), CreatableTopic("new", 2, 1)], 5000),
            CreateTopicsResponse,
        ),
        Asked(
            CreatePartitionsRequest([CreatePartitionsTopic("seen", count) for count in (5, 6)], 5000),
            CreatePartitionsResponse,
        ),
    ]
    told = [outcome(access.ask(asked)) for asked in twice]
    assert is_refused(told[0])
    assert all("INVALID_REQUEST" in str(one) for one in told)
    listed = access.ask(requests("-")["Metadata of all"], access.admin)
    assert isinstance(listed, MetadataResponse)
    assert {str(one.name): len(one.partitions) for one in listed.topics} == {"hidden": 1, "seen": 1}


def test_a_missing_topic_is_created_only_by_a_client_that_may(access: Access) -> None:
    access.add([rule(ResourceType.TOPIC, Operation.DESCRIBE, "*")])
    asked = requests("a")["Metadata that creates"]
    assert is_refused(outcome(access.ask(asked)))
    access.add([rule(ResourceType.TOPIC, Operation.CREATE, "seen", pattern=PatternType.PREFIXED)])
    access.ask(asked)
    listed = access.ask(requests("-")["Metadata of all"])
    assert isinstance(listed, MetadataResponse)
    assert sorted(str(one.name) for one in listed.topics) == ["hidden", "seen", "seen-new-a-auto"]


def test_a_created_topic_shows_its_settings_only_to_a_client_that_may_describe_them(
    access: Access,
) -> None:
    access.add([rule(ResourceType.CLUSTER, Operation.CREATE, "kafka-cluster")])
    made = access.ask(requests("a")["CreateTopics"])
    assert isinstance(made, CreateTopicsResponse)
    found = {one.name: one for one in made.topics}["seen-new-a"]
    hidden = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, [])
    assert found.error_code == ErrorCode.NONE
    assert (
        found.topic_config_error_code,
        found.num_partitions,
        found.replication_factor,
        found.configs,
    ) == hidden


# -- the rules themselves


def described(access: Access, wanted: DescribeAclsRequest) -> list[tuple[str, str]]:
    reply = access.ask(Asked(wanted, DescribeAclsResponse), access.admin)
    assert isinstance(reply, DescribeAclsResponse)
    assert reply.error_code == ErrorCode.NONE
    return [(one.resource_name, acl.host) for one in reply.resources for acl in one.acls]


def test_rules_are_added_once_described_by_filters_and_removed(access: Access) -> None:
    new = rule(ResourceType.TOPIC, Operation.READ, "pay", pattern=PatternType.PREFIXED)
    assert access.add([new, new]) == [(0, None), (0, None)]
    assert access.add([new]) == [(0, None)]
    covering = DescribeAclsRequest(ResourceType.TOPIC, "payments", PatternType.MATCH, None, None, 1, 1)
    assert sorted(described(access, covering)) == [("*", ADMINISTRATOR), ("pay", CLIENT)]
    wanted = DeleteAclsFilter(ResourceType.ANY, None, PatternType.ANY, None, CLIENT, 1, 1)
    removed = access.ask(Asked(DeleteAclsRequest([wanted, wanted]), DeleteAclsResponse), access.admin)
    assert isinstance(removed, DeleteAclsResponse)
    assert [len(one.matching_acls) for one in removed.filter_results] == [1, 1]
    assert described(access, covering) == [("*", ADMINISTRATOR)]


def test_rules_outlive_a_restart(access: Access) -> None:
    access.add(rights()["half"])
    access.world.node.stop()
    access.world.node.start()
    access.world.settle()
    client = access.world.node.connect(host=CLIENT)
    told = outcome(access.ask(requests("half")["ListOffsets"], client))
    assert is_refused(told)
    assert any("NONE" in one for one in told)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            rule(ResourceType.CLUSTER, Operation.READ, "mine"),
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (rule(ResourceType.TOPIC, Operation.READ, ""), "Invalid empty resource name"),
        (
            AclRule(ResourceType.TOPIC, "t", 3, "alice", "*", Operation.READ, Permission.ALLOW),
            "Could not parse principal from `alice` (no colon is present separating the principal type from "
            "the principal name)",
        ),
        (
            rule(ResourceType.TOPIC, Operation.READ, "t", host="10.0.0.0/33"),
            "The host `10.0.0.0/33` is no network in CIDR notation, such as 10.0.0.0/8",
        ),
        (
            rule(ResourceType.TOPIC, Operation.READ, "t", pattern=PatternType.MATCH),
            "Invalid patternType MATCH",
        ),
    ],
)
def test_a_rule_that_means_nothing_is_refused_by_itself(access: Access, bad: AclRule, message: str) -> None:
    good = rule(ResourceType.TOPIC, Operation.READ, "t")
    assert access.add([bad, good]) == [(ErrorCode.INVALID_REQUEST, message), (0, None)]


def test_many_rules_are_described_in_a_job(access: Access) -> None:
    many = [rule(ResourceType.TOPIC, Operation.READ, f"t{index}") for index in range(1000)]
    access.add(many)
    everything = DescribeAclsRequest(1, None, PatternType.ANY, None, CLIENT, 1, 1)
    assert len(described(access, everything)) == len(many)


def test_without_rules_for_everyone_only_super_users_may_add_some() -> None:
    world = World(1, **{"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"})
    world.node.start()
    world.settle()
    reply = world.ask(
        world.node.connect(),
        CreateAclsRequest([AclCreation(2, "t", 3, "User:a", "*", 3, 3)]),
        3,
        CreateAclsResponse,
    )
    assert isinstance(reply, CreateAclsResponse)
    assert reply.results[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_refusal_is_written_to_the_audit_log_and_a_filter_is_not(access: Access) -> None:
    before = len(audited(access))
    access.ask(requests("-")["Metadata of all"])
    assert len(audited(access)) == before
    access.ask(requests("-")["ListOffsets"])
    denied = f"audit decision=denied principal=User:ANONYMOUS host={CLIENT} operation=DESCRIBE"
    assert audited(access)[before:] == [
        f"{denied} resource_type=TOPIC resource_name={name} count=1" for name in TOPICS
    ]


def audited(access: Access) -> list[str]:
    return [line for line in access.world.node.trace if line.startswith("audit ")]
