"""Members against a coordinator that follows a script: the requests, the calls due by the user, and what
every error means.
"""

import pytest

from sparklog.client.failures import FencedInstance
from sparklog.client.membership.assignors import encode_assignment
from sparklog.client.membership.member import Step, StepKind, Subscription
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode
from sparklog.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    CooperativeUserData,
    StickyUserData,
    decode_prefixed,
    decode_user_data,
)
from sparklog.wire.messages.heartbeat import HeartbeatRequest
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from sparklog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.client.membership.member_script import T0, T1, Script
from tests.client.wire import metadata

# -- joining -------------------------------------------------------------------------------------------------


def test_nothing_is_joined_before_the_first_poll() -> None:
    script = Script()
    script.group.subscribe(Subscription(("t",)), script.now)
    assert script.group.errands(script.now) == []


def test_a_new_member_joins_again_with_the_id_that_it_was_given() -> None:
    script = Script()
    script.subscribe()
    script.find()
    assert script.sent(JoinGroupRequest).member_id == ""
    script.answer(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    assert script.sent(JoinGroupRequest).member_id == "me"


def test_the_leader_asks_for_the_partitions_of_everybodys_topics_and_shares_them_out() -> None:
    script = Script()
    script.subscribe()
    script.find()
    mine = script.sent(JoinGroupRequest).protocols[0].metadata
    members = [JoinGroupResponseMember("me", None, mine), JoinGroupResponseMember("other", None, mine)]
    script.answer(
        JoinGroupResponse(
            generation_id=1, protocol_name="range", leader="me", member_id="me", members=members
        )
    )
    assert script.sent(MetadataRequest).allow_auto_topic_creation is False
    script.answer(metadata({"t": [1, 1]}))
    told = {share.member_id: share.assignment for share in script.sent(SyncGroupRequest).assignments}
    assert told == {"me": encode_assignment([T0]), "other": encode_assignment([T1])}


def test_a_static_leader_that_came_back_hands_nothing_in() -> None:
    script = Script(group_instance_id="one")
    script.subscribe()
    script.find()
    mine = script.sent(JoinGroupRequest).protocols[0].metadata
    told = JoinGroupResponse(
        generation_id=7, protocol_name="range", leader="me", member_id="me", skip_assignment=True
    )
    told.members = [JoinGroupResponseMember("me", "one", mine)]
    script.answer(told)
    script.sent(MetadataRequest)
    script.answer(metadata({"t": [1, 1]}))
    assert script.sent(SyncGroupRequest).assignments == []


def test_cooperative_members_say_what_they_own_and_since_when() -> None:
    script = Script(partition_assignment_strategy="cooperative-sticky")
    script.member(T0, T1)
    script.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert script.group.step is None
    (protocol,) = script.sent(JoinGroupRequest).protocols
    told = decode_prefixed(ConsumerProtocolSubscription, protocol.metadata)
    assert (told.topics, told.generation_id) == (["t"], 1)
    assert [(owned.topic, owned.partitions) for owned in told.owned_partitions] == [("t", [0, 1])]
    assert told.user_data is not None
    assert decode_user_data(CooperativeUserData, told.user_data) == CooperativeUserData(generation=1)


def test_sticky_members_say_what_they_had_in_data_of_their_own() -> None:
    script = Script(partition_assignment_strategy="sticky,range")
    script.member(T1)
    script.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.group.errands(script.now)
    assert script.do() == Step(StepKind.REVOKE, (T1,), ())
    told = decode_prefixed(ConsumerProtocolSubscription, script.sent(JoinGroupRequest).protocols[0].metadata)
    assert told.owned_partitions == []
    assert told.user_data is not None
    had = decode_user_data(StickyUserData, told.user_data)
    assert had is not None
    assert (had.generation, had.previous_assignment[0].partitions) == (1, [1])


def test_cooperative_members_give_up_what_went_to_others_and_join_once_more() -> None:
    script = Script(partition_assignment_strategy="cooperative-sticky")
    script.member(T0, T1)
    script.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.joined(T0, generation=2)
    assert script.do() == Step(StepKind.REVOKE, (T1,), (T0,))
    assert script.group.errands(script.now) == []
    assert script.do() == Step(StepKind.ASSIGN, (), (T0,))
    assert script.sent(JoinGroupRequest).member_id == "me"


def test_heartbeats_go_on_while_the_listener_is_not_done() -> None:
    script = Script()
    script.member(T0)
    script.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert script.group.errands(script.now) == []
    step = script.group.member.steps.begin()
    assert step.kind is StepKind.REVOKE
    script.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.group.member.step_done(script.now)
    script.sent(JoinGroupRequest)


def test_a_subscription_that_changed_while_joining_is_joined_for_afterwards() -> None:
    script = Script()
    script.subscribe("t")
    script.find()
    script.sent(JoinGroupRequest)
    script.group.subscribe(Subscription(("t", "u")), script.now)
    script.answer(JoinGroupResponse(generation_id=1, protocol_name="range", leader="other", member_id="me"))
    script.sent(SyncGroupRequest)
    script.answer(SyncGroupResponse(assignment=b""))
    told = decode_prefixed(ConsumerProtocolSubscription, script.sent(JoinGroupRequest).protocols[0].metadata)
    assert told.topics == ["t", "u"]


# -- trouble -------------------------------------------------------------------------------------------------


def test_a_coordinator_that_moved_is_found_again_and_nothing_is_lost() -> None:
    script = Script()
    script.member(T0)
    script.beat(ErrorCode.NOT_COORDINATOR)
    assert script.group.errands(script.now) == []
    script.later(3000)
    script.find(node=2)
    assert script.sent(HeartbeatRequest).generation_id == 1
    assert script.errand.node == 2
    assert script.group.step is None


def test_a_broken_connection_while_joining_means_joining_again_elsewhere() -> None:
    script = Script()
    script.subscribe()
    script.find()
    script.sent(JoinGroupRequest)
    script.group.failed(script.errand, ConnectionFailed("gone"), script.now)
    script.later(200)
    script.find(node=2)
    script.sent(JoinGroupRequest)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")]
)
def test_a_session_that_ended_loses_everything_and_joins_anew(code: ErrorCode, member_id: str) -> None:
    script = Script()
    script.member(T0, T1)
    script.beat(code)
    assert script.group.errands(script.now) == []
    assert script.do() == Step(StepKind.LOSE, (T0, T1), ())
    assert script.sent(JoinGroupRequest).member_id == member_id


