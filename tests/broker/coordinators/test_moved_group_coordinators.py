"""Groups whose coordinator dies, stops or is no longer elected, with three replicas of `__consumer_offsets`:
members keep their ids and assignments, and offsets are there.
"""

import pytest

from sparklog.errors import ErrorCode, code_of
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupResponse
from sparklog.wire.messages.offset_commit import OffsetCommitResponse
from sparklog.wire.messages.offset_fetch import OffsetFetchResponse
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker import groups
from tests.broker.coordinators.coordinator_moves import (
    MOVES,
    OFFSETS,
    Kept,
    Move,
    elect,
    prefer_next,
    replicated,
    unelected,
)
from tests.broker.coordinators.test_groups_of_nodes import GROUP, Member, joined, settled

NONE = ErrorCode.NONE
_MODERN = 9
"""The version of OffsetCommit with member epochs."""


def kept(**given: str) -> Kept:
    """A cluster, and the partition of the group."""
    _, client = replicated(**given)
    return Kept(client, OFFSETS, GROUP)


def commit(
    one: Kept, offset: int, *, generation: int = -1, member: str = "", version: int = groups.COMMIT
) -> ErrorCode:
    """Commit an offset of partition 0."""
    request = groups.commit(GROUP, offset, generation=generation, member_id=member)
    return groups.committed(one.client.ask(one.coordinator, request, version, OffsetCommitResponse))


def committed(one: Kept) -> list[list[int]]:
    return groups.offsets(
        one.client.ask(one.coordinator, groups.fetch_offsets(GROUP), groups.FETCH, OffsetFetchResponse)
    )


def beat(one: Kept, node: SimulatedNode, generation: int, member: str) -> ErrorCode:
    answer = one.client.ask(node, HeartbeatRequest(GROUP, generation, member), 4, HeartbeatResponse)
    assert isinstance(answer, HeartbeatResponse)
    return code_of(answer.error_code)


def classic_members(one: Kept) -> list[str]:
    """The ids of three members, one by each node."""
    members = []
    for _ in range(3):
        answer = one.client.ask(one.coordinator, groups.join(GROUP), groups.JOIN, JoinGroupResponse)
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        members.append(answer.member_id)
    return members


@pytest.mark.parametrize("move", MOVES)
def test_a_classic_group_goes_on_with_another_coordinator(move: Move) -> None:
    one = kept()
    members = classic_members(one)
    generation, _ = joined(one.client, members)
    assert commit(one, 7, generation=generation, member=members[0]) is NONE

    old = one.move(move)
    assert one.client.coordinator(GROUP, 0, one.coordinator) is one.coordinator

    assert committed(one) == [[7]]
    for member in members:
        assert beat(one, one.coordinator, generation, member) is NONE
    assert commit(one, 8, generation=generation, member=members[1]) is NONE
    assert commit(one, 9, generation=generation - 1, member=members[1]) is ErrorCode.ILLEGAL_GENERATION
    if move is unelected:
        assert beat(one, one.cluster.nodes[old], generation, members[0]) is ErrorCode.NOT_COORDINATOR
    assert committed(one) == [[8]]


@pytest.mark.parametrize("move", MOVES)
def test_a_group_of_the_new_protocol_goes_on_with_another_coordinator(move: Move) -> None:
    one = kept()
    members = [Member(number) for number in range(3)]
    for _ in range(10):
        for member in members:
            assert member.beat(one.client, one.coordinator) is NONE
        one.cluster.run(500)
    assert settled(members)
    before = [(member.epoch, member.held) for member in members]
    assert commit(one, 7, generation=members[0].epoch, member=members[0].id, version=_MODERN) is NONE

    old = one.move(move)

    if move is unelected:
        assert members[0].beat(one.client, one.cluster.nodes[old]) is ErrorCode.NOT_COORDINATOR
    for _ in range(3):
        for member in members:
            assert member.beat(one.client, one.client.coordinator(GROUP, 0, one.coordinator)) is NONE
    assert [(member.epoch, member.held) for member in members] == before
    assert committed(one) == [[7]]
    assert commit(one, 8, generation=members[1].epoch, member=members[1].id, version=_MODERN) is NONE
    assert committed(one) == [[8]]


