"""Classic groups under hostile clients, and with very many members: each request gets an error code, and
memory stays bounded.
"""

import tracemalloc
from functools import partial

import pytest

from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import Instant, Micros, Offset
from sparklog.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_prefixed
from sparklog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sparklog.wire.schema import Message
from sparklog_server.coordinator.group.group_config import GroupConfig
from sparklog_server.coordinator.group.records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    encode_record,
)
from sparklog_server.coordinator.shard import Decision
from sparklog_server.coordinator.timers import Timer, Timers
from tests.coordinator.groups import GroupWorld

AT_ONCE = GroupConfig(initial_rebalance_delay_ms=0)
METADATA = encode_prefixed(ConsumerProtocolSubscription(["t"]), 3)


def _join(
    world: GroupWorld, name: str, *, metadata: bytes = METADATA, version: int = 3, member_id: str = ""
) -> Decision:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", metadata)],
    )
    return world.decide(request, version, client=name, token=object())


def _joined(world: GroupWorld, count: int, metadata: bytes = METADATA) -> list[JoinGroupResponse]:
    """This many members, joined at once."""
    for number in range(count):
        _join(world, f"c{number}", metadata=metadata)
    replies = [answer.reply for _, decision in world.advance(0) for answer in decision.answers]
    assert all(isinstance(reply, JoinGroupResponse) for reply in replies)
    return replies  # type: ignore[return-value]


def _stable(world: GroupWorld, count: int) -> list[str]:
    """This many members in a stable generation 1; returns their ids, the leader's first."""
    replies = _joined(world, count)
    leader = replies[0].leader
    member_ids = [leader, *(reply.member_id for reply in replies if reply.member_id != leader)]
    assignments = [SyncGroupRequestAssignment(member_id, b"share") for member_id in member_ids]
    decision = world.decide(SyncGroupRequest("g", 1, leader, assignments=assignments), 3, token=object())
    assert [one.reply.error_code for one in decision.answers] == [ErrorCode.NONE]  # type: ignore[attr-defined]
    return member_ids


def _code(decision: Decision) -> int:
    reply = decision.answers[-1].reply
    assert isinstance(reply, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse)
    return reply.error_code


def test_ten_megabytes_of_metadata_are_taken_once_and_never_written_into_a_record_that_no_batch_could_hold() -> (  # noqa: E501
    None
):
    world = GroupWorld(AT_ONCE)
    replies = _joined(world, 1, bytes(10 << 20))
    assert replies[0].error_code == ErrorCode.NONE
    sync = partial(world.decide, SyncGroupRequest("g", 1, replies[0].member_id), 3)
    assert _code(sync(token=object())) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert all(len(record.value or b"") < 1_000 for record in world.log)


def test_an_unreadable_subscription_is_the_members_own_affair() -> None:
    world = GroupWorld(AT_ONCE)
    for metadata in (b"", b"\xff\xff", b"\0\3\x7f\xff\xff\xff", bytes(100)):
        _join(world, "c", metadata=metadata)
    assert len(world.advance(0)) == 1
    assert world.run("delete-offset t") == ["-> admin delete-offset NONE GROUP_SUBSCRIBED_TO_TOPIC"]


def test_a_hundred_thousand_who_want_in_find_a_full_group_that_has_not_grown() -> None:
    world = GroupWorld(GroupConfig(initial_rebalance_delay_ms=0, size_max=10))
    member_ids = _stable(world, 10)
    codes = {_code(_join(world, "stranger", version=9)) for _ in range(90_000)}
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    codes |= {_code(_join(world, "stranger", version=9)) for _ in range(10_000)}
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert codes == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert after - before < 50_000
    assert _code(world.decide(HeartbeatRequest("g", 1, member_ids[0]), 3)) == ErrorCode.NONE


