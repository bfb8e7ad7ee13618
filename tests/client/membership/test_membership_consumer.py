"""A KIP-848 member against a coordinator that follows a script."""

import pytest

from sparklog.client.membership.member import Step, StepKind
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode
from sparklog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
)
from tests.client.membership.member_script import T0, T1, Script, commit, committed
from tests.client.wire import TOPIC_ID, metadata


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
