"""The levels of a broker's loggers, as clients describe and change them (KIP-412)."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from sparklog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog_server.loggers import DEBUG, ERROR, INFO, LOGGERS, Level, Loggers
from sparklog_server.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from tests.broker.access.test_access import Access
from tests.broker.configuring import APPEND, DELETE, LOGGER, SET, SUBTRACT, Answer, alter, describe, resource
from tests.broker.world import World
from tests.compatibility.access_client import rule
from tests.compatibility.access_coordinators import Asked

DONE: Answer = (ErrorCode.NONE, None)
OF_LOGGERS = 6


@pytest.fixture
def world() -> World:
    world = World(seed=1)
    world.node.start()
    return world


def loggers_of(world: World) -> Loggers:
    assert world.node.broker is not None
    return world.node.broker.loggers


def levels(world: World) -> dict[str, str | None]:
    return {name: row.value for name, row in describe(world, world.node.connect(), LOGGER, "1").items()}


def change(world: World, *changes: tuple[str, int, str | None], is_trial: bool = False) -> Answer:
    (answer,) = alter(world, world.node.connect(), resource(LOGGER, "1", *changes), validate_only=is_trial)
    return answer


def test_every_logger_is_told_with_the_level_in_force(world: World) -> None:
    rows = describe(world, world.node.connect(), LOGGER, "1")
    assert {name: row.value for name, row in rows.items()} == dict.fromkeys(LOGGERS, "INFO")
    row = rows["sparklog.network"]
    assert (row.config_source, row.read_only, row.is_sensitive, row.synonyms) == (
        OF_LOGGERS,
        False,
        False,
        [],
    )
    assert list(describe(world, world.node.connect(), LOGGER, "1", "root", "none")) == ["root"]


def test_a_logger_has_the_level_of_root_until_it_has_its_own(world: World) -> None:
    assert change(world, ("root", SET, "ERROR"), ("sparklog.raft", SET, "DEBUG")) == DONE
    assert (levels(world)["sparklog.raft"], levels(world)["sparklog.log"]) == ("DEBUG", "ERROR")
    loggers = loggers_of(world)
    assert (loggers.level_of("sparklog.raft"), loggers.level_of("sparklog.log")) == (DEBUG, ERROR)
    assert change(world, ("sparklog.raft", DELETE, None), ("root", SET, "INFO")) == DONE
    assert levels(world) == dict.fromkeys(LOGGERS, "INFO")


def test_each_of_kafkas_levels_is_taken_in_capitals(world: World) -> None:
    for level in Level:
        assert change(world, ("sparklog.log", SET, level.name)) == DONE
        assert levels(world)["sparklog.log"] == level.name


def test_a_trial_changes_nothing(world: World) -> None:
    assert change(world, ("root", SET, "ERROR"), is_trial=True) == DONE
    assert change(world, ("none", SET, "ERROR"), is_trial=True)[0] == ErrorCode.INVALID_CONFIG
    assert loggers_of(world).level_of("root") is INFO


@pytest.mark.parametrize(
    ("refused", "answer"),
    [
        (("none", SET, "INFO"), (ErrorCode.INVALID_CONFIG, "Logger none does not exist!")),
        (("none", DELETE, None), (ErrorCode.INVALID_CONFIG, "Logger none does not exist!")),
        (
            ("root", DELETE, None),
            (ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        ),
        (
            ("sparklog.log", SET, "debug"),
            (
                ErrorCode.INVALID_CONFIG,
                "Cannot set the log level of sparklog.log to debug as it is not a supported log level. "
                "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
            ),
        ),
        (
            ("sparklog.log", APPEND, "INFO"),
            (ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ),
        (
            ("sparklog.log", SUBTRACT, "INFO"),
            (ErrorCode.INVALID_REQUEST, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ),
        (
            ("sparklog.log", 9, "INFO"),
            (
                ErrorCode.INVALID_REQUEST,
                "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource",
            ),
        ),
        (
            ("sparklog.log", SET, None),
            (ErrorCode.INVALID_REQUEST, "Null value not supported for : sparklog.log"),
        ),
    ],
)
def test_a_change_that_is_refused_undoes_the_others(
    world: World, refused: tuple[str, int, str | None], answer: Answer
) -> None:
    assert change(world, ("sparklog.raft", SET, "DEBUG"), refused) == answer
    assert levels(world) == dict.fromkeys(LOGGERS, "INFO")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2", "Unexpected node id. Expected 1, but received 2"),
        ("-1", "Unexpected node id. Expected 1, but received -1"),
        ("", "Node id must be an integer, but it is: "),
        ("x", "Node id must be an integer, but it is: x"),
        ("9" * 5000, "Node id must be an integer, but it is: " + "9" * 5000),
    ],
)
def test_only_the_named_broker_changes_its_loggers(world: World, name: str, message: str) -> None:
    answer = alter(world, world.node.connect(), resource(LOGGER, name, ("root", SET, "ERROR")))
    assert answer == [(ErrorCode.INVALID_REQUEST, message)]
    assert levels(world) == dict.fromkeys(LOGGERS, "INFO")


def test_a_restart_forgets_the_levels(world: World) -> None:
    assert change(world, ("root", SET, "ERROR")) == DONE
    world.node.stop()
    world.node.start()
    assert levels(world)["root"] == "INFO"


def test_a_client_needs_the_right_to_alter_and_to_describe_the_settings_of_the_cluster() -> None:
    access = Access()
    request = IncrementalAlterConfigsRequest(resources=[resource(LOGGER, "1", ("root", SET, "ERROR"))])
    asked = Asked(request, IncrementalAlterConfigsResponse)
    wanted = DescribeConfigsRequest(resources=[DescribeConfigsResource(LOGGER, "1", None)])

    def codes() -> tuple[int, int]:
        altered = access.ask(asked)
        described = access.ask(Asked(wanted, DescribeConfigsResponse))
        assert isinstance(altered, IncrementalAlterConfigsResponse)
        assert isinstance(described, DescribeConfigsResponse)
        return altered.responses[0].error_code, described.results[0].error_code

    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert codes() == (refused, refused)
    assert loggers_of(access.world).level_of("root") is INFO
    access.add([rule(ResourceType.CLUSTER, Operation.DESCRIBE_CONFIGS, CLUSTER_NAME)])
    assert codes() == (refused, ErrorCode.NONE)
    access.add([rule(ResourceType.CLUSTER, Operation.ALTER_CONFIGS, CLUSTER_NAME)])
    assert codes() == (ErrorCode.NONE, ErrorCode.NONE)
    assert loggers_of(access.world).level_of("root") is ERROR
