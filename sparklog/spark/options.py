"""The options of `format("sparklog")`: a field of `Options` is the definition, with its name, parser and
meaning in one place.

Spark hands names over in lower case and values untouched, so case does not matter in names. Other keys are
the matter of `foreign_keys`.
"""

# ruff: noqa: RUF009  (every default below is made by dataclasses.field, called through _option)

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TypeVar

from sparklog.client.settings import MEMBERS_ONLY, ClientSettings, warn_without_effect
from sparklog.errors import SettingsError
from sparklog.model import TopicPartition
from sparklog.spark import foreign_keys, positions
from sparklog.spark.formats.names import Format, Mode, SchemaIdPrefix
from sparklog.spark.positions import (
    EARLIEST,
    INT32_MAX,
    INT64_MAX,
    LATEST,
    ByOffset,
    Landmark,
    Place,
    Position,
)

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

_CLIENT_PREFIX = "kafka."
_CHECKPOINT = "checkpointlocation"
_NO_BROKERS = (
    "option 'kafka.bootstrap.servers' is missing, as host:port,host:port. Only a table made without columns "
    "remembers its OPTIONS, and no"
    " stream that writes into one: say them at each use, FROM name WITH (…), .options(…); in place of AS "
    "SELECT, INSERT INTO such a table"
)


class WhenLost(Enum):
    """Behavior of a read whose records are gone from the log."""

    FAIL = "true"
    WARN = "warn"
    SKIP = "skip"


class EarlyRowsWhen(Enum):
    """Whether rows of tiny micro-batches are read where these are planned."""

    AUTO = "auto"
    OFF = "off"


class Guarantee(Enum):
    """How often a record that is written counts."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class NoMatch(Enum):
    """Where a partition begins that has no record at or after the time asked for."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of one option."""

    name: str
    parse: Callable[[str], object]
    doc: str
    aliases: tuple[str, ...]
    default: str
    """In words, where the value says too little."""


def _option(
    name: str,
    parse: Callable[[str], T],
    default: T,
    doc: str,
    *,
    aliases: tuple[str, ...] = (),
    default_text: str | None = None,
) -> T:
    shown = default_text if default_text is not None else "" if default is None else str(default).lower()
    return field(default=default, metadata={"definition": Definition(name, parse, doc, aliases, shown)})


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


