"""What a read without Spark reads: its arguments become ranges of offsets, and types of keys and values."""

import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import islice
from typing import Final, Literal, TypeVar

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
from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.settings import ClientSettings
from sparklog.errors import SettingsError
from sparklog.model import Offset

THREADS_MAX: Final = 8
SAMPLE_RECORDS: Final = 10_000
"""Records from which the type of JSON values is inferred, the first and last ones of each partition."""
E = TypeVar("E", bound=Enum)
FormatName = Literal["binary", "string", "json", "avro", "protobuf"]
PrefixName = Literal["auto", "always", "never"]
ModeName = Literal["permissive", "failfast"]
WhenLost = Literal["fail", "warn", "skip"]


class SchemaUnknown(SettingsError):
    """The type of JSON cannot be inferred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of `sparklog.read`, without those of its client and its columns."""

    topics: tuple[str, ...]
    start: str | int | datetime = "earliest"
    end: str | int | datetime = "latest"
    partitions: Sequence[int] | None = None
    value_format: FormatName = "binary"
    value_schema: str | None = None
    value_message: str | None = None
    key_format: FormatName = "binary"
    key_schema: str | None = None
    key_message: str | None = None
    schema_id_prefix: PrefixName = "auto"
    mode: ModeName | None = None
    on_data_loss: WhenLost = "fail"

    def parts(self) -> dict[str, PartFormat]:
        """The formats of keys and values, by the name of their column; raises SettingsError."""
        prefix = _word(SchemaIdPrefix, "schema_id_prefix", self.schema_id_prefix)
        return {
            "key": _part("key", self.key_format, self.key_schema, self.key_message, prefix),
            "value": _part("value", self.value_format, self.value_schema, self.value_message, prefix),
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What is read, whichever columns are chosen."""

    settings: ClientSettings
    ranges: tuple[OffsetRange, ...]
    parts: Mapping[str, PartFormat]
    known: pa.Schema
    is_failfast: bool
    on_data_loss: WhenLost

    def between(self, ranges: Sequence[OffsetRange]) -> "Plan":
        """The same read of other ranges."""
        return replace(self, ranges=tuple(ranges))

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


def plan_of(settings: ClientSettings, request: Request) -> Plan:
    """Look up the ends of the ranges, and infer the schemas that are missing. Raises UnknownTopic,
    SettingsError and DataLoss.
    """
    parts = request.parts()
    is_failfast = request.mode is not None and _word(Mode, "mode", request.mode) is Mode.FAILFAST
    if request.on_data_loss not in ("fail", "warn", "skip"):
        raise SettingsError(f"on_data_loss={request.on_data_loss!r} must be fail, warn or skip")
    now_ms = time.time_ns() // 1_000_000
    ranges = planned_ranges(
        settings,
        request.topics,
        request.partitions,
        position_of("start", request.start, now_ms),
        position_of("end", request.end, now_ms),
        fails_on_loss=request.on_data_loss == "fail",
    )
    unknown = [name for name in PARTS if parts[name].format is Format.JSON and parts[name].schema is None]
    if unknown:
        is_failfast = is_failfast or request.mode is None
        parts |= _inferred(settings, ranges, parts, unknown)
    known = known_columns(parts, has_corrupt=not is_failfast)
    return Plan(settings, tuple(ranges), parts, known, is_failfast, request.on_data_loss)


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
            raise SchemaUnknown(f"{option} cannot be inferred, {error}: set it") from error
        if kind is None:
            raise SchemaUnknown(
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