def test_member_ids_that_nobody_comes_back_with_are_counted() -> None:
    world = GroupWorld(AT_ONCE)
    codes = [_code(_join(world, "stranger", version=9)) for _ in range(100_001)]
    assert set(codes[:-1]) == {ErrorCode.MEMBER_ID_REQUIRED}
    assert codes[-1] == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.advance(10)
    assert _code(_join(world, "late", version=9)) == ErrorCode.MEMBER_ID_REQUIRED
    assert len(world.log) == 1


def test_a_storm_of_heartbeats_leaves_one_timer_for_each_member() -> None:
    timers: Timers[int] = Timers()
    timer = Timer(1)
    for now in range(100_000):
        timers.arm(timer, Micros(now + 1_000_000))
    assert len(timers) == 1
    assert timers.deadline() == 1_000_000  # the timer's first place: it is examined then, and moved back
    assert timers.pop(Micros(1_000_000)) is None
    assert timers.deadline() == 1_099_999
    assert timers.pop(Micros(1_099_999)) == 1
    assert timers.deadline() is None


def test_timers_fire_in_order_once_and_not_when_cancelled() -> None:
    timers: Timers[int] = Timers()
    armed = [Timer(number) for number in range(1_000)]
    for timer in armed:
        timers.arm(timer, Micros(2_000 - timer.subject))
    for timer in armed[::2]:
        timers.cancel(timer)
        timers.cancel(timer)
    timers.arm(armed[1], Micros(5))  # earlier than its place
    fired = []
    while (subject := timers.pop(Micros(2_000))) is not None:
        fired.append(subject)
    assert fired == [1, *sorted((timer.subject for timer in armed[3::2]), reverse=True)]
    assert len(timers) == 0


def test_the_timers_of_those_who_came_and_went_are_swept() -> None:
    timers: Timers[int] = Timers()
    tracemalloc.start()
    for now in range(50_000):
        timer = Timer(now)
        timers.arm(timer, Micros(now + 1_800_000_000))
        timers.cancel(timer)
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert current < 100_000


def test_protocol_names_that_nobody_uses_any_more_are_forgotten() -> None:
    world = GroupWorld(AT_ONCE)
    (member_id,) = _stable(world, 1)

    def rejoin(names: range) -> None:
        for number in names:
            protocols = [
                JoinGroupRequestProtocol("range", METADATA),
                JoinGroupRequestProtocol(f"{number:0100}", b""),
            ]
            request = JoinGroupRequest("g", 10_000, 60_000, member_id, None, "consumer", protocols)
            assert _code(world.decide(request, 3, token=object())) == ErrorCode.NONE

    rejoin(range(100))
    tracemalloc.start()
    rejoin(range(100, 2_000))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 20_000


@pytest.mark.parametrize("generation", [-(2**31), -1, 0, 2, 2**31 - 1])
def test_a_stale_generation_is_told_so(generation: int) -> None:
    world = GroupWorld(AT_ONCE)
    (member_id,) = _stable(world, 1)
    assert (
        _code(world.decide(HeartbeatRequest("g", generation, member_id), 3)) == ErrorCode.ILLEGAL_GENERATION
    )
    assert (
        _code(world.decide(SyncGroupRequest("g", generation, member_id), 3)) == ErrorCode.ILLEGAL_GENERATION
    )


@pytest.mark.parametrize("timeout_ms", [-(2**31), -1, 0])
def test_a_rebalance_timeout_of_nothing_holds_up_nobody(timeout_ms: int) -> None:
    world = GroupWorld(AT_ONCE)
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=timeout_ms,
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    world.decide(request, 5, token=object())
    decided = world.advance(100)
    assert len(decided) < 20
    assert world.run("describe")[0] == "-> admin describe g Empty consumer/-"


def test_names_of_every_kind_are_names() -> None:
    world = GroupWorld(AT_ONCE)
    for name in ("..", "a" * 250, "\0", "ä/\n", " "):
        request = JoinGroupRequest(
            group_id=name,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            group_instance_id=name,
            protocol_type=name,
            protocols=[JoinGroupRequestProtocol(name, name.encode())],
        )
        world.decide(request, 9, client=name, token=object())
        decision = next(decision for _, decision in world.advance(0))
        assert _code(decision) == ErrorCode.NONE
        reply = decision.answers[0].reply
        assert isinstance(reply, JoinGroupResponse)
        assert world.decide(
            SyncGroupRequest(name, 1, reply.member_id, name, name, name), 5, token=object()
        ).records
    log = world.log
    world.reload()
    assert world.log is log


