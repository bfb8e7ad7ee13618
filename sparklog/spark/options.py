"""The options of `format("sparklog")`: a field of `Options` is the definition, with its name, parser and meaning in one place.

Spark hands option names over in lower case and values untouched, so names are matched without regard to case. Keys that Spark adds by
itself are let through; keys of Spark's own Kafka connector that change nothing here are let through too; everything else that is not
known is an error that names the nearest option, since a misspelt option that is silently ignored costs an afternoon.
"""

# ruff: noqa: RUF009  (every default below is made by dataclasses.field, called through _option)

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

from sparklog.client.settings import MEMBERS_ONLY, ClientSettings, warn_without_effect
from sparklog.errors import SettingsError
from sparklog.model import TopicPartition
from sparklog.spark.formats.names import Format, Mode, SchemaIdPrefix

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
_OFFSET_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_CLIENT_PREFIX = "kafka."

_INJECTED_BY_SPARK = frozenset(
    {"path", "paths", "checkpointlocation", "queryname", "outputmode", "provider", "serialization.format", "header", "timezone"}
)
"""Keys Spark puts beside the user's own: `load(path)`, `save(path)`, `writeStream`, and the catalog for tables."""

_WITHOUT_EFFECT = frozenset({"groupidprefix", "kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms"})
"""Known to Spark's Kafka connector; nothing here depends on them: no consumer group is joined, and the client has its own timeouts."""

_FORBIDDEN: Mapping[str, str] = MappingProxyType(
    {
        "kafka.auto.offset.reset": "where a query starts is told by startingOffsets, and data that is gone is never skipped unasked",
        "kafka.key.deserializer": "keys arrive as binary; cast or decode the column in Spark",
        "kafka.value.deserializer": "values arrive as binary; cast or decode the column in Spark",
        "kafka.key.serializer": "keys are written as they are; make the column a string or binary",
        "kafka.value.serializer": "values are written as they are; make the column a string or binary",
        "kafka.enable.auto.commit": "Spark keeps the offsets in its checkpoint",
        "kafka.interceptor.classes": "interceptors could change records between Spark and the log",
    }
)
_NOT_SERVED: Mapping[str, str] = MappingProxyType(
    {
        "startingtimestamp": "use startingOffsets",
        "startingoffsetsbytimestamp": "use startingOffsets",
        "startingoffsetsbytimestampstrategy": "use startingOffsets",
        "endingtimestamp": "use endingOffsets",
        "endingoffsetsbytimestamp": "use endingOffsets",
        "minoffsetspertrigger": "use a longer trigger interval",
        "maxtriggerdelay": "use a longer trigger interval",
        "maxrecordsperpartition": "use minPartitions",
    }
)
"""Options of Spark's Kafka connector that mean something and are not served; ignoring one would read the wrong records."""


class Place(Enum):
    """A named position in every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start or end: one place for all partitions, or an offset for each, where -2 is earliest and -1 latest."""

    place: Place | None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definition:
    """What is known of one option besides its value."""

    name: str
    parse: Callable[[str], object]
    doc: str
    aliases: tuple[str, ...]


