"""`cordoned.log.dirs` (KIP-1066): a directory that is cordoned gets no new partitions, and keeps those it
has.
"""

import pytest

from sparklog.errors import ErrorCode, SettingsError
from sparklog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.configuring import BROKER, set_to
from tests.broker.moves import move
from tests.broker.world import World

DIRS = ("/a", "/b", "/c")
DONE = (ErrorCode.NONE, None)


def started(cordoned_log_dirs: str = "") -> World:
    given = {"log.dirs": ",".join(DIRS), "cordoned.log.dirs": cordoned_log_dirs}
    world = World(1, **given)  # type: ignore[arg-type]
    world.node.start()
    world.settle()
    return world


def placed(world: World, directory: str) -> int:
    """How many partitions of users lie there."""
    return len([name for name in world.disk.list(directory) if name.startswith("t") and name[-1].isdigit()])


def cordoned(world: World, client: SimulatedConnection) -> list[str]:
    """The directories that are told to be cordoned."""
    answer = world.ask(client, DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
    assert isinstance(answer, DescribeLogDirsResponse)
    return [result.log_dir for result in answer.results if result.is_cordoned]


def test_no_new_partition_is_placed_in_a_cordoned_directory() -> None:
    world = started("/b")
    client = world.node.connect()
    assert world.create(client, "t", 6) == 0
    assert [placed(world, directory) for directory in DIRS] == [3, 0, 3]
    assert cordoned(world, client) == ["/b"]


def test_a_cordon_is_set_and_lifted_while_running_and_outlives_a_restart() -> None:
    world = started()
    client = world.node.connect()
    assert world.create(client, "t", 3) == 0
    assert set_to(world, client, BROKER, "1", cordoned_log_dirs="/a,/c") == DONE
    assert world.create(client, "t2", 3) == 0
    assert [placed(world, directory) for directory in DIRS] == [1, 4, 1]
    world.node.stop()
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert cordoned(world, client) == ["/a", "/c"]
    assert world.create(client, "t3", 1) == 0
    assert [placed(world, directory) for directory in DIRS] == [1, 5, 1]
    assert set_to(world, client, BROKER, "1", cordoned_log_dirs="") == DONE
    assert cordoned(world, client) == []
    assert world.create(client, "t4", 2) == 0
    assert [placed(world, directory) for directory in DIRS] == [2, 5, 2]


def test_where_all_directories_are_cordoned_no_topic_can_be_created() -> None:
    world = started("*")
    assert world.create(world.node.connect(), "t") == ErrorCode.INVALID_REPLICATION_FACTOR


def test_no_replica_moves_into_a_cordoned_directory() -> None:
    world = started("/b,/c")
    client = world.node.connect()
    assert world.create(client, "t") == 0
    assert move(world, client, "/b", 0) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]


def test_only_data_directories_can_be_cordoned() -> None:
    for wrong in ("/elsewhere", "*,/a"):
        with pytest.raises(SettingsError, match=r"cordoned\.log\.dirs"):
            BrokerSettings.of({"log.dirs": "/a,/b", "cordoned.log.dirs": wrong})
    world = started()
    code, said = set_to(world, world.node.connect(), BROKER, "1", cordoned_log_dirs="/elsewhere")
    assert code == ErrorCode.INVALID_REQUEST
    assert "/elsewhere" in (said or "")
