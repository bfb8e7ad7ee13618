"""Fixtures of tests of moves between log directories: a broker with three of them, a topic that has rolled,
and where its files lie.
"""

from sparklog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from sparklog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import (
    ACKS_ALL,
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    World,
    fetch,
    fetched,
    produce,
    produced,
)

DIRS = ("/a", "/b", "/c")
SMALL = {"log.segment.bytes": str(1 << 20)}


def started(seed: int = 1, **given: str) -> tuple[World, SimulatedConnection]:
    """A broker and an empty topic."""
    world = World(seed, **{"log.dirs": ",".join(DIRS), **SMALL, **given})
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert world.create(client, "t") == 0
    return world, client


def send(world: World, client: SimulatedConnection, value: bytes, *, acks: int = ACKS_ALL) -> int:
    answer = world.ask(client, produce("t", world.batch(value), acks=acks), PRODUCE_BY_NAME, ProduceResponse)
    return produced(answer)[0]


def fill(
    world: World, client: SimulatedConnection, count: int = 25, *, size: int = 100_000, prefix: bytes = b"v"
) -> list[bytes]:
    """Write records for some segments; returns them."""
    values = [prefix + b"%d" % index + bytes(size) for index in range(count)]
    for value in values:
        assert send(world, client, value) == 0
    return values


def read(world: World, client: SimulatedConnection, start: int = 0) -> list[bytes]:
    """All that a consumer reads from an offset on; every record is one batch."""
    found: list[bytes] = []
    while True:
        answer = world.ask(
            client,
            fetch("t", start + len(found), max_wait_ms=0, max_bytes=1 << 24),
            FETCH_BY_NAME,
            FetchResponse,
        )
        code, values = fetched(answer)
        assert code == 0
        if not values:
            return found
        found += values


def home(world: World, topic: str = "t-0") -> list[str]:
    """The directories in which a log of that name lies."""
    return [directory for directory in DIRS if topic in world.disk.list(directory)]


def left_over(world: World) -> list[str]:
    """The files in the directories that belong to no log."""
    return [
        name
        for directory in DIRS
        for name in world.disk.list(directory)
        if name.endswith(("-future", "-delete", "-stray"))
    ]


def asking(path: str, *partitions: int, topic: str = "t") -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, list(partitions) or [0])])]
    )


def move(
    world: World, client: SimulatedConnection, path: str, *partitions: int, topic: str = "t", version: int = 2
) -> list[int]:
    """Ask for a move; the error codes."""
    answer = world.ask(client, asking(path, *partitions, topic=topic), version, AlterReplicaLogDirsResponse)
    assert isinstance(answer, AlterReplicaLogDirsResponse)
    return [part.error_code for topic_told in answer.results for part in topic_told.partitions]


def described(world: World, client: SimulatedConnection) -> dict[tuple[str, str, int], tuple[int, int, bool]]:
    """(bytes, lag, whether it is a copy) by directory, topic and partition."""
    told = world.ask(client, DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
    assert isinstance(told, DescribeLogDirsResponse)
    return {
        (one.log_dir, topic.name, part.partition_index): (
            part.partition_size,
            part.offset_lag,
            part.is_future_key,
        )
        for one in told.results
        for topic in one.topics
        for part in topic.partitions
    }


def elsewhere(world: World) -> str:
    """A directory that the log does not lie in."""
    return next(directory for directory in DIRS if directory not in home(world))
