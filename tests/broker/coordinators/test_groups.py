"""The coordinator of groups within a broker: its topic comes when it is asked for, its shards with the
topic, and its answers always.
"""

import pytest

from sparklog.errors import ErrorCode, code_of
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupResponse
from sparklog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.messages.offset_commit import OffsetCommitResponse
from sparklog_server.coordinator.placement import OFFSETS_TOPIC, partition_for
from tests.broker.groups import (
    COMMIT,
    FIND,
    JOIN,
    ask_commit,
    ask_coordinator,
    ask_offsets,
    commit,
    committed,
    delete_topic,
    find,
    found,
    join,
    join_alone,
    started,
)
from tests.broker.world import FETCH_BY_NAME, World, fetch

COORDINATOR_ERRORS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def test_who_first_looks_for_a_coordinator_has_its_topic_made_and_is_answered_when_it_serves() -> None:
    world = started()
    clients = [world.node.connect() for _ in range(3)]
    for client in clients:
        client.send(find("g"), FIND, FindCoordinatorResponse)
        assert client.replies == []
    while not clients[0].replies:
        world.settle(1)
    clients[0].send(join("g"), JOIN, JoinGroupResponse)
    world.settle(50)
    assert found(clients[0].replies[0]) == [ErrorCode.NONE]
    assert (
        clients[0].replies[1].error_code == ErrorCode.MEMBER_ID_REQUIRED
    )  # and not that it is still loading
    assert [found(client.replies[0]) for client in clients[1:]] == [[ErrorCode.NONE]] * 2
    assert [name for name in world.disk.list("/data") if name.startswith(OFFSETS_TOPIC)] == [
        f"{OFFSETS_TOPIC}-{index}" for index in (0, 1)
    ]


def test_after_a_start_a_coordinator_is_named_when_its_shards_know_everything() -> None:
    world = started()
    client = world.node.connect()
    ask_coordinator(world, client, "g")
    assert ask_commit(world, client, "g", 5) is ErrorCode.NONE
    world.node.stop()
    world.node.start()
    client = world.node.connect()
    client.send(find("g"), FIND, FindCoordinatorResponse)
    while not client.replies:
        world.settle(1)
    assert found(client.replies[0]) == [ErrorCode.NONE]
    assert ask_offsets(world, client, "g") == [5]


def test_a_group_asked_about_before_there_is_a_topic_for_groups_has_no_coordinator() -> None:
    world = started()
    assert ask_commit(world, world.node.connect(), "g", 5) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_topic_of_groups_that_cannot_be_made_is_told_and_tried_again() -> None:
    world = started(**{"offsets.topic.replication.factor": "3"})
    client = world.node.connect()
    assert [ask_coordinator(world, client, "g") for _ in range(2)] == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    ] * 2


def test_who_waits_for_a_coordinator_and_goes_leaves_nothing_behind() -> None:
    world = started()
    gone, client = world.node.connect(), world.node.connect()
    gone.send(find("g"), FIND, FindCoordinatorResponse)
    client.send(find("g"), FIND, FindCoordinatorResponse)
    world.node.disconnect(gone)
    world.settle()
    assert found(client.replies[0]) == [ErrorCode.NONE]
    assert gone.replies == []


