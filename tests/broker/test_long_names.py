"""Names as long as the wire carries them: what the broker makes of them, ids and messages, has to fit the
wire as well.
"""

import pytest

from sparklog.errors import ErrorCode, code_of
from sparklog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from sparklog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from sparklog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.groups import JOIN, ask_coordinator, join, started
from tests.broker.world import World

LONGEST = 32_767
NAMES = ["n" * LONGEST, "ä" * (LONGEST // 2)]


def ready(client_id: str = "simulation") -> tuple[World, SimulatedConnection]:
    world = started()
    client = world.node.connect(client_id)
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    return world, client


@pytest.mark.parametrize("name", NAMES)
def test_the_longest_client_id_is_cut_in_the_member_id_that_is_made_of_it(name: str) -> None:
    world, client = ready(name)
    asked = world.ask(client, join("g"), JOIN, JoinGroupResponse)
    assert isinstance(asked, JoinGroupResponse)
    assert code_of(asked.error_code) is ErrorCode.MEMBER_ID_REQUIRED
    joined = world.ask(client, join("g", asked.member_id), JOIN, JoinGroupResponse)
    assert isinstance(joined, JoinGroupResponse)
    assert (joined.error_code, joined.leader) == (0, asked.member_id)
    assert name.startswith(asked.member_id[:-37])


@pytest.mark.parametrize("name", NAMES)
def test_the_longest_instance_id_is_cut_in_the_member_id_that_is_made_of_it(name: str) -> None:
    world, client = ready()
    request = JoinGroupRequest(
        "g", 10_000, 60_000, "", name, "consumer", [JoinGroupRequestProtocol("range", b"")]
    )
    joined = world.ask(client, request, JOIN, JoinGroupResponse)
    assert isinstance(joined, JoinGroupResponse)
    assert (joined.error_code, joined.members[0].group_instance_id) == (0, name)


@pytest.mark.parametrize("name", NAMES)
def test_error_messages_with_the_longest_names_in_them_fit_an_answer(name: str) -> None:
    world, client = ready()
    described = world.ask(client, DescribeGroupsRequest(groups=[name]), 6, DescribeGroupsResponse)
    assert isinstance(described, DescribeGroupsResponse)
    assert code_of(described.groups[0].error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    consumers = world.ask(
        client, ConsumerGroupDescribeRequest(group_ids=[name]), 1, ConsumerGroupDescribeResponse
    )
    assert isinstance(consumers, ConsumerGroupDescribeResponse)
    assert code_of(consumers.groups[0].error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    beat = world.ask(client, ConsumerGroupHeartbeatRequest(name, "m", 3), 1, ConsumerGroupHeartbeatResponse)
    assert isinstance(beat, ConsumerGroupHeartbeatResponse)
    assert code_of(beat.error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    assert beat.error_message is not None
    assert beat.error_message.startswith(
        "there is no consumer group nnnn" if name[0] == "n" else "there is no consumer group ää"
    )


def test_the_longest_name_of_a_topic_is_refused_in_words_that_fit_an_answer() -> None:
    world, client = ready()
    assert world.create(client, "n" * LONGEST) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", NAMES)
def test_the_longest_names_of_users_and_features_are_refused_in_words_that_fit_an_answer(name: str) -> None:
    world, client = ready()
    for users, code in (
        ([UserName(name)], ErrorCode.RESOURCE_NOT_FOUND),
        ([UserName(name)] * 2, ErrorCode.DUPLICATE_RESOURCE),
    ):
        request = DescribeUserScramCredentialsRequest(users=users)
        told = world.ask(client, request, 0, DescribeUserScramCredentialsResponse)
        assert isinstance(told, DescribeUserScramCredentialsResponse)
        assert code_of(told.results[0].error_code) is code
    features = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(name, max_version_level=9, upgrade_type=1)]
    )
    refused = world.ask(client, features, 1, UpdateFeaturesResponse)
    assert isinstance(refused, UpdateFeaturesResponse)
    assert refused.error_code != 0
