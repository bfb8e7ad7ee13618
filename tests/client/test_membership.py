"""Members against a coordinator that follows a script: what is sent, what the user has to do, and what every error means."""

from typing import TypeVar

import pytest

from sparklog.client.assignors import encode_assignment
from sparklog.client.failures import CommitFailed, FencedInstance, RebalanceInProgress
from sparklog.client.membership import Errand, Step, StepKind, Subscription
from sparklog.client.membership_group import Group
from sparklog.client.membership_offsets import Job, OffsetAndMetadata
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, RequestTimeout
from sparklog.model import Micros, TopicPartition
from sparklog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from sparklog.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    CooperativeUserData,
    StickyUserData,
    decode_prefixed,
    decode_user_data,
)
from sparklog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from sparklog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparklog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sparklog.wire.schema import Message
from tests.client.wire import TOPIC_ID, metadata, ms, no_chance, settings

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
M = TypeVar("M", bound=Message)


class Script:
    """One group's machine, the time, and the one question under way."""

    def __init__(self, **given: object) -> None:
        self.group = Group(settings(group_id="g", **given), no_chance)
        self.now = ms(1000)
        self.errand = Errand(MetadataRequest())

    def subscribe(self, *topics: str) -> None:
        self.group.subscribe(Subscription(topics or ("t",)), self.now)
        self.group.member.polled(self.now, is_inside=True)

    def sent(self, cls: type[M]) -> M:
        """The one request that leaves now."""
        (self.errand,) = self.group.errands(self.now)
        request = self.errand.request
        assert isinstance(request, cls), request
        return request

    def answer(self, reply: Message) -> None:
        self.group.replied(self.errand, reply, self.now)

    def later(self, milliseconds: int) -> None:
        self.now = Micros(self.now + milliseconds * 1000)

    def find(self, node: int = 1) -> None:
        self.sent(FindCoordinatorRequest)
        self.answer(FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=node)]))

    def joined(self, *partitions: TopicPartition, generation: int = 1) -> None:
        """Through the two steps of joining, as a follower, up to the listener."""
        self.sent(JoinGroupRequest)
        name = "cooperative-sticky" if "cooperative" in str(self.errand.request) and "range" not in str(self.errand.request) else "range"
        self.answer(JoinGroupResponse(generation_id=generation, protocol_name=name, leader="other", member_id="me"))
        self.sent(SyncGroupRequest)
        self.answer(SyncGroupResponse(assignment=encode_assignment(partitions)))

    def do(self) -> Step:
        step = self.group.member.take_step()
        self.group.member.step_done(self.now)
        return step

    def member(self, *partitions: TopicPartition) -> None:
        self.subscribe()
        self.find()
        self.joined(*partitions)
        self.do()

    def beat(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.later(3000)
        self.sent(HeartbeatRequest)
        self.answer(HeartbeatResponse(error_code=code))


def commit(**given: object) -> Job:
    chosen = {"deadline": ms(60_000), "offsets": {T0: OffsetAndMetadata(5, "note", 2)}} | given
    return Job(**chosen)  # type: ignore[arg-type]


def committed(code: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition(0, code)])])


# -- joining ------------------------------------------------------------------------------------------------------------------------------


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
    script.answer(JoinGroupResponse(generation_id=1, protocol_name="range", leader="me", member_id="me", members=members))
    assert script.sent(MetadataRequest).allow_auto_topic_creation is False
    script.answer(metadata({"t": [1, 1]}))
    told = {share.member_id: share.assignment for share in script.sent(SyncGroupRequest).assignments}
    assert told == {"me": encode_assignment([T0]), "other": encode_assignment([T1])}


def test_a_static_leader_that_came_back_hands_nothing_in() -> None:
    script = Script(group_instance_id="one")
    script.subscribe()
    script.find()
    mine = script.sent(JoinGroupRequest).protocols[0].metadata
    told = JoinGroupResponse(generation_id=7, protocol_name="range", leader="me", member_id="me", skip_assignment=True)
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
    step = script.group.member.take_step()
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


# -- trouble ------------------------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")])
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
    script.group.member.take_step()
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
    "code", [ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_AUTHORIZATION_FAILED]
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


# -- offsets ------------------------------------------------------------------------------------------------------------------------------


def test_a_commit_carries_member_generation_epoch_and_note() -> None:
    script = Script()
    script.member(T0)
    job = script.group.commit(commit())
    request = script.sent(OffsetCommitRequest)
    told = request.topics[0].partitions[0]
    assert (request.member_id, request.generation_id_or_member_epoch) == ("me", 1)
    assert (told.committed_offset, told.committed_metadata, told.committed_leader_epoch) == (5, "note", 2)
    script.answer(committed())
    assert (job.is_done, job.error) == (True, None)


def test_outside_any_subscription_a_commit_is_that_of_no_member() -> None:
    script = Script()
    script.group.commit(commit())
    script.group.errands(script.now)
    script.group.coordinator.replied(FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=1)]), script.now)
    request = script.sent(OffsetCommitRequest)
    assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)


def test_a_commit_is_tried_again_where_that_helps_and_an_asynchronous_one_is_not() -> None:
    script = Script()
    script.member(T0)
    for may_retry in (True, False):
        job = script.group.commit(commit(may_retry=may_retry))
        script.sent(OffsetCommitRequest)
        script.answer(committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        assert job.is_done is not may_retry
        if may_retry:
            script.later(200)
            script.sent(OffsetCommitRequest)
            script.answer(committed())
            assert job.error is None


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgress),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailed),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailed),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstance),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, BrokerError),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, BrokerError),
    ],
)
def test_what_a_refused_commit_means(code: ErrorCode, error: type[Exception]) -> None:
    script = Script()
    script.member(T0)
    job = script.group.commit(commit())
    script.sent(OffsetCommitRequest)
    script.answer(committed(code))
    assert type(job.error) is error
    is_lost = code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
    assert (script.group.step is not None and script.group.step.kind is StepKind.LOSE) is is_lost