def _whole(first: int, last: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", value.strip()) or not first <= int(value) <= last:
            raise ValueError(f"must be a whole number from {first} to {last}")
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
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    return value.strip()


def _when_lost(value: str) -> WhenLost:
    word = value.strip().lower()
    if word not in ("true", "false", "fail", "warn", "skip"):
        raise ValueError("must be true, false, warn or skip")
    return {"true": WhenLost.FAIL, "fail": WhenLost.FAIL, "skip": WhenLost.SKIP}.get(word, WhenLost.WARN)


def _no_match(value: str) -> NoMatch:
    word = value.strip().lower()
    if word not in ("error", "latest"):
        raise ValueError("must be error or latest")
    return NoMatch(word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one read or write, parsed and checked one by one; what must hold between them is
    checked by `for_*`.
    """

    bootstrap_servers: str = _option(
        "kafka.bootstrap.servers",
        _text,
        "",
        "brokers to begin with, host:port separated by commas",
        aliases=("bootstrap.servers", "bootstrapServers"),
        default_text="must be given",
    )

    # -- what to read
    subscribe: tuple[str, ...] | None = _option(
        "subscribe",
        _topics,
        None,
        "topics to read, separated by commas; exactly one of `subscribe`, `subscribePattern` and `assign` is "
        "given",
    )
    subscribe_pattern: str | None = _option(
        "subscribePattern", _pattern, None, "a regular expression that the whole topic name must match"
    )
    assign: tuple[TopicPartition, ...] | None = _option(
        "assign", positions.assignment, None, 'partitions to read, as JSON: `{"topic":[0,1]}`'
    )

    # -- where to start and end
    starting_timestamp: Position | None = _option(
        "startingTimestamp",
        positions.moment,
        None,
        "the first record at or after this time, in milliseconds; wins over the next two",
    )
    starting_offsets_by_timestamp: Position | None = _option(
        "startingOffsetsByTimestamp",
        positions.moments,
        None,
        'the same by partition or by topic, as JSON: `{"t":{"0":1767323045000},"u":1767323045000}`; wins over `startingOffsets`',  # noqa: E501
    )
    starting_offsets: Position | None = _option(
        "startingOffsets",
        positions.position,
        None,
        "`earliest`, `latest`, so many before the end (`latest-1000`), so long ago (`-10m`; ms s m h d w), a "
        "time"
        " (`2026-01-02T03:04:05Z`; where no record is that young, the next one), or JSON by partition or "
        "topic:"
        ' `{"t":{"0":23,"1":-1},"u":"earliest"}` (-2 earliest, -1 latest). Only for the first start of a stream:'  # noqa: E501
        " later its checkpoint tells, and what is new begins at its earliest record",
        default_text="`latest` for streams, `earliest` for batches",
    )
    starting_offsets_by_timestamp_strategy: NoMatch = _option(
        "startingOffsetsByTimestampStrategy",
        _no_match,
        NoMatch.ERROR,
        "what a partition without a record at or after a starting time does: `error`, or begin at `latest`",
        default_text="`error`",
    )
    ending_timestamp: Position | None = _option(
        "endingTimestamp",
        positions.moment,
        None,
        "batches: end before the first record at or after this time; wins over the next two",
    )
    ending_offsets_by_timestamp: Position | None = _option(
        "endingOffsetsByTimestamp",
        positions.moments,
        None,
        "batches: the same by partition or by topic; wins over `endingOffsets`",
    )
    ending_offsets: Position | None = _option(
        "endingOffsets",
        positions.position,
        None,
        "batches: where to end, as `startingOffsets` says it",
        default_text="`latest`",
    )
    late_binding: bool = _option(
        "lateBinding",
        _boolean,
        False,
        "batches: look up `earliest` and `latest` when a task begins to read, not once when the frame is "
        "planned, so that acting on the"
        " same frame again sees what came meanwhile; each partition is one task, and tasks look at different "
        "moments",
    )

    # -- how much at a time
    max_offsets_per_trigger: int | None = _option(
        "maxOffsetsPerTrigger",
        _whole(1, INT64_MAX),
        None,
        "offsets to read in one micro-batch, shared among partitions by backlog",
    )
    min_offsets_per_trigger: int | None = _option(
        "minOffsetsPerTrigger",
        _whole(1, INT64_MAX),
        None,
        "offsets to wait for before a micro-batch, but no longer than `maxTriggerDelay`; the first one after "
        "a start runs at once, and with"
        " availableNow nothing is waited for",
    )
    max_trigger_delay_ms: int = _option(
        "maxTriggerDelay",
        positions.duration_ms,
        900_000,
        "how long `minOffsetsPerTrigger` may put off a micro-batch",
        default_text="`15m`",
    )
    max_bytes_per_trigger: int | None = _option(
        "maxBytesPerTrigger",
        _whole(1, INT64_MAX),
        None,
        "bytes to read in one micro-batch, about: estimated from the sizes of the logs on the brokers' "
        "disks, as they are compressed there",
    )
    min_partitions: int | None = _option(
        "minPartitions",
        _whole(1, INT32_MAX),
        None,
        "tasks to split a read into, about: large ranges are cut in proportion to their sizes",
    )
    max_records_per_partition: int | None = _option(
        "maxRecordsPerPartition", _whole(1, INT64_MAX), None, "offsets that one task reads at most"
    )
    max_bytes_per_partition: int | None = _option(
        "maxBytesPerPartition",
        _whole(1, INT64_MAX),
        None,
        "bytes that one task reads, about: estimated as for `maxBytesPerTrigger`",
    )

    early_rows: EarlyRowsWhen = _option(
        "earlyRows",
        _word(EarlyRowsWhen),
        EarlyRowsWhen.AUTO,
        "streams: `auto` reads micro-batches of at most 1 000 offsets and 1 MiB where they are planned, "
        "without a task's Python worker, on"
        " Spark 4.0 to 4.3; `off` reads all by tasks",
        default_text="`auto`",
    )

    # -- what else
    include_headers: bool = _option(
        "includeHeaders", _boolean, False, "whether the column `headers` is there"
    )
    data_loss: WhenLost = _option(
        "failOnDataLoss",
        _when_lost,
        WhenLost.FAIL,
        "behavior when records a read needs are gone from the log: `true` fails, `warn` (or `false`) goes on "
        "with the rest and"
        " warns, `skip` goes on; a stream records the number of offsets it lost in its offset, under `lost`",
        default_text="`true`",
    )
    group_id: str | None = _option(
        "groupId",
        _text,
        None,
        "a consumer group to commit a stream's offsets to as its micro-batches are done, so that tools that "
        "watch lag see it; a query never"
        " starts from it",
    )
    fetch_retries: int = _option(
        "fetchOffset.numRetries",
        _whole(0, INT32_MAX),
        3,
        "how often to ask again when a new leader seems to know less than was read already",
    )
    fetch_retry_ms: int = _option(
        "fetchOffset.retryIntervalMs",
        _whole(0, INT32_MAX),
        200,
        "milliseconds between these questions; 1000 in Spark's Kafka connector",
    )

    # -- keys and values as typed columns
    value_format: Format = _option(
        "valueFormat",
        _word(Format),
        Format.BINARY,
        "format of values: `binary`, `string`, `json`, `avro` or `protobuf` (the last two need "
        "`sparklog[formats]`); the column `value`"
        " then has the type of their schema",
        default_text="`binary`",
    )
    value_schema: str | None = _option(
        "valueSchema",
        _text,
        None,
        "the schema of values: for `json` DDL (`id BIGINT, tags ARRAY<STRING>`) or a Spark schema in JSON "
        "(without it, the schema of the"
        " read tells); for `avro` the writer's schema or its file; for `protobuf` a file that `protoc "
        "--include_imports"
        " --descriptor_set_out` wrote, or its content in base64",
    )
    value_message: str | None = _option(
        "valueMessage", _text, None, "the name of the Protobuf message that values are"
    )
    key_format: Format = _option(
        "keyFormat", _word(Format), Format.BINARY, "the same for keys", default_text="`binary`"
    )
    key_schema: str | None = _option("keySchema", _text, None, "the same for keys")
    key_message: str | None = _option("keyMessage", _text, None, "the same for keys")
    schema_id_prefix: SchemaIdPrefix = _option(
        "schemaIdPrefix",
        _word(SchemaIdPrefix),
        SchemaIdPrefix.AUTO,
        "whether a zero byte and a schema's id stand before the content, as schema registries' clients write "
        "it: `auto` looks at each,"
        " `always` or `never` (Avro's own bytes may look like a prefix)",
        default_text="`auto`",
    )
    mode: Mode | None = _option(
        "mode",
        _word(Mode),
        None,
        "handling of a record that cannot be decoded: `permissive` makes it null and puts its bytes and the "
        "reason into the column"
        " `_corrupt`, `failfast` fails the query",
        default_text="`permissive`",
    )

    # -- writing
    topic: str | None = _option("topic", _text, None, "the topic to write to; stronger than a column `topic`")
    delivery: Guarantee | None = _option(
        "delivery",
        _word(Guarantee),
        None,
        "`exactly_once`: read_committed readers get each batch in full and once; `at_least_once`: records "
        "that are retried may be"
        " there twice",
        default_text="`exactly_once` for streams, and for batches with `txnAppId`; else `at_least_once`",
    )
    sink_id: str | None = _option(
        "sinkId",
        _text,
        None,
        "the name under which a sink's commits are kept",
        default_text="the checkpoint's path, or the query's id",
    )
    txn_app_id: str | None = _option(
        "txnAppId",
        _text,
        None,
        "batches, as in `foreachBatch`: with `txnVersion`, what is written again with no higher version is "
        "dropped",
    )
    txn_version: int | None = _option(
        "txnVersion",
        _whole(0, INT64_MAX),
        None,
        "batches: the number of this write among those with its `txnAppId`",
    )
    checkpoint: str = ""
    """Where Spark keeps the query's checkpoint, if that was said as an option of the sink."""
    client: ClientSettings = field(default_factory=ClientSettings)
    """The brokers and the remaining `kafka.*` settings, as the client understands them."""

    @classmethod
    def check(cls, given: Mapping[str, str]) -> None:
        """Raises what `parse` raises, except that the brokers may be missing: a table remembers them."""
        if any(_DEFINED.get(key.lower(), ("",))[0] == "bootstrap_servers" for key in given):
            cls.parse(given)
        else:
            cls.parse({**given, "kafka.bootstrap.servers": "unknown:9092"})

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        """The options of one read or write; raises SettingsError that names the key, the value and the
        remedy.
        """
        values: dict[str, object] = {}
        named_by: dict[str, str] = {}
        client: dict[str, str] = {}
        for key, value in given.items():
            lower = key.lower()
            foreign_keys.refuse_forbidden(key)
            if lower in _DEFINED:
                attribute, definition = _DEFINED[lower]
                if attribute in values:
                    raise SettingsError(
                        f"options {named_by[attribute]!r} and {key!r} mean the same: give one"
                    )
                values[attribute] = _parsed(definition, value)
                named_by[attribute] = key
            elif lower == _CHECKPOINT:
                values["checkpoint"] = value
            elif foreign_keys.is_let_through(key):
                continue
            elif lower.startswith(_CLIENT_PREFIX):
                name = lower.removeprefix(_CLIENT_PREFIX)
                if name in MEMBERS_ONLY:
                    warn_without_effect(name)  # a query keeps its offsets itself and joins no group
                else:
                    client[name] = value
            else:
                foreign_keys.refuse_or_warn(
                    key, {name: definition.name for name, (_, definition) in _DEFINED.items()}
                )
        if "bootstrap_servers" not in values:
            raise SettingsError(_NO_BROKERS)
        client["bootstrap.servers"] = str(values["bootstrap_servers"])
        try:
            settings = ClientSettings.from_kafka(client)
        except SettingsError as error:
            raise SettingsError(f"among the kafka.* options: {error}") from None
        options = cls(**values, client=settings)  # type: ignore[arg-type]
        options._check_together()
        return options

    @property
    def start(self) -> Position | None:
        """Where a read starts: of the three options that say so, the one that wins; None where none was
        given.
        """
        return self.starting_timestamp or self.starting_offsets_by_timestamp or self.starting_offsets

    @property
    def start_option(self) -> str:
        """The name of the option that `start` is from."""
        named = {
            "startingTimestamp": self.starting_timestamp,
            "startingOffsetsByTimestamp": self.starting_offsets_by_timestamp,
        }
        return next((name for name, value in named.items() if value is not None), "startingOffsets")

    @property
    def end(self) -> Position | None:
        """Where a batch ends: of the three options that say so, the one that wins; None where none was
        given.
        """
        return self.ending_timestamp or self.ending_offsets_by_timestamp or self.ending_offsets

    @property
    def end_option(self) -> str:
        """The name of the option that `end` is from."""
        named = {
            "endingTimestamp": self.ending_timestamp,
            "endingOffsetsByTimestamp": self.ending_offsets_by_timestamp,
        }
        return next((name for name, value in named.items() if value is not None), "endingOffsets")

    @property
    def start_must_match(self) -> bool:
        """Whether a starting time after the last record of a partition is an error."""
        return self.starting_offsets_by_timestamp_strategy is NoMatch.ERROR

    def for_load(self) -> "Options":
        """Checks the options that any read needs, batch or stream, and returns itself.

        Options that name a topic to write to may be those of a view that is never read.
        """
        if self.topic is None:
            self._require_one_subscription()
        return self

    def for_batch_read(self) -> "Options":
        """Checks options required or forbidden in a batch read; returns itself."""
        self._require_one_subscription()
        start = self.start
        if start == LATEST or (isinstance(start, ByOffset) and _names(start, positions.LATEST_OFFSET)):
            raise SettingsError(
                "option 'startingOffsets' of a batch read cannot be latest (-1): nothing would be read"
            )
        for name, value in self._for_streams().items():
            if value is not None:
                warn_without_effect(f"{name} in a batch read, which is bounded by endingOffsets,")
        return self

    def for_stream_read(self) -> "Options":
        """Checks options required or forbidden in a stream; returns itself."""
        self._require_one_subscription()
        if self.end is not None:
            raise SettingsError(
                f"option {self.end_option!r} is for batch reads; a stream that ends has "
                f".trigger(availableNow=True)"
            )
        if self.late_binding:
            raise SettingsError(
                "option 'lateBinding' is for batch reads; a stream sees what is new by itself"
            )
        return self

    def _check_together(self) -> None:
        """Checks rules between options that hold in every use."""
        named = self._subscriptions()
        if len(named) > 1:
            raise SettingsError(f"options {' and '.join(map(repr, named))} exclude each other: give one")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise SettingsError(
                f"option 'minOffsetsPerTrigger' ({least}) is higher than 'maxOffsetsPerTrigger' ({most})"
            )
        start, end = self.start, self.end
        if end == EARLIEST or (isinstance(end, ByOffset) and _names(end, positions.EARLIEST_OFFSET)):
            raise SettingsError("option 'endingOffsets' cannot be earliest (-2): nothing would be read")
        if self.late_binding and not (
            isinstance(end, Landmark | None) and (end or LATEST).place is Place.LATEST
        ):
            raise SettingsError(
                "option 'lateBinding' needs a read that ends at latest: leave out the ending options"
            )
        backwards = positions.backwards(start, end)
        if backwards:
            raise SettingsError(
                f"option {self.start_option!r} lies beyond {self.end_option!r}: {'; '.join(backwards)}"
            )

    def _for_streams(self) -> dict[str, int | str | None]:
        return {
            "maxOffsetsPerTrigger": self.max_offsets_per_trigger,
            "minOffsetsPerTrigger": self.min_offsets_per_trigger,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
            "groupId": self.group_id,
        }

    def _subscriptions(self) -> list[str]:
        given = {
            "subscribe": self.subscribe,
            "subscribePattern": self.subscribe_pattern,
            "assign": self.assign,
        }
        return [name for name, value in given.items() if value is not None]

    def _require_one_subscription(self) -> None:
        if not self._subscriptions():
            raise SettingsError(
                "nothing to read: give one of the options 'subscribe', 'subscribePattern' and 'assign'"
            )


def _parsed(definition: Definition, value: str) -> object:
    try:
        return definition.parse(value)
    except ValueError as error:
        raise SettingsError(f"option {definition.name!r} has the value {value!r}: {error}") from error


def _names(where: ByOffset, landmark: int) -> bool:
    return landmark in where.partitions.values() or landmark in where.topics.values()


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
