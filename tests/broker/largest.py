"""The largest requests of each API that the bounds of a broker allow, made from the message classes.

A request is made in several shapes: one for each array, with as many elements as the bounds allow; one with
every array filled alike; one with every string at its longest.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from sparklog.errors import DecodeError
from sparklog.wire.api_keys import API_BY_KEY, Api
from sparklog.wire.codec import decode_request, encode
from sparklog.wire.header import encode_request
from sparklog.wire.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Field,
    Message,
    fields,
)
from sparklog_server.broker.broker import Broker
from sparklog_server.broker.dispatch import HANDLERS, SERVED, import_handler
from sparklog_server.broker.requests import BEGIN_WITH_TOPICS, topic_count
from sparklog_server.config.access_settings import STANDARD_AUTHORIZER
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import World

RIGHTS: Final[dict[str, dict[str, str]]] = {
    "without rights": {},
    "with all rights": {"super.users": "User:ANONYMOUS"},
}
"""The settings of a node whose clients have these rights."""
TURNS: Final = ("receive", "tick", "finished", "unread", "disconnected")
"""The methods of a broker that are one turn of its loop."""
FRAME_BYTES_MAX = 8 << 20
TOPICS_MAX = 20_000
LONGEST = "x" * 32_760
_ELEMENTS_MAX = 1 << 19
_NUMBERS = {
    "acks": -1,
    "coordinator_type": 0,
    "config_operation": 0,
    "entity_type": 0,
    "key_type": 0,
    "mechanism": 1,
    "iterations": 4096,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "resource_type": 2,
    "resource_pattern_type": 3,
    "resource_type_filter": 2,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
    "timestamp": -1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "response_partition_limit": 2000,
    "timeout_ms": 1000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "max_lifetime_ms": 60_000,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "leader_epoch": -1,
    "committed_leader_epoch": -1,
    "replica_id": -1,
    "member_epoch": 0,
    "producer_id": 1,
}
"""What a field holds so that the request is not refused as a whole."""
_SERIAL = frozenset(("partition", "partition_index", "index", "partition_id"))
_TEXTS = {
    "protocol_type": "consumer",
    "assignor": None,
    "server_assignor": None,
    "instance_id": None,
    "group_instance_id": None,
    "subscribed_topic_regex": None,
    "member_id": "",
    "rack_id": None,
}


class Largest(NamedTuple):
    """One request, and what it is large in."""

    api: Api
    version: int
    shape: str
    request: Message

    @property
    def name(self) -> str:
        return f"{self.api.name} v{self.version} {self.shape}"


def arrays(cls: type[Message], version: int, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the arrays of a message class, outer ones first."""
    for field in fields(cls):
        if not field.since <= version <= field.until:
            continue
        if field.is_array:
            yield (*path, field.name)
        if field.struct is not None:
            yield from arrays(field.struct, version, (*path, field.name))


class _Maker:
    """Makes one message with `counts` elements in the arrays of these paths, 1 in others that lead there."""

    def __init__(
        self, version: int, counts: dict[tuple[str, ...], int], *, other: int, text: str = ""
    ) -> None:
        self.version = version
        self.counts = counts
        self.other = other
        self.text = text
        self.serial = 0

    def made(self, cls: type[Message], path: tuple[str, ...] = (), index: int = 0) -> Message:
        message = cls()
        for field in fields(cls):
            if field.since <= self.version <= field.until:
                setattr(message, field.name, self._value(field, (*path, field.name), index))
        return message

    def _count(self, path: tuple[str, ...]) -> int:
        if path in self.counts:
            return self.counts[path]
        leads = any(one[: len(path)] == path for one in self.counts)
        return 1 if leads else self.other

    def _value(self, field: Field, path: tuple[str, ...], index: int) -> object:
        if not field.is_array:
            return self._one(field, path, index)
        count = self._count(path)
        return [self._one(field, path, number) for number in range(count)]

    def _one(self, field: Field, path: tuple[str, ...], index: int) -> object:
        if field.struct is not None:
            if (
                not field.is_array
                and field.default is None
                and not any(one[: len(path)] == path for one in self.counts)
            ):
                return None
            return self.made(field.struct, path, index)
        kind = field.wire_type
        if kind is STRING:
            if not field.is_array and field.name in _TEXTS:
                text = _TEXTS[field.name]
                return "" if text is None and self.version < field.nullable_since else text
            self.serial += 1
            return f"{self.serial}-{self.text}"[: max(len(self.text), 12)]
        if kind is BYTES:
            return self.text.encode() or b"12"
        if kind is RECORDS:
            return None
        if kind is UUID:
            return bytes(16) if self._named(path) else index.to_bytes(16, "big")
        if kind is BOOL:
            return field.default
        if kind is FLOAT64:
            return 1.0
        if field.name in _SERIAL or (field.is_array and field.name not in _NUMBERS):
            return index if kind in (INT32, INT64) else index % 100
        return _NUMBERS.get(field.name, field.default)

    def _named(self, path: tuple[str, ...]) -> bool:
        return self.version < 12 and "topic_id" in path[-1]