def _option(name: str, parse: Callable[[str], T], default: T, doc: str, aliases: tuple[str, ...] = ()) -> T:
    return field(default=default, metadata={"definition": Definition(name, parse, doc, aliases)})


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def _boolean(value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("must be true or false")
    return word == "true"


def _word(words: type[E]) -> Callable[[str], E]:
    def parse(value: str) -> E:
        known = [str(word.value) for word in words]
        if value.strip().lower() not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return words(value.strip().lower())

    return parse


def _positive(largest: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", value.strip()) or not 0 < int(value) <= largest:
            raise ValueError(f"must be a whole number from 1 to {largest}")
        return int(value)

    return parse


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise ValueError("must name at least one topic, several are separated by commas")
    return topics


def _pattern(value: str) -> str:
    try:
        re.compile(_text(value))
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from error
    return value


def _json_object(value: str, example: str) -> Mapping[str, object]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise ValueError(f"must be JSON such as {example} ({error})") from error
    if not isinstance(parsed, dict):
        raise ValueError(f"must be JSON such as {example}")
    return parsed


def _partition_number(value: object, topic: str) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,10}", str(value)) or int(str(value)) > _INT_MAX:
        raise ValueError(f"{value!r} is not a partition number of topic {topic!r}")
    return int(str(value))


def _assignment(value: str) -> tuple[TopicPartition, ...]:
    example = '{"topic":[0,1]}'
    partitions: set[TopicPartition] = set()
    for topic, numbers in _json_object(value, example).items():
        if not isinstance(numbers, list):
            raise ValueError(f"must be JSON such as {example}")
        partitions.update(TopicPartition(topic, _partition_number(number, topic)) for number in numbers)
    if not partitions:
        raise ValueError(f"must name at least one partition, as in {example}")
    return tuple(sorted(partitions))


def _position(value: str) -> Position:
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return Position(Place(word))
    example = 'earliest, latest or JSON such as {"topic":{"0":23,"1":-1}}'
    if not value.strip().startswith("{"):
        raise ValueError(f"must be {example}")
    offsets: dict[TopicPartition, int] = {}
    for topic, by_partition in _json_object(value, example).items():
        if not isinstance(by_partition, dict):
            raise ValueError(f"must be {example}")
        for number, offset in by_partition.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or not EARLIEST_OFFSET <= offset <= _OFFSET_MAX:
                raise ValueError(f"{offset!r} is no offset of {topic}-{number}; -2 means earliest, -1 latest")
            offsets[TopicPartition(topic, _partition_number(number, topic))] = offset
    return Position(None, offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one read or write, parsed and checked one by one; what must hold between them is checked by `for_*`."""

    bootstrap_servers: str = _option(
        "kafka.bootstrap.servers",
        _text,
        "",
        "brokers to begin with, host:port separated by commas",
        ("bootstrap.servers", "bootstrapServers"),
    )
    subscribe: tuple[str, ...] | None = _option("subscribe", _topics, None, "topics to read, separated by commas")
    subscribe_pattern: str | None = _option("subscribePattern", _pattern, None, "a regular expression that the whole topic name must match")
    assign: tuple[TopicPartition, ...] | None = _option("assign", _assignment, None, 'partitions to read, as JSON: {"topic":[0,1]}')
    starting_offsets: Position | None = _option(
        "startingOffsets", _position, None, "earliest, latest or JSON; a batch starts at earliest, a stream at latest unless told"
    )
    ending_offsets: Position | None = _option("endingOffsets", _position, None, "latest or JSON; for batch reads")
    max_offsets_per_trigger: int | None = _option(
        "maxOffsetsPerTrigger", _positive(_OFFSET_MAX), None, "offsets to read in one micro-batch, shared among partitions by backlog"
    )
    min_partitions: int | None = _option("minPartitions", _positive(_INT_MAX), None, "tasks to split a read into, at least")
    include_headers: bool = _option("includeHeaders", _boolean, False, "whether the column `headers` is there")
    fail_on_data_loss: bool = _option("failOnDataLoss", _boolean, True, "whether a read fails when records it needs are gone from the log")
    # -- keys and values as typed columns
    value_format: Format = _option(
        "valueFormat",
        _word(Format),
        Format.BINARY,
        "what values are: `binary`, `string`, `json`, `avro` or `protobuf` (the last two need `sparklog[formats]`); the column `value` then"
        " has the type of their schema",
    )
    value_schema: str | None = _option(
        "valueSchema",
        _text,
        None,
        "the schema of values: for `json` DDL (`id BIGINT, tags ARRAY<STRING>`) or a Spark schema in JSON (without it, the schema of the"
        " read tells); for `avro` the writer's schema or its file; for `protobuf` a file that `protoc --include_imports"
        " --descriptor_set_out` wrote, or its content in base64",
    )
    value_message: str | None = _option("valueMessage", _text, None, "the name of the Protobuf message that values are")
    key_format: Format = _option(
        "keyFormat",
        _word(Format),
        Format.BINARY,
        "the same for keys",
    )
    key_schema: str | None = _option("keySchema", _text, None, "the same for keys")
    key_message: str | None = _option("keyMessage", _text, None, "the same for keys")
    schema_id_prefix: SchemaIdPrefix = _option(
        "schemaIdPrefix",
        _word(SchemaIdPrefix),
        SchemaIdPrefix.AUTO,
        "whether a zero byte and a schema's id stand before the content, as schema registries' clients write it: `auto` looks at each,"
        " `always` or `never` (Avro's own bytes may look like a prefix)",
    )
    mode: Mode | None = _option(
        "mode",
        _word(Mode),
        None,
        "what becomes of a record that cannot be decoded: `permissive` makes it null and puts its bytes and the reason into the column"
        " `_corrupt`, `failfast` fails the query",
    )

    topic: str | None = _option("topic", _text, None, "the topic to write to; stronger than a column `topic`")
    client: ClientSettings = field(default_factory=ClientSettings)
    """The brokers and the remaining `kafka.*` settings, as the client understands them."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        """The options of one read or write; raises SettingsError that names the key, the value and the remedy."""
        values: dict[str, object] = {}
        named_by: dict[str, str] = {}
        client: dict[str, str] = {}
        for key, value in given.items():
            lower = key.lower()
            if lower in _FORBIDDEN:
                raise SettingsError(f"option {key!r} cannot be set: {_FORBIDDEN[lower]}")
            if lower in _NOT_SERVED:
                raise SettingsError(f"option {key!r} of Spark's Kafka connector is not served by sparklog: {_NOT_SERVED[lower]}")
            if lower in _DEFINED:
                attribute, definition = _DEFINED[lower]
                if attribute in values:
                    raise SettingsError(f"options {named_by[attribute]!r} and {key!r} mean the same: give one")
                values[attribute] = _parsed(definition, value)
                named_by[attribute] = key
            elif lower in _INJECTED_BY_SPARK or lower in _WITHOUT_EFFECT:
                continue
            elif lower.startswith(_CLIENT_PREFIX):
                name = lower.removeprefix(_CLIENT_PREFIX)
                if name in MEMBERS_ONLY:
                    warn_without_effect(name)  # a query keeps its offsets itself and joins no group
                else:
                    client[name] = value
            else:
                raise SettingsError(f"unknown option {key!r}; {_nearest(lower)}")
        if "bootstrap_servers" not in values:
            raise SettingsError("option 'kafka.bootstrap.servers' is missing: the brokers to begin with, as host:port,host:port")
        client["bootstrap.servers"] = str(values["bootstrap_servers"])
        try:
            settings = ClientSettings.from_kafka(client)
        except SettingsError as error:
            raise SettingsError(f"among the kafka.* options: {error}") from None
        return cls(**values, client=settings)  # type: ignore[arg-type]

    def for_batch_read(self) -> "Options":
        """Checks what a batch read needs and must not have; returns itself."""
        self._require_one_subscription()
        start, end = self.starting_offsets, self.ending_offsets
        if start is not None and (start.place is Place.LATEST or LATEST_OFFSET in start.offsets.values()):
            raise SettingsError("option 'startingOffsets' of a batch read cannot be latest (-1): nothing would be read")
        if end is not None and (end.place is Place.EARLIEST or EARLIEST_OFFSET in end.offsets.values()):
            raise SettingsError("option 'endingOffsets' cannot be earliest (-2): nothing would be read")
        if self.max_offsets_per_trigger is not None:
            raise SettingsError("option 'maxOffsetsPerTrigger' is for streams; a batch read is bounded by endingOffsets")
        return self

    def for_stream_read(self) -> "Options":
        """Checks what a stream needs and must not have; returns itself."""
        self._require_one_subscription()
        if self.ending_offsets is not None:
            raise SettingsError("option 'endingOffsets' is for batch reads; a stream that ends by itself has .trigger(availableNow=True)")
        return self

    def _require_one_subscription(self) -> None:
        given = {"subscribe": self.subscribe, "subscribePattern": self.subscribe_pattern, "assign": self.assign}
        names = [name for name, value in given.items() if value is not None]
        if not names:
            raise SettingsError("nothing to read: give one of the options 'subscribe', 'subscribePattern' and 'assign'")
        if len(names) > 1:
            raise SettingsError(f"options {' and '.join(map(repr, names))} exclude each other: give one")


def _parsed(definition: Definition, value: str) -> object:
    try:
        return definition.parse(value)
    except ValueError as error:
        raise SettingsError(f"option {definition.name!r} has the value {value!r}: {error}") from error


def definitions() -> tuple[Definition, ...]:
    """Every option there is, in the order of the documentation."""
    return tuple(f.metadata["definition"] for f in fields(Options) if "definition" in f.metadata)


def _by_lower_name() -> dict[str, tuple[str, Definition]]:
    found: dict[str, tuple[str, Definition]] = {}
    for f in fields(Options):
        definition: Definition | None = f.metadata.get("definition")
        if definition is not None:
            for name in (definition.name, *definition.aliases):
                found[name.lower()] = (f.name, definition)
    return found


_DEFINED = _by_lower_name()


def _nearest(lower: str) -> str:
    near = get_close_matches(lower, _DEFINED, n=1, cutoff=0.6)
    if near:
        return f"did you mean {_DEFINED[near[0]][1].name!r}?"
    return "known are " + ", ".join(definition.name for definition in definitions()) + " and kafka.* for the client"
