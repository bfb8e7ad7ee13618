"""Every public method of every client after its close, and while it closes: ClientClosed, at once."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pyarrow as pa
import pytest

from sparklog import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientClosed,
    Consumer,
    GroupMetadata,
    Producer,
    RequestTimeout,
    TopicPartition,
)
from sparklog.client.consumer.core import ConsumerCore
from sparklog.client.consumer.waits import Until
from sparklog.client.membership.group import Group
from sparklog.client.transport.network import Network
from sparklog.local_broker import EmbeddedBroker
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from tests.client.wire import ScriptedBroker, metadata, no_chance, settings

NOBODY = "127.0.0.1:9"
T0 = TopicPartition("t", 0)
ENDS = ("close", "stop", "start", "from_settings")
ARGUMENTS: dict[str, object] = {
    "topic": "t",
    "topics": ["t"],
    "partition": T0,
    "partitions": [T0],
    "topic_partition": T0,
    "offset": 1,
    "offsets": {T0: 1},
    "group": GroupMetadata("g", -1, "", None),
    "values": [b"v"],
    "table": pa.table({"value": [b"v"]}),
}
"""By parameter name; every other required parameter is given an empty mapping."""


def methods_of(client: type[object]) -> list[str]:
    """The public methods, except those that begin and end a client."""
    found = inspect.getmembers(client, inspect.isfunction)
    return [name for name, _ in found if not name.startswith("_") and name not in ENDS]


def call(client: object, name: str) -> object:
    """Call a method with an argument for each required parameter."""
    method = getattr(client, name)
    required = [
        parameter
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    by_name = {parameter.name: ARGUMENTS.get(parameter.name, {}) for parameter in required}
    positional = [by_name[p.name] for p in required if p.kind is not p.KEYWORD_ONLY]
    return method(*positional, **{p.name: by_name[p.name] for p in required if p.kind is p.KEYWORD_ONLY})


def refuses(client: object, names: list[str]) -> dict[str, object]:
    """The methods that do not raise ClientClosed, with their outcomes."""
    outcomes: dict[str, object] = {}
    for name in names:
        try:
            outcomes[name] = call(client, name)
        except ClientClosed:
            continue
        except Exception as error:
            outcomes[name] = error
    return outcomes


async def refuses_async(client: object, names: list[str]) -> dict[str, object]:
    outcomes: dict[str, object] = {}
    for name in names:
        try:
            outcome = call(client, name)
            outcomes[name] = await outcome if inspect.isawaitable(outcome) else outcome
        except ClientClosed:
            continue
        except Exception as error:
            outcomes[name] = error
    return outcomes


BLOCKING: list[Callable[[], Admin | Consumer | Producer]] = [
    lambda: Admin(bootstrap_servers=NOBODY),
    lambda: Consumer(bootstrap_servers=NOBODY),
    lambda: Consumer(bootstrap_servers=NOBODY, group_id="g"),
    lambda: Producer(bootstrap_servers=NOBODY),
    lambda: Producer(bootstrap_servers=NOBODY, transactional_id="x"),
]
LOOPED: list[Callable[[], AsyncAdmin | AsyncConsumer | AsyncProducer]] = [
    lambda: AsyncAdmin(bootstrap_servers=NOBODY),
    lambda: AsyncConsumer(bootstrap_servers=NOBODY),
    lambda: AsyncConsumer(bootstrap_servers=NOBODY, group_id="g"),
    lambda: AsyncProducer(bootstrap_servers=NOBODY),
]


@pytest.mark.parametrize("make", BLOCKING)
def test_every_method_of_a_closed_client_raises_client_closed(
    make: Callable[[], Admin | Consumer | Producer],
) -> None:
    client = make()
    client.close()
    names = methods_of(type(client))
    assert len(names) > 8
    assert refuses(client, names) == {}
    client.close()


@pytest.mark.parametrize("make", LOOPED)
def test_every_method_of_a_stopped_client_raises_client_closed(
    make: Callable[[], AsyncAdmin | AsyncConsumer | AsyncProducer],
) -> None:
    async def use() -> None:
        client = make()
        await client.start()
        await client.stop()
        names = methods_of(type(client))
        assert len(names) > 8
        assert await refuses_async(client, [*names, "start"]) == {}
        await client.stop()

    asyncio.run(use())


class HeldBroker:
    """Answers no Produce before `release` is set; `asked` is set by the first one."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.address = broker.address
        self.asked, self.release = threading.Event(), threading.Event()
        broker.handlers |= {
            "Metadata": lambda _: metadata({"t": [1]}, nodes=[(1, broker.port)]),
            "Produce": self._produce,
        }

    def _produce(self, _: Message) -> Message:
        self.asked.set()
        assert self.release.wait(30)
        return ProduceResponse()


