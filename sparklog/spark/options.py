"""The options of `format("sparklog")`: each field of `Options` defines one, with its name, parser and
description.

Spark passes names in lower case and values unchanged, so names are case-insensitive. `foreign_keys` handles
all other keys.
"""

# ruff: noqa: RUF009  (every default below is made by dataclasses.field, called through option)

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from sparklog.arrow.formats.names import Format, Mode, SchemaIdPrefix
from sparklog.client.settings import ClientSettings
from sparklog.errors import SettingsError
from sparklog.model import TopicPartition
from sparklog.spark import foreign_keys, positions
from sparklog.spark.client_options import CLIENT_PREFIX, TOKEN_MECHANISM, TokenMechanism, client_settings
from sparklog.spark.option_values import (
    BOUNDED,
    DECODED,
    EVERYWHERE,
    READS,
    STREAM_READS,
    VERSIONED,
    WRITES,
    Conflict,
    Definition,
    EarlyRowsWhen,
    Guarantee,
    NoMatch,
    WhenLost,
    boolean,
    no_match,
    option,
    pattern,
    text,
    topics,
    when_lost,
    whole,
    word,
)
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

_CHECKPOINT = "checkpointlocation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one read or write. `parse` checks each option and the rules that hold in every use;
    `uses.checked` those of one use.
    """

    bootstrap_servers: str = option(
        "kafka.bootstrap.servers",
        EVERYWHERE,
        text,
        "",
        "the bootstrap servers, as host:port, comma separated",
        aliases=("bootstrap.servers", "bootstrapServers"),
        default_text="must be given",
    )

    # -- what to read
    subscribe: tuple[str, ...] | None = option(
        "subscribe",
        READS,
        topics,
        None,
        "the topics to read, comma separated. Exactly one of `subscribe`, `subscribePattern` and `assign` "
        "is required",
    )
    subscribe_pattern: str | None = option(
        "subscribePattern", READS, pattern, None, "a regular expression that the whole topic name must match"
    )
    assign: tuple[TopicPartition, ...] | None = option(
        "assign", READS, positions.assignment, None, 'the partitions to read, as JSON: `{"topic":[0,1]}`'
    )

    # -- where to start and end
    starting_timestamp: Position | None = option(
        "startingTimestamp",
        READS,
        positions.moment,
        None,
        "start at the first record at or after this time in milliseconds; takes precedence over the next "
        "two options",
    )
    starting_offsets_by_timestamp: Position | None = option(
        "startingOffsetsByTimestamp",
        READS,
        positions.moments,
        None,
        "as `startingTimestamp`, by partition or by topic, as JSON: "
        '`{"t":{"0":1767323045000},"u":1767323045000}`; takes precedence over `startingOffsets`',
    )
    starting_offsets: Position | None = option(
        "startingOffsets",
        READS,
        positions.position,
        None,
        "where to start: `earliest`, `latest`, a number of offsets before the end (`latest-1000`), a "
        "duration ago (`-10m`; units ms s m h d w), a time (`2026-01-02T03:04:05Z`, the first record at "
        'or after it), or JSON by partition or topic: `{"t":{"0":23,"1":-1},"u":"earliest"}` (-2 '
        "earliest, -1 latest). A stream uses it only at its first start. Later it continues from its "
        "checkpoint, and new partitions start at their earliest record",
        default_text="`latest` for streams, `earliest` for batches",
    )
    starting_offsets_by_timestamp_strategy: NoMatch = option(
        "startingOffsetsByTimestampStrategy",
        READS,
        no_match,
        NoMatch.ERROR,
        "the start of a partition that has no record at or after a starting time: `error` fails the read, "
        "`latest` starts at the end",
        default_text="`error`",
        needs=("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
    )
    ending_timestamp: Position | None = option(
        "endingTimestamp",
        BOUNDED,
        positions.moment,
        None,
        "end before the first record at or after this time in milliseconds; takes precedence "
        "over the next two options",
    )
    ending_offsets_by_timestamp: Position | None = option(
        "endingOffsetsByTimestamp",
        BOUNDED,
        positions.moments,
        None,
        "as `endingTimestamp`, by partition or by topic; takes precedence over `endingOffsets`",
    )
    ending_offsets: Position | None = option(
        "endingOffsets",
        BOUNDED,
        positions.position,
        None,
        "where to end, in the forms of `startingOffsets`",
        default_text="`latest`",
    )
    late_binding: bool = option(
        "lateBinding",
        BOUNDED,
        boolean,
        False,
        "resolve `earliest` and `latest` when a task starts, not once when the frame is planned. "
        "A second action on the same frame then reads new records; each partition is one task, and tasks "
        "resolve them at different times",
    )

    # -- how much at a time
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        STREAM_READS,
        whole(1, INT64_MAX),
        None,
        "the maximum number of offsets in one micro-batch, divided among partitions by backlog",
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        STREAM_READS,
        whole(1, INT64_MAX),
        None,
        "the minimum number of offsets in one micro-batch, waited for up to `maxTriggerDelay`. It does "
        "not apply to the first micro-batch after a start, nor with availableNow",
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay",
        STREAM_READS,
        positions.duration_ms,
        900_000,
        "the maximum time that `minOffsetsPerTrigger` delays a micro-batch",
        default_text="`15m`",
        needs=("minOffsetsPerTrigger",),
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        STREAM_READS,
        whole(1, INT64_MAX),
        None,
        "the approximate maximum bytes in one micro-batch, estimated from the size of the logs on the "
        "brokers' disks, as they are compressed there",
    )
    min_partitions: int | None = option(
        "minPartitions",
        READS,
        whole(1, INT32_MAX),
        None,
        "the approximate minimum number of tasks of a read. Large ranges are split in proportion to their "
        "sizes",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        READS,
        whole(1, INT64_MAX),
        None,
        "the maximum number of offsets that one task reads",
    )
    max_bytes_per_partition: int | None = option(
        "maxBytesPerPartition",
        READS,
        whole(1, INT64_MAX),
        None,
        "the approximate maximum bytes that one task reads, estimated as for `maxBytesPerTrigger`",
    )

    early_rows: EarlyRowsWhen = option(
        "earlyRows",
        STREAM_READS,
        word(EarlyRowsWhen),
        EarlyRowsWhen.AUTO,
        "`auto` reads micro-batches of at most 1 000 offsets and 1 MiB in the process that plans "
        "them, without a task's Python worker, on Spark 4.0 to 4.3; with `off`, tasks read all "
        "micro-batches",
        default_text="`auto`",
    )

    # -- what else
    include_headers: bool = option(
        "includeHeaders", READS, boolean, False, "whether the frame has the column `headers`"
    )
    data_loss: WhenLost = option(
        "failOnDataLoss",
        READS,
        when_lost,
        WhenLost.FAIL,
        "the behavior if records that a read needs have been removed from the log: `true` fails, `warn` "
        "(or `false`) warns and continues, `skip` continues. A stream records the number of lost offsets "
        "in its own offset, under `lost`",
        default_text="`true`",
    )
    group_id: str | None = option(
        "groupId",
        STREAM_READS,
        text,
        None,
        "the consumer group to which a stream commits the offsets of finished micro-batches, so that "
        "monitoring tools show its lag. A query never starts from these offsets",
    )
    fetch_retries: int = option(
        "fetchOffset.numRetries",
        STREAM_READS,
        whole(0, INT32_MAX),
        3,
        "the number of retries when a new leader reports an end offset below one that was already read, or a "
        "broker reports a topic as deleted",
    )
    fetch_retry_ms: int = option(
        "fetchOffset.retryIntervalMs",
        STREAM_READS,
        whole(0, INT32_MAX),
        200,
        "the time between these retries in milliseconds; 1000 in Spark's Kafka connector",
    )
    token_mechanism: TokenMechanism | None = option(
        TOKEN_MECHANISM,
        EVERYWHERE,
        word(TokenMechanism),
        None,
        "if set, the driver fetches a delegation token, and executors get only that: they authenticate by "
        "this mechanism, `SCRAM-SHA-512` or `SCRAM-SHA-256`",
    )

    # -- keys and values as typed columns
    value_format: Format = option(
        "valueFormat",
        DECODED,
        word(Format),
        Format.BINARY,
        "the format of values: `binary`, `string`, `json`, `avro` or `protobuf` (the last two require "
        "`sparklog[formats]`). The column `value` then has the type of the schema",
        default_text="`binary`",
    )
    value_schema: str | None = option(
        "valueSchema",
        DECODED,
        text,
        None,
        "the schema of values. For `json`, DDL (`id BIGINT, tags ARRAY<STRING>`) or a Spark schema in "
        "JSON; if not set, the schema of the read. For `avro`, the writer's schema or its file. For "
        "`protobuf`, a file written by `protoc --include_imports --descriptor_set_out`, or its content in "
        "base64",
    )
    value_message: str | None = option(
        "valueMessage", DECODED, text, None, "the name of the Protobuf message of values"
    )
    key_format: Format = option(
        "keyFormat",
        DECODED,
        word(Format),
        Format.BINARY,
        "as `valueFormat`, for keys",
        default_text="`binary`",
    )
    key_schema: str | None = option("keySchema", DECODED, text, None, "as `valueSchema`, for keys")
    key_message: str | None = option("keyMessage", DECODED, text, None, "as `valueMessage`, for keys")
    schema_id_prefix: SchemaIdPrefix = option(
        "schemaIdPrefix",
        DECODED,
        word(SchemaIdPrefix),
        SchemaIdPrefix.AUTO,
        "whether a zero byte and a schema id precede the content, as clients of schema registries write "
        "it: `auto` decides for each record, `always`, or `never` (plain Avro can look like a prefix)",
        default_text="`auto`",
    )
    mode: Mode | None = option(
        "mode",
        DECODED,
        word(Mode),
        None,
        "the behavior for a record that cannot be decoded: `permissive` makes it null and puts its bytes "
        "and the reason into the column `_corrupt`, `failfast` fails the query",
        default_text="`permissive`",
    )

    # -- writing
    topic: str | None = option(
        "topic", WRITES, text, None, "the topic to write to; takes precedence over a column `topic`"
    )
    delivery: Guarantee | None = option(
        "delivery",
        WRITES,
        word(Guarantee),
        None,
        "`exactly_once`: read_committed consumers read each batch in full and once. `at_least_once`: "
        "retried records may be duplicated",
        default_text="`exactly_once` for streams, and for batches with `txnAppId`; else `at_least_once`",
    )
    sink_id: str | None = option(
        "sinkId",
        WRITES,
        text,
        None,
        "the name under which the commits of a sink are stored; set it if a new checkpoint is to continue "
        "the sink, or if a copy of a checkpoint is to be a sink of its own",
        default_text="the query's id, which is in the checkpoint",
    )
    txn_app_id: str | None = option(
        "txnAppId",
        VERSIONED,
        text,
        None,
        "together with `txnVersion`: a write whose version is that of the last write is a repeat and is "
        "skipped; for a lower one, see `txnConflict`",
    )
    txn_version: int | None = option(
        "txnVersion",
        VERSIONED,
        whole(0, INT64_MAX),
        None,
        "the version of this write among those with its `txnAppId`",
    )
    txn_conflict: Conflict = option(
        "txnConflict",
        VERSIONED,
        word(Conflict),
        Conflict.SKIP,
        "the behavior if `txnVersion` is lower than the last version of its `txnAppId`, as after a new "
        "checkpoint: `skip` drops the write, as Delta does, and warns once; `fail` fails it",
        default_text="`skip`",
        needs=("txnAppId",),
    )
    checkpoint: str = ""
    """The path of the query's checkpoint, if it is an option of the sink."""
    client: ClientSettings = field(default_factory=ClientSettings)
    """The settings of the client, from the `kafka.*` options."""

    @classmethod
    def check(cls, given: Mapping[str, str]) -> None:
        """Raises what `parse` raises, except for missing brokers, which a table may have stored."""
        if any(_DEFINED.get(key.lower(), ("",))[0] == "bootstrap_servers" for key in given):
            cls.parse(given)
        else:
            cls.parse({**given, "kafka.bootstrap.servers": "unknown:9092"})

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        """The options of one read or write; raises SettingsError with the key, the value and the remedy."""
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
                        f"options {named_by[attribute]!r} and {key!r} are the same option: set one"
                    )
                values[attribute] = definition.parsed(value)
                named_by[attribute] = key
            elif lower == _CHECKPOINT:
                values["checkpoint"] = value
            elif foreign_keys.is_let_through(key):
                continue
            elif lower.startswith(CLIENT_PREFIX):
                client[lower] = value
            else:
                foreign_keys.refuse_or_warn(
                    key, {name: definition.name for name, (_, definition) in _DEFINED.items()}
                )
        is_by_token = "token_mechanism" in values
        settings = client_settings(client, values.get("bootstrap_servers"), is_by_token=is_by_token)
        options = cls(**values, client=settings)  # type: ignore[arg-type]
        options._check_combinations()
        return options

    @property
    def start(self) -> Position | None:
        """The start of a read, from the option that takes precedence; None if no option sets it."""
        return self.starting_timestamp or self.starting_offsets_by_timestamp or self.starting_offsets

    @property
    def start_option(self) -> str:
        """The name of the option that `start` is from."""
        if self.starting_timestamp:
            return "startingTimestamp"
        return "startingOffsetsByTimestamp" if self.starting_offsets_by_timestamp else "startingOffsets"

    @property
    def end(self) -> Position | None:
        """The end of a batch, from the option that takes precedence; None if no option sets it."""
        return self.ending_timestamp or self.ending_offsets_by_timestamp or self.ending_offsets

    @property
    def end_option(self) -> str:
        """The name of the option that `end` is from."""
        if self.ending_timestamp:
            return "endingTimestamp"
        return "endingOffsetsByTimestamp" if self.ending_offsets_by_timestamp else "endingOffsets"

    @property
    def start_must_match(self) -> bool:
        """Whether a starting time after the last record of a partition is an error."""
        return self.starting_offsets_by_timestamp_strategy is NoMatch.ERROR

    def _check_combinations(self) -> None:
        """Checks rules between options that hold in every use."""
        named = self.subscriptions
        if len(named) > 1:
            raise SettingsError(f"options {' and '.join(map(repr, named))} exclude each other: set one")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise SettingsError(
                f"option 'minOffsetsPerTrigger' ({least}) is higher than 'maxOffsetsPerTrigger' ({most})"
            )
        start, end = self.start, self.end
        if end == EARLIEST or (isinstance(end, ByOffset) and end.names(positions.EARLIEST_OFFSET)):
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

    @property
    def subscriptions(self) -> list[str]:
        """The names of the options that select topics to read."""
        given = {
            "subscribe": self.subscribe,
            "subscribePattern": self.subscribe_pattern,
            "assign": self.assign,
        }
        return [name for name, value in given.items() if value is not None]


def definitions() -> tuple[Definition, ...]:
    """All options, in the order of the documentation."""
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
