"""Topics are created, grown and deleted by numbers, by replicas written out and by id; what cannot be is
refused with Kafka's reason.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID
from sparklog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.broker.administering import HOSTILE_NAMES, NODE, UNKNOWN_NODE, Admin, assigned, sized
from tests.broker.world import World


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world)


def test_what_is_only_validated_is_answered_as_if_it_were_made_and_is_not(admin: Admin) -> None:
    (result,) = admin.create(sized("t", 3), validate_only=True)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 1)
    assert admin.partitions_of("t") == []
    admin.create(sized("t"))
    assert admin.grow("t", 5, validate_only=True) == (0, None)
    assert admin.partitions_of("t") == [0]


@pytest.mark.parametrize(
    ("topic", "code", "said"),
    [
        (assigned("t", [NODE], partitions=1), ErrorCode.INVALID_REQUEST, "numPartitions was not set to -1"),
        (assigned("t", [NODE], factor=1), ErrorCode.INVALID_REQUEST, "replication factor was not set to -1"),
        (assigned("t", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list"),
        (
            assigned("t", [NODE, NODE]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes the broker 1 more than once",
        ),
        (
            assigned("t", [UNKNOWN_NODE]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "broker 7, but no such broker is registered",
        ),
        (
            assigned("t", [-1]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "broker -1, but no such broker is registered",
        ),
        (sized("t", 0), ErrorCode.INVALID_PARTITIONS, "non-positive"),
        (sized("t", -2), ErrorCode.INVALID_PARTITIONS, "non-positive"),
        (sized("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (
            sized("t", 1, 3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 3 time(s)",
        ),
        (sized("t", 1_000_000), ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions"),
    ],
)
def test_a_topic_that_cannot_be_made_is_refused_with_kafkas_reason(
    admin: Admin, topic: CreatableTopic, code: ErrorCode, said: str
) -> None:
    (result,) = admin.create(topic)
    assert (result.error_code, said in (result.error_message or "")) == (code, True), result.error_message
    assert admin.partitions_of("t") == []


def test_replicas_that_are_written_out_are_taken_by_index_and_a_gap_is_refused(admin: Admin) -> None:
    assert admin.create(assigned("t", [NODE], [NODE]))[0].error_code == 0
    assert admin.partitions_of("t") == [0, 1]
    gap = CreatableTopic(
        "u", -1, -1, [CreatableReplicaAssignment(0, [NODE]), CreatableReplicaAssignment(2, [NODE])]
    )
    assert admin.create(gap)[0].error_message == "partitions should be a consecutive 0-based integer sequence"
    twice = CreatableTopic(
        "u", -1, -1, [CreatableReplicaAssignment(0, [NODE]), CreatableReplicaAssignment(0, [NODE])]
    )
    assert (
        admin.create(twice)[0].error_message == "Found multiple manual partition assignments for partition 0"
    )


def test_bad_names_are_refused_one_by_one_and_the_good_one_is_made(admin: Admin) -> None:
    results = admin.create(*(sized(name) for name in HOSTILE_NAMES), sized("good"))
    assert {one.name: one.error_code for one in results} == dict.fromkeys(
        HOSTILE_NAMES, ErrorCode.INVALID_TOPIC_EXCEPTION
    ) | {"good": 0}


def test_a_hundred_thousand_topics_in_one_request_end_the_session_and_nobody_elses(admin: Admin) -> None:
    other = Admin(admin.world)
    admin.connection.send(
        CreateTopicsRequest(topics=[sized(f"t{n}") for n in range(100_000)]), 7, CreateTopicsResponse
    )
    admin.world.settle()
    assert admin.connection.is_closed
    assert other.create(sized("t"))[0].error_code == 0


@pytest.mark.parametrize(
    ("count", "assignments", "code", "said"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (-1, None, ErrorCode.INVALID_PARTITIONS, "would not be an increase"),
        (
            4,
            [[NODE]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "add 2 additional partition(s), but only 1 assignment(s)",
        ),
        (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list"),
        (3, [[UNKNOWN_NODE]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker is registered"),
        (3, [[NODE, NODE]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        (1_000_000, None, ErrorCode.POLICY_VIOLATION, "sparklog.partitions.max"),
    ],
)
def test_a_topic_that_cannot_grow_stays_as_it_is(
    admin: Admin, count: int, assignments: list[list[int]] | None, code: ErrorCode, said: str
) -> None:
    admin.create(sized("t", 2))
    got, message = admin.grow("t", count, assignments)
    assert (got, said in (message or "")) == (code, True), message
    assert admin.partitions_of("t") == [0, 1]


def test_a_topic_grows_by_the_replicas_that_are_written_out(admin: Admin) -> None:
    admin.create(sized("t"))
    assert admin.grow("t", 3, [[NODE], [NODE]]) == (0, None)
    assert admin.partitions_of("t") == [0, 1, 2]
    assert admin.grow("missing", 3)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_deleted_by_id_and_an_unknown_id_is_told_as_such(admin: Admin) -> None:
    (made,) = admin.create(sized("t"))
    states = [
        DeleteTopicState(None, made.topic_id),
        DeleteTopicState(None, b"x" * 16),
        DeleteTopicState(None, ZERO_UUID),
    ]
    results = admin.ask(
        DeleteTopicsRequest(topics=states, timeout_ms=1000), 6, DeleteTopicsResponse
    ).responses
    assert sorted((one.error_code, one.name) for one in results if one.name is not None) == [(0, "t")]
    assert sorted(one.error_code for one in results if one.name is None) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert admin.partitions_of("t") == []
