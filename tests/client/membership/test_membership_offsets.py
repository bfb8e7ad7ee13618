"""Commits and look-ups against a coordinator that follows a script: requests, retries, and what
every refusal means.
"""

import pytest

from sparklog.client.failures import CommitFailed, FencedInstance, RebalanceInProgress
from sparklog.client.membership.member import StepKind
from sparklog.client.membership.offsets import Job
from sparklog.errors import BrokerError, ErrorCode, RequestTimeout
from sparklog.model import Micros
from sparklog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tests.client.membership.member_script import T0, Script, commit, committed
from tests.client.wire import ms


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
    script.group.coordinator.replied(
        FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=1)]), script.now
    )
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


def test_a_member_that_keeps_its_partitions_commits_before_joining_again_or_after_it_but_not_behind_it() -> (
    None
):
    script = Script(partition_assignment_strategy="cooperative-sticky")
    script.member(T0)
    script.group.commit(commit())
    script.sent(OffsetCommitRequest)
    script.answer(committed())
    script.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.group.errands(script.now)
    with pytest.raises(RebalanceInProgress):
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