@pytest.fixture
def held() -> Iterator[HeldBroker]:
    with ScriptedBroker() as broker:
        one = HeldBroker(broker)
        yield one
        one.release.set()


def test_every_method_of_a_producer_that_closes_in_another_thread_raises_client_closed(
    held: HeldBroker,
) -> None:
    producer = Producer(bootstrap_servers=held.address, linger_ms=60_000, enable_idempotence=False)
    producer.send("t", b"v")
    closing = threading.Thread(target=producer.close, args=(500,))
    closing.start()
    assert held.asked.wait(30)
    assert refuses(producer, methods_of(Producer)) == {}
    held.release.set()
    closing.join()


def test_every_method_of_a_producer_that_another_task_stops_raises_client_closed(held: HeldBroker) -> None:
    async def use() -> None:
        producer = AsyncProducer(bootstrap_servers=held.address, linger_ms=60_000, enable_idempotence=False)
        await producer.start()
        await producer.send("t", b"v")
        stopping = asyncio.create_task(producer.stop(500))
        assert await asyncio.to_thread(held.asked.wait, 30)
        assert await refuses_async(producer, methods_of(AsyncProducer)) == {}
        held.release.set()
        await stopping

    asyncio.run(use())


def test_every_method_of_a_consumer_that_closes_in_another_thread_raises_client_closed(
    sparklog_broker: EmbeddedBroker,
) -> None:
    servers = sparklog_broker.bootstrap_servers
    revoking, release = threading.Event(), threading.Event()
    kept: list[object] = []

    def revoked(partitions: tuple[TopicPartition, ...]) -> None:
        consumer.commit(dict.fromkeys(partitions, 0))  # the owner still may
        kept.append(consumer.committed(partitions))
        revoking.set()
        assert release.wait(30)

    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({"closing": 1})
    consumer = Consumer(bootstrap_servers=servers, group_id="closing", enable_auto_commit=False)
    consumer.subscribe(["closing"], on_revoke=revoked)
    while not consumer.assignment():
        consumer.poll(100)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    assert revoking.wait(30)
    assert refuses(consumer, methods_of(Consumer)) == {}
    release.set()
    closing.join()
    assert len(kept) == 1


def test_every_method_of_a_consumer_that_another_task_stops_raises_client_closed(
    sparklog_broker: EmbeddedBroker,
) -> None:
    servers = sparklog_broker.bootstrap_servers

    async def use() -> None:
        revoking, release = asyncio.Event(), asyncio.Event()

        async def revoked(_: tuple[TopicPartition, ...]) -> None:
            revoking.set()
            await release.wait()

        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            await admin.create_topics({"stopping": 1})
        consumer = AsyncConsumer(bootstrap_servers=servers, group_id="stopping")
        await consumer.start()
        consumer.subscribe(["stopping"], on_revoke=revoked)
        while not consumer.assignment():
            await consumer.poll(100)
        stopping = asyncio.create_task(consumer.stop())
        await revoking.wait()
        assert await refuses_async(consumer, methods_of(AsyncConsumer)) == {}
        release.set()
        await stopping

    asyncio.run(use())


class StillKeeper:
    """A keeper whose turns never run, as if its thread had stopped."""

    has_crashed = False

    def __init__(self) -> None:
        self.lock = nullcontext()
        self.group = Group(settings(group_id="g"), no_chance)

    def start(self) -> None: ...

    def wake(self) -> None: ...

    def check(self) -> None: ...

    def stop(self) -> None: ...


def test_a_wait_that_ends_without_an_answer_is_not_a_success() -> None:
    given = settings(group_id="g")
    with Network(given) as network:
        core = ConsumerCore(given, network, keep=lambda _: StillKeeper(), wake=lambda: None)
        for steps in (core.commit({T0: 1}), core.committed([T0])):
            assert isinstance(next(steps), Until)
            with pytest.raises(RequestTimeout):
                next(steps)