def test_committing_while_joining_says_to_poll_first() -> None:
    script = Script()
    script.subscribe()
    with pytest.raises(RebalanceInProgress, match="poll"):
        script.group.commit(commit())


def test_a_commit_that_nobody_answers_ends_in_time() -> None:
    script = Script()
    script.member(T0)
    job = script.group.commit(commit(deadline=Micros(script.now + 500_000)))
    script.sent(OffsetCommitRequest)
    script.later(500)
    script.group.errands(script.now)
    assert isinstance(job.error, RequestTimeout)


def test_readers_of_committed_records_wait_for_stable_offsets() -> None:
    script = Script(isolation_level="read_committed")
    script.member(T0)
    job = script.group.offsets.add(Job(deadline=ms(60_000), wanted=(T0,)))
    assert script.sent(OffsetFetchRequest).require_stable
    told = OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    script.answer(OffsetFetchResponse(groups=[told]))
    assert not job.is_done


# -- KIP-848 ------------------------------------------------------------------------------------------------------------------------------


def share(*partitions: int, epoch: int = 1, is_changed: bool = True) -> ConsumerGroupHeartbeatResponse:
    told = [TopicPartitions(topic_id=TOPIC_ID, partitions=list(partitions))] if partitions else []
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=5000, assignment=Assignment(told) if is_changed else None
    )


def modern(*partitions: int, **given: object) -> Script:
    """A member that has acknowledged these partitions of `t`."""
    script = Script(group_protocol="consumer", **given)
    script.subscribe()
    script.find()
    request = script.sent(ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.subscribed_topic_names, request.topic_partitions) == (0, ["t"], [])
    script.answer(share(*partitions))
    script.sent(MetadataRequest)
    script.answer(metadata({"t": [1, 1]}))
    script.do()
    acknowledged = script.sent(ConsumerGroupHeartbeatRequest)
    assert acknowledged.topic_partitions is not None
    assert [told.partitions for told in acknowledged.topic_partitions] == [list(partitions)]
    script.answer(share(epoch=2, is_changed=False))
    return script


def test_heartbeats_come_at_the_brokers_pace_and_say_only_what_is_new() -> None:
    script = modern(0, 1)
    script.later(4999)
    assert script.group.errands(script.now) == []
    script.later(1)
    request = script.sent(ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.subscribed_topic_names, request.topic_partitions) == (2, None, None)


def test_what_is_to_go_is_given_up_before_it_is_acknowledged() -> None:
    script = modern(0, 1)
    script.later(5000)
    script.sent(ConsumerGroupHeartbeatRequest)
    script.answer(share(0, epoch=2))
    assert script.group.errands(script.now) == []
    assert script.do() == Step(StepKind.REVOKE, (T1,), (T0,))
    acknowledged = script.sent(ConsumerGroupHeartbeatRequest).topic_partitions
    assert acknowledged is not None
    assert [told.partitions for told in acknowledged] == [[0]]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_loses_everything_and_joins_with_epoch_zero(code: ErrorCode) -> None:
    script = modern(0, 1)
    script.later(5000)
    script.sent(ConsumerGroupHeartbeatRequest)
    script.answer(ConsumerGroupHeartbeatResponse(error_code=code))
    assert script.group.errands(script.now) == []
    assert script.do() == Step(StepKind.LOSE, (T0, T1), ())
    request = script.sent(ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.topic_partitions) == (0, [])


def test_a_heartbeat_that_found_no_answer_is_said_again_whole() -> None:
    script = modern(0, 1)
    script.later(5000)
    script.sent(ConsumerGroupHeartbeatRequest)
    script.group.failed(script.errand, ConnectionFailed("gone"), script.now)
    script.later(200)
    script.find(node=2)
    request = script.sent(ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.subscribed_topic_names) == (2, ["t"])
    assert request.topic_partitions is not None


def test_a_broker_without_this_protocol_is_named_as_the_reason() -> None:
    script = Script(group_protocol="consumer")
    script.subscribe()
    script.find()
    script.sent(ConsumerGroupHeartbeatRequest)
    script.group.failed(script.errand, BrokerError(ErrorCode.UNSUPPORTED_VERSION), script.now)
    assert "group.protocol" in str(script.group.error)


def test_a_commit_that_an_epoch_overtook_goes_again_with_the_new_one() -> None:
    script = modern(0, 1)
    job = script.group.commit(commit())
    script.sent(OffsetCommitRequest)
    asked = script.errand
    script.later(5000)
    script.sent(ConsumerGroupHeartbeatRequest)
    script.answer(share(epoch=3, is_changed=False))
    script.group.replied(asked, committed(ErrorCode.STALE_MEMBER_EPOCH), script.now)
    assert script.sent(OffsetCommitRequest).generation_id_or_member_epoch == 3
    script.answer(committed())
    assert (job.is_done, job.error) == (True, None)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("one", -2)])
def test_leaving_is_an_epoch(instance_id: str | None, epoch: int) -> None:
    script = modern(0, **({"group_instance_id": instance_id} if instance_id else {}))
    script.group.leave(script.now)
    assert script.sent(ConsumerGroupHeartbeatRequest).member_epoch == epoch
    script.answer(ConsumerGroupHeartbeatResponse())
    assert script.group.member.has_left