def test_offsets_survive_a_move_to_each_node_in_turn() -> None:
    one = kept()
    seen = {one.number}
    for offset in range(6):
        assert commit(one, offset) is NONE
        one.move(unelected)
        seen.add(one.number)
        assert one.client.coordinator(GROUP, 0, one.coordinator) is one.coordinator
        assert committed(one) == [[offset]]
    assert seen == {1, 2, 3}


def test_a_member_that_is_silent_after_the_move_gets_a_whole_session_from_the_new_coordinator() -> None:
    one = kept()
    members = classic_members(one)
    generation, _ = joined(one.client, members)
    one.cluster.run(9_000)  # of a session of 10 s
    for member in members[1:]:
        assert beat(one, one.coordinator, generation, member) is NONE
    one.move(unelected)
    one.cluster.run(8_000)
    assert beat(one, one.coordinator, generation, members[0]) is NONE


def test_a_fenced_coordinator_writes_nothing_and_names_itself_no_coordinator() -> None:
    one = kept(broker_session_timeout_ms="3000")
    assert commit(one, 7) is NONE
    old = one.coordinator
    late = old.connect()

    def paused(_: Kept) -> None:
        old.pause()

    one.move(paused)
    for offset in (8, 9):
        late.send(groups.commit(GROUP, offset), groups.COMMIT, OffsetCommitResponse)
    assert one.client.coordinator(GROUP, 0, one.coordinator) is one.coordinator
    assert commit(one, 10) is NONE
    old.resume()
    one.cluster.run_until(lambda: len(late.replies) == 2, 60_000)
    assert [groups.committed(reply) for reply in late.replies] == [ErrorCode.NOT_COORDINATOR] * 2
    one.cluster.run_until(lambda: one.cluster.isr(*one.at) == {1, 2, 3})
    one.cluster.run(1_000)
    assert committed(one) == [[10]]
    logs = one.logs()
    assert len(logs) == 3
    assert logs[0] == logs[1] == logs[2]


def test_a_coordinator_that_is_still_loading_says_so_and_serves_afterwards() -> None:
    one = kept()
    assert commit(one, 7) is NONE
    for node in one.cluster.nodes.values():
        node.job_delay_us = (2_000_000, 2_000_000)
    one.move(unelected)
    new = one.coordinator
    assert commit(one, 8) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    asked = one.client.ask(new, groups.fetch_offsets(GROUP), groups.FETCH, OffsetFetchResponse)
    assert isinstance(asked, OffsetFetchResponse)
    assert asked.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert one.client.coordinator(GROUP, 0, new) is new  # waits until it is loaded
    assert committed(one) == [[7]]
    assert commit(one, 8) is NONE


def test_commits_while_the_leadership_moves_are_kept_or_refused() -> None:
    one = kept()
    refusals = 0
    for first in range(0, 600, 100):
        assert commit(one, first) is NONE  # the followers' fetches have the partition
        codes = commit_while_moving(one, range(first, first + 40))
        refused = codes.count(ErrorCode.NOT_COORDINATOR)
        acknowledged = len(codes) - refused
        assert codes == [NONE] * acknowledged + [ErrorCode.NOT_COORDINATOR] * refused
        assert acknowledged
        refusals += refused
        one.client.coordinator(GROUP, 0, one.coordinator)
        # A refused commit may have been replicated before it was refused.
        assert committed(one)[0][0] in range(first + acknowledged - 1, first + 40)
    assert refusals


def commit_while_moving(one: Kept, offsets: range) -> list[ErrorCode]:
    """Send a commit of each offset to the leader, one in a millisecond, and amid these elect another."""
    old, connection = one.number, one.coordinator.connect()
    prefer_next(one)
    for number, offset in enumerate(offsets):
        connection.send(groups.commit(GROUP, offset), groups.COMMIT, OffsetCommitResponse)
        if number == len(offsets) // 2:
            elect(one)
        one.cluster.run(1)
    one.cluster.run_until(lambda: one.is_led_by_another(old))
    one.cluster.run_until(lambda: len(connection.replies) == len(offsets), 60_000)
    return [groups.committed(reply) for reply in connection.replies]