def test_many_who_leave_at_once_or_die_at_once_cost_no_more_than_one_by_one() -> None:
    for ending in ("leave", "leave in reverse", "die"):
        world = GroupWorld(AT_ONCE)
        member_ids = _stable(world, 5_000)
        if ending == "die":
            world.advance(20)
        else:
            leaving = member_ids if ending == "leave" else member_ids[::-1]
            world.decide(
                LeaveGroupRequest(group_id="g", members=[MemberIdentity(one) for one in leaving]),
                5,
                token=object(),
            )
        assert world.run("describe v=5") == ["-> admin describe g Empty consumer/-"]


def test_a_record_that_names_a_member_twice_is_no_record() -> None:
    world = GroupWorld()
    value = GroupMetadataValue(
        "consumer", 1, "range", "m", 0, [GroupMetadataMember("m"), GroupMetadataMember("m")]
    )
    world.log.append(encode_record(GroupMetadataKey("g"), value))
    with pytest.raises(DecodeError, match="twice"):
        world.reload()
    value.members[1] = GroupMetadataMember("n", "i")
    value.members[0].group_instance_id = "i"
    world.log[0] = encode_record(GroupMetadataKey("g"), value)
    with pytest.raises(DecodeError, match="twice"):
        world.reload()


@pytest.mark.parametrize("version", range(5))
def test_groups_that_old_brokers_wrote_are_taken_over(version: int) -> None:
    world = GroupWorld()
    value = GroupMetadataValue(
        "consumer", 3, "range", "m", 7, [GroupMetadataMember("m", None, "c", "/h", 9, 10_000, b"s", b"x")]
    )
    world.log.append(encode_record(GroupMetadataKey("g"), value, version))
    world.reload()
    heartbeat: Message = HeartbeatRequest("g", 3, "m")
    assert _code(world.decide(heartbeat, 4)) == ErrorCode.NONE
    assert world.run("describe v=5") == [
        "-> admin describe g Stable consumer/range",
        "-> admin describe   m(-) c@/h 's' 'x'",
    ]


def test_a_shard_takes_tombstones_of_what_it_never_knew() -> None:
    world = GroupWorld()
    record = encode_record(GroupMetadataKey("g"), None)
    world.shard.replay(record.key, None, Offset(0))
    assert world.run("list") == ["-> admin list nothing"]


def test_the_wall_clock_may_step_back() -> None:
    world = GroupWorld(AT_ONCE)
    (member_id,) = _stable(world, 1)
    world.now = Instant(world.now.mono_us, type(world.now.wall_ms)(5))
    assert _code(world.decide(HeartbeatRequest("g", 1, member_id), 3)) == ErrorCode.NONE
    world.run(f"leave {member_id}")
    world.reload()
    assert world.run("describe v=5") == ["-> admin describe g Empty consumer/-"]


def test_members_who_are_all_gone_are_taken_out_some_at_a_time() -> None:
    world = GroupWorld(AT_ONCE)
    _stable(world, 500)
    world.reload()
    later = Instant(Micros(world.now.mono_us + 10_000_000), world.now.wall_ms)
    assert world.shard.tick(later) == []
    assert world.shard.deadline() == later.mono_us
    assert len(_described(world).members) == 300
    world.advance(100)
    assert (_described(world).group_state, _described(world).members) == ("Empty", [])


def _described(world: GroupWorld) -> DescribedGroup:
    reply = world.decide(DescribeGroupsRequest(groups=["g"]), 5, token=object()).answers[0].reply
    assert isinstance(reply, DescribeGroupsResponse)
    return reply.groups[0]