def fits(api: Api, version: int, request: Message) -> bool:
    """Whether the broker decodes it."""
    cls = api.request()
    frame = b"".join(bytes(chunk) for chunk in encode(request, version))
    if len(frame) > FRAME_BYTES_MAX - 1024:
        return False
    if api.key in BEGIN_WITH_TOPICS and topic_count(api.key, version, memoryview(frame)) > TOPICS_MAX:
        return False
    try:
        decode_request(cls, version, frame)
    except DecodeError:
        return False
    return True


def largest(api: Api, version: int, *, at_most: int = _ELEMENTS_MAX) -> Iterator[Largest]:
    """The request of one API in each shape."""
    cls = api.request()
    paths = list(arrays(cls, version))

    def grown(shape: str, make: Callable[[int], Message]) -> Largest:
        few, many = 0, 2  # fits, does not
        while many <= at_most and fits(api, version, make(many)):
            few, many = many, 2 * many
        while many - few > max(few // 16, 1):
            middle = (few + many) // 2
            if fits(api, version, make(middle)):
                few = middle
            else:
                many = middle
        return Largest(api, version, f"{shape} x {few}", make(few))

    for path in paths:
        yield grown(
            ".".join(path), lambda count, path=path: _Maker(version, {path: count}, other=0).made(cls)
        )
    if len(paths) > 1:
        yield grown("all", lambda count: _Maker(version, dict.fromkeys(paths, count), other=0).made(cls))
    if paths:
        yield grown(
            "long strings",
            lambda count: _Maker(version, dict.fromkeys(paths[:1], count), other=1, text=LONGEST).made(cls),
        )
    else:
        yield Largest(api, version, "long strings", _Maker(version, {}, other=1, text=LONGEST).made(cls))


def served() -> list[Api]:
    """The APIs of the clients' listeners."""
    return [API_BY_KEY[key] for key in SERVED]


def in_turns(broker: type[Broker], around: Callable[[Callable[[], Any]], Any]) -> None:
    """Have `around` called with each turn of the brokers of a class, and return what the turn returns."""

    def turn_of(name: str) -> Callable[..., Any]:
        def turn(self: Broker, *given: Any, **more: Any) -> Any:
            return around(lambda: getattr(Broker, name)(self, *given, **more))

        return turn

    for name in TURNS:
        setattr(broker, name, turn_of(name))


def started(broker: type[Broker], rights: str, work_ns: Callable[[], int]) -> World:
    """A node with an authorizer, all handlers of which are imported."""
    for key in SERVED:
        import_handler(HANDLERS, key)
    world = World(
        1,
        broker_class=broker,
        **{
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            **RIGHTS[rights],
        },
    )
    world.node.work_clock = work_ns
    world.node.start()
    world.settle()
    return world


def connected(world: World) -> SimulatedConnection:
    """A client that takes any answer."""
    client = world.node.connect()
    client.expects_anything = True
    return client


def frame_of(one: Largest) -> bytes:
    """The request as it is sent."""
    return b"".join(bytes(chunk) for chunk in encode_request(one.request, one.version, 1, ""))
