"""`sparklog.read`: a bounded read of topics as Arrow, several partitions at once, without Spark."""

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar, Unpack
from weakref import WeakSet

import pyarrow as pa

from sparklog.arrow.columns import ArrowColumns
from sparklog.arrow.decoding import Decoding
from sparklog.arrow.formats.choice import PARTS, check_part
from sparklog.arrow.formats.files import schema_text
from sparklog.arrow.formats.names import Format, Mode, PartFormat, SchemaIdPrefix
from sparklog.arrow.formats.types import ddl_of
from sparklog.arrow.inference import inferred_type
from sparklog.arrow.planning import LOSS_REMEDY, planned_ranges, position_of
from sparklog.arrow.projection import Projection, known_columns
from sparklog.arrow.ranges import DataLoss, OffsetRange, loss_text
from sparklog.arrow.reading import gathered, range_batches
from sparklog.arrow.workers import ParallelRead
from sparklog.client.ranges import RangeReader
from sparklog.client.settings import ClientSettings, CommonOptions, IsolationLevel
from sparklog.errors import SettingsError
from sparklog.model import Offset

if TYPE_CHECKING:
    import pandas
    import polars

THREADS_MAX: Final = 8
SAMPLE_RECORDS: Final = 10_000
"""Records from which the type of JSON values is inferred, the first and last ones of each partition."""
FormatName = Literal["binary", "string", "json", "avro", "protobuf"]
PrefixName = Literal["auto", "always", "never"]
E = TypeVar("E", bound=Enum)
ModeName = Literal["permissive", "failfast"]
WhenLost = Literal["fail", "warn", "skip"]


class ReadOptions(CommonOptions, total=False):
    """Settings of the client of a read."""

    isolation_level: IsolationLevel
    check_crcs: bool
    fetch_max_wait_ms: int
    client_rack: str