@pytest.mark.parametrize("call", ["append", "sync"])
def test_a_disk_that_fails_is_told_to_all_who_wait_and_the_groups_have_no_coordinator_until_it_is_mended(
    call: str,
) -> None:
    world = started()
    client, waiting = world.node.connect(), world.node.connect()
    ask_coordinator(world, client, "g")
    assert ask_commit(world, client, "g", 5) is ErrorCode.NONE
    member_id, generation = join_alone(world, client, "g")
    asked = world.ask(waiting, join("g"), JOIN, JoinGroupResponse)
    waiting.send(join("g", asked.member_id), JOIN, JoinGroupResponse)  # waits for the other member
    world.settle(50)
    assert len(waiting.replies) == 1
    world.disk.fault = lambda asked, path: "injected" if asked == call and OFFSETS_TOPIC in path else None
    for offset in (6, 7):
        client.send(
            commit("g", offset, generation=generation, member_id=member_id), COMMIT, OffsetCommitResponse
        )
    world.settle(200)
    assert {committed(reply) for reply in client.replies[-2:]} <= COORDINATOR_ERRORS
    assert code_of(waiting.replies[-1].error_code) in COORDINATOR_ERRORS
    assert ask_commit(world, client, "g", 8) in COORDINATOR_ERRORS
    world.settle(10_000)
    world.disk.fault = None
    if world.node.broker is not None:
        world.node.kill()
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    assert ask_offsets(world, client, "g")[0] in (5, 6, 7)
    assert (
        ask_commit(world, client, "g", 9, topic="t") is ErrorCode.UNKNOWN_MEMBER_ID
    )  # the members are kept as well


def test_nobody_waits_for_a_coordinator_that_cannot_read_its_log() -> None:
    world = started()
    client = world.node.connect()
    groups = ["g", next(name for name in "abcdefgh" if partition_for(name, 2) != partition_for("g", 2))]
    ask_coordinator(world, client, "g")
    assert [ask_commit(world, client, group, 5) for group in groups] == [ErrorCode.NONE] * 2
    world.node.kill()
    world.node.start()
    unreadable = f"{OFFSETS_TOPIC}-{partition_for('g', 2)}/"
    world.disk.fault = lambda asked, path: "injected" if asked == "read" and unreadable in path else None
    world.settle()
    client = world.node.connect()
    for group, code in zip(groups, (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE), strict=True):
        client.send(find(group), FIND, FindCoordinatorResponse)
        world.settle(10)
        assert found(client.replies[-1]) == [code]
    assert len(client.replies) == 2
    assert ask_commit(world, client, groups[0], 6) in COORDINATOR_ERRORS
    assert ask_offsets(world, client, groups[1]) == [5]


def test_readers_who_wait_for_the_topic_of_groups_do_not_keep_groups_from_their_answers() -> None:
    world = started(**{"sparklog.partition.parked.max": "1"})
    client = world.node.connect()
    ask_coordinator(world, client, "g")
    for partition in range(2):
        reader = world.node.connect()
        reader.send(
            fetch(OFFSETS_TOPIC, 0, partition=partition, max_wait_ms=60_000), FETCH_BY_NAME, FetchResponse
        )
    world.settle(10)
    assert ask_commit(world, client, "g", 5) is ErrorCode.NONE
    assert ask_offsets(world, client, "g") == [5]


def test_offsets_of_a_deleted_topic_are_forgotten_and_stay_so_after_a_restart() -> None:
    world = started()
    client = world.node.connect()
    ask_coordinator(world, client, "g")
    world.create(client, "u")
    assert [ask_commit(world, client, "g", 5, topic=topic) for topic in ("t", "u")] == [ErrorCode.NONE] * 2
    delete_topic(world, client, "t")
    world.create(client, "t", partitions=3)
    assert [ask_offsets(world, client, "g", topic=topic) for topic in ("t", "u")] == [[-1], [5]]
    world.node.kill()
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert [ask_offsets(world, client, "g", topic=topic) for topic in ("t", "u")] == [[-1], [5]]


