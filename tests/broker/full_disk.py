"""A broker on a simulated disk of limited size, and the requests that its tests send."""

from sparklog.errors import ErrorCode
from sparklog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.groups import SETTINGS
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

RESERVE = 500_000
FULL = ErrorCode.KAFKA_STORAGE_ERROR


def started(**given: str) -> tuple[World, SimulatedConnection]:
    world = World(1, **{"sparklog.disk.reserve.bytes": str(RESERVE), **SETTINGS, **given})
    return world, restarted(world)


def restarted(world: World) -> SimulatedConnection:
    world.node.start()
    world.settle(2000)
    assert world.node.running.is_ready
    return world.node.connect()


def leave(world: World, size: int) -> None:
    """Have the disk end `size` bytes from here."""
    world.disk.capacity_bytes = world.disk.used_bytes + size


def create(world: World, client: SimulatedConnection, name: str, **configs: object) -> tuple[int, str | None]:
    wanted = [
        CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=wanted)
    answer = world.ask(client, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7, CreateTopicsResponse)
    assert isinstance(answer, CreateTopicsResponse)
    return answer.topics[0].error_code, answer.topics[0].error_message


def send(world: World, client: SimulatedConnection, value: bytes = b"x", topic: str = "t") -> tuple[int, int]:
    return produced(
        world.ask(client, produce(topic, world.batch(value), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    )


def read(
    world: World, client: SimulatedConnection, topic: str = "t", offset: int = 0
) -> tuple[int, list[bytes]]:
    values: list[bytes] = []
    while True:
        code, found = fetched(
            world.ask(
                client,
                fetch(topic, offset + len(values), max_wait_ms=0, max_bytes=1 << 26),
                FETCH_BY_NAME,
                FetchResponse,
            )
        )
        if code or not found:
            return code, values
        values += found


def events(world: World, name: str) -> list[str]:
    return [line for line in world.node.trace if line.startswith(f"{name} ")]


def leader_of(world: World, client: SimulatedConnection, topic: str = "t") -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    answer = world.ask(client, request, 9, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    return answer.topics[0].partitions[0].leader_id