def read(
    topics: str | Sequence[str],
    *,
    start: str | int | datetime = "earliest",
    end: str | int | datetime = "latest",
    partitions: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    value_format: FormatName = "binary",
    value_schema: str | None = None,
    value_message: str | None = None,
    key_format: FormatName = "binary",
    key_schema: str | None = None,
    key_message: str | None = None,
    schema_id_prefix: PrefixName = "auto",
    mode: ModeName | None = None,
    on_data_loss: WhenLost = "fail",
    **options: Unpack[ReadOptions],
) -> "TopicRead":
    """Plan a read of topics from `start` to `end`, in the columns and formats of the Spark source.

    A position is `earliest`, `latest`, an offset of each partition, `-1000` (the last thousand records of
    each), `-10m` (ten minutes ago), an ISO 8601 time, or a datetime with a time zone. The ends are looked up
    now: records written later are not read. A time means the first record at or after it.

    `columns` chooses among the columns of the log (key, value, topic, partition, offset, timestamp,
    timestampType, headers, _corrupt) and the fields of the decoded value; only these are decoded. Without
    `value_schema`, the fields of JSON are inferred from the first and last records of each partition. A
    record that cannot be decoded is null and told in `_corrupt` with mode `permissive`, the default with a
    schema, and raises UndecodableRecord with `failfast`, the default without.

    The read is read_committed unless `isolation_level` says otherwise. Raises UnknownTopic, SettingsError,
    and DataLoss if records of the range are no longer in the log, also while reading.
    """
    for name in options:
        if name.replace(".", "_") not in ReadOptions.__annotations__:
            raise SettingsError(f"{name} is not a setting of a read")
    given: dict[str, object] = {"isolation_level": "read_committed", **options}
    settings = ClientSettings.for_role("consumer", given)
    prefix = _word(SchemaIdPrefix, "schema_id_prefix", schema_id_prefix)
    parts = {
        "key": _part("key", key_format, key_schema, key_message, prefix),
        "value": _part("value", value_format, value_schema, value_message, prefix),
    }
    is_failfast = mode is not None and _word(Mode, "mode", mode) is Mode.FAILFAST
    if on_data_loss not in ("fail", "warn", "skip"):
        raise SettingsError(f"on_data_loss={on_data_loss!r} must be fail, warn or skip")
    now_ms = time.time_ns() // 1_000_000
    ranges = planned_ranges(
        settings,
        [topics] if isinstance(topics, str) else topics,
        partitions,
        position_of("start", start, now_ms),
        position_of("end", end, now_ms),
        fails_on_loss=on_data_loss == "fail",
    )
    unknown = [name for name in PARTS if parts[name].format is Format.JSON and parts[name].schema is None]
    if unknown:
        is_failfast = is_failfast or mode is None
        parts |= _inferred(settings, ranges, parts, unknown)
    known = known_columns(parts, has_corrupt=not is_failfast)
    plan = Plan(settings, tuple(ranges), parts, known, is_failfast, on_data_loss)
    return TopicRead(plan, Projection(known, columns))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is read, whichever columns are chosen."""

    settings: ClientSettings
    ranges: tuple[OffsetRange, ...]
    parts: Mapping[str, PartFormat]
    known: pa.Schema
    is_failfast: bool
    on_data_loss: WhenLost

    def begin(self, projection: Projection) -> ParallelRead:
        """Begin to read the ranges, to be closed."""

        def batches_of(reader: RangeReader, piece: OffsetRange) -> Iterator[pa.RecordBatch]:
            decoding = Decoding.of(self.parts, projection.decoded, is_failfast=self.is_failfast)
            columns = ArrowColumns(
                projection.decoded, piece.partition, decoding=decoding, check_crcs=self.settings.check_crcs
            )
            rows = gathered(range_batches(reader, columns, piece, self._lost))
            return map(projection.projected, rows)

        threads_max = min(THREADS_MAX, max(2, os.cpu_count() or 1))
        return ParallelRead(self.settings, self.ranges, batches_of, threads_max=threads_max)

    def _lost(self, losses: Sequence[str]) -> None:
        if self.on_data_loss == "fail":
            raise DataLoss(loss_text(losses, LOSS_REMEDY))
        if self.on_data_loss == "warn":
            warnings.warn(f"lost records are skipped: {'; '.join(losses)}", stacklevel=2)


class TopicRead:
    """A planned read; each method reads the same records from the brokers. It has connections only while it
    reads, and `close` ends that.
    """

    def __init__(self, plan: Plan, projection: Projection) -> None:
        self._plan = plan
        self._projection = projection
        self._open: WeakSet[ParallelRead] = WeakSet()

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._projection.schema

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges of offsets that are read, by topic and partition; offsets may be missing in them."""
        return self._plan.ranges

    def batches(self) -> pa.RecordBatchReader:
        """The records as they arrive, in order within each partition, in bounded memory. Connections close
        at the end, when the reader is deleted, or by `close`.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._rows())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The stream that Polars, DuckDB and pyarrow take."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All records, by topic, partition and offset."""
        with self._begin() as read:
            found = sorted(read, key=lambda batch: batch.place)  # stable: offsets stay in order
        return pa.Table.from_batches([batch.rows for batch in found], schema=self.schema)

    def to_pandas(self) -> "pandas.DataFrame":
        """All records as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "polars.DataFrame":
        """All records as a Polars DataFrame."""
        import polars

        made = polars.from_arrow(self.to_arrow())
        assert isinstance(made, polars.DataFrame), "a table"
        return made

    def close(self) -> None:
        """End the reads that are under way: their readers raise ClientClosed."""
        for read in list(self._open):
            read.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> ParallelRead:
        read = self._plan.begin(self._projection)
        self._open.add(read)
        return read

    def _rows(self) -> Iterator[pa.RecordBatch]:
        with self._begin() as read:
            for batch in read:
                yield batch.rows


def _part(
    name: str, format_: str, schema: str | None, message: str | None, prefix: SchemaIdPrefix
) -> PartFormat:
    part = PartFormat(name, _word(Format, f"{name}_format", format_), None, message, prefix)
    part = replace(part, schema=schema_text(part.option("schema"), part.format, schema))
    check_part(part)
    return part


def _word(words: type[E], name: str, value: str) -> E:
    try:
        return words(value)
    except ValueError:
        known = ", ".join(str(word.value) for word in words)
        raise SettingsError(f"{name}={value!r} must be one of {known}") from None


def _inferred(
    settings: ClientSettings,
    ranges: Sequence[OffsetRange],
    parts: Mapping[str, PartFormat],
    names: Sequence[str],
) -> dict[str, PartFormat]:
    """The parts `names` with schemas inferred from a sample of each range."""
    binary = {name: PartFormat(name) for name in PARTS}
    known = known_columns(binary, has_corrupt=False)
    sample: dict[str, list[bytes | None]] = {name: [] for name in names}
    for pieces, batches_max in ((_ends(ranges), None), (ranges, 1)):
        if any(any(values) for values in sample.values()):
            break  # only gaps of a compacted log make the second look necessary
        plan = Plan(settings, tuple(pieces), binary, known, False, "skip")
        with plan.begin(Projection(known, names)) as batches:
            for batch in islice(batches, batches_max):
                for name in names:
                    sample[name] += batch.rows.column(name)[:SAMPLE_RECORDS].to_pylist()
    made: dict[str, PartFormat] = {}
    for name in names:
        option = parts[name].option("schema")
        try:
            kind = inferred_type(sample[name])
        except ValueError as error:
            raise SettingsError(f"{option} cannot be inferred, {error}: set it") from error
        if kind is None:
            raise SettingsError(
                f"{option} cannot be inferred, because no record in the range has JSON: set it"
            )
        made[name] = replace(parts[name], schema=ddl_of(kind))
    return made


def _ends(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The first and the last offsets of each range."""
    few = max(10, SAMPLE_RECORDS // (2 * max(1, len(ranges))))
    pieces: list[OffsetRange] = []
    for r in ranges:
        middle = Offset(min(r.limit, r.start + few))
        pieces += [r.between(r.start, middle), r.between(Offset(max(middle, r.limit - few)), r.limit)]
    return [piece for piece in pieces if len(piece)]