def test_losing_the_session_while_a_listener_runs_is_told_after_it() -> None:
    script = Script()
    script.subscribe()
    script.find()
    script.joined(T0)
    script.group.member.steps.begin()
    script.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    script.group.member.step_done(script.now)
    assert script.do() == Step(StepKind.LOSE, (T0,), ())


def test_a_fenced_instance_stops_for_good() -> None:
    script = Script(group_instance_id="one")
    script.member(T0)
    script.beat(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(script.group.error, FencedInstance)
    script.later(60_000)
    assert script.group.errands(script.now) == []


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_what_no_waiting_will_mend_is_an_error_that_says_what_to_do(code: ErrorCode) -> None:
    script = Script()
    script.subscribe()
    script.find()
    script.sent(JoinGroupRequest)
    script.answer(JoinGroupResponse(error_code=code))
    assert isinstance(script.group.error, BrokerError)
    assert script.group.error.code is code
    assert "refused" not in str(script.group.error)


@pytest.mark.parametrize("garbage", [b"\x00", b"\xff\xff", b"\x00\x03\x7f\xff\xff\xff", bytes(3)])
def test_an_assignment_that_is_none_ends_the_membership_and_not_the_process(garbage: bytes) -> None:
    script = Script()
    script.subscribe()
    script.find()
    script.sent(JoinGroupRequest)
    script.answer(JoinGroupResponse(generation_id=1, protocol_name="range", leader="other", member_id="me"))
    script.sent(SyncGroupRequest)
    script.answer(SyncGroupResponse(assignment=garbage))
    assert isinstance(script.group.error, BrokerError)


def test_a_coordinator_that_refuses_again_and_again_is_asked_ever_more_slowly() -> None:
    script = Script()
    script.subscribe()
    script.find()
    waits = []
    for _ in range(5):
        script.sent(JoinGroupRequest)
        script.answer(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        deadline = script.group.deadline()
        assert deadline is not None
        waits.append((deadline - script.now) // 1000)
        script.now = deadline
    assert waits == [99, 199, 399, 799, 999]


def test_leaving_is_said_unless_the_member_is_static() -> None:
    script = Script()
    script.member(T0)
    script.group.leave(script.now)
    assert script.sent(LeaveGroupRequest).members[0].member_id == "me"
    script.answer(LeaveGroupResponse())
    assert script.group.member.has_left
    static = Script(group_instance_id="one")
    static.member(T0)
    static.group.leave(static.now)
    assert static.group.member.has_left
    assert static.group.errands(static.now) == []