def test_the_topic_of_groups_may_be_deleted_and_is_made_anew_and_empty() -> None:
    world = started()
    client, waiting = world.node.connect(), world.node.connect()
    ask_coordinator(world, client, "g")
    assert ask_commit(world, client, "h", 5) is ErrorCode.NONE
    member_id, generation = join_alone(world, client, "g")
    asked = world.ask(waiting, join("g"), JOIN, JoinGroupResponse)
    waiting.send(join("g", asked.member_id), JOIN, JoinGroupResponse)
    delete_topic(world, client, OFFSETS_TOPIC)
    assert code_of(waiting.replies[-1].error_code) in COORDINATOR_ERRORS
    heartbeat = world.ask(client, HeartbeatRequest("g", generation, member_id), 4, HeartbeatResponse)
    assert code_of(heartbeat.error_code) in COORDINATOR_ERRORS
    for _ in range(2):
        assert ask_coordinator(world, client, "g") is ErrorCode.NONE
        heartbeat = world.ask(client, HeartbeatRequest("g", generation, member_id), 4, HeartbeatResponse)
        assert heartbeat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert ask_offsets(world, client, "h") == [-1]
        world.node.kill()
        world.node.start()
        world.settle()
        client = world.node.connect()


def test_members_keep_their_places_over_a_restart_of_the_broker() -> None:
    world = started()
    client = world.node.connect()
    ask_coordinator(world, client, "g")
    member_id, generation = join_alone(world, client, "g")
    world.node.kill()
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    heartbeat = world.ask(client, HeartbeatRequest("g", generation, member_id), 4, HeartbeatResponse)
    assert heartbeat.error_code == ErrorCode.NONE
    answer = world.ask(
        client, commit("g", 7, generation=generation, member_id=member_id), COMMIT, OffsetCommitResponse
    )
    assert committed(answer) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("given", "is_delayed"), [({}, False), ({"group.initial.rebalance.delay.ms": "3000"}, True)]
)
def test_the_first_member_waits_for_others_in_a_cluster_of_one_only_if_the_delay_is_set(
    given: dict[str, str], *, is_delayed: bool
) -> None:
    world = World(1, **given)
    world.node.start()
    world.settle()
    client = world.node.connect()
    ask_coordinator(world, client, "g")
    told = world.ask(client, join("g"), JOIN, JoinGroupResponse)
    assert isinstance(told, JoinGroupResponse)
    client.replies.clear()
    client.send(join("g", told.member_id), JOIN, JoinGroupResponse)
    world.settle(100)
    assert len(client.replies) == (0 if is_delayed else 1)
    world.settle(3000)
    assert [reply.error_code for reply in client.replies] == [ErrorCode.NONE]


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None), (9, None)])
@pytest.mark.parametrize(
    ("session_timeout_ms", "member_id", "code"),
    [
        (1, "", ErrorCode.INVALID_SESSION_TIMEOUT),
        (10_000, "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        (10_000, "", ErrorCode.MEMBER_ID_REQUIRED),
    ],
)
def test_a_refused_join_names_no_protocol(
    version: int, name: str | None, session_timeout_ms: int, member_id: str, code: ErrorCode
) -> None:
    world = started()
    client = world.node.connect()
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    request = join("g", member_id)
    request.session_timeout_ms = session_timeout_ms
    answer = world.ask(client, request, version, JoinGroupResponse)
    assert isinstance(answer, JoinGroupResponse)
    assert (answer.error_code, answer.protocol_name, answer.generation_id) == (code, name, -1)


def test_a_listed_group_has_its_type_in_lower_case() -> None:
    world = started()
    client = world.node.connect()
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    assert ask_commit(world, client, "g", 5) is ErrorCode.NONE
    for types in ([], ["classic"], ["CLASSIC"]):
        answer = world.ask(client, ListGroupsRequest(types_filter=types), 5, ListGroupsResponse)
        assert isinstance(answer, ListGroupsResponse)
        assert [(group.group_id, group.group_type) for group in answer.groups] == [("g", "classic")]


def test_a_found_coordinator_carries_the_message_none_in_versions_1_to_3_as_in_kafka() -> None:
    world = started()
    client = world.node.connect()
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    for version in (1, 2, 3):
        answer = world.ask(client, FindCoordinatorRequest(key="g"), version, FindCoordinatorResponse)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, "NONE")
    latest = world.ask(client, find("g"), FIND, FindCoordinatorResponse)
    assert latest.coordinators[0].error_message == ""
