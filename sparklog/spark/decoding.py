"""Decoding of keys and values into the types of the read's schema, and reporting of those that fail."""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.types import StructType

from sparklog.model import TopicPartition
from sparklog.spark.formats.choice import PARTS, decoder_of, parts_of, spark_type
from sparklog.spark.formats.decoded import Decoder, UndecodableRecord
from sparklog.spark.formats.names import Format, Mode
from sparklog.spark.formats.types import arrow_type
from sparklog.spark.options import Options
from sparklog.spark.schema import CORRUPT, CORRUPT_TYPE


class Decoding:
    """The decoders of one read, created once per task on the executor."""

    def __init__(self, decoders: Mapping[str, Decoder], *, has_corrupt: bool, is_failfast: bool) -> None:
        self._decoders = decoders
        self._has_corrupt = has_corrupt
        self._is_failfast = is_failfast
        self.needs: tuple[str, ...] = (*decoders, "offset") if is_failfast and decoders else tuple(decoders)
        """The columns of the log that decoding needs, in addition to those of the schema."""

    @classmethod
    def of(cls, options: Options, schema: StructType) -> "Decoding":
        """The decoders of the parts in the schema, or of all parts if the schema has `_corrupt`."""
        parts = parts_of(options)
        has_corrupt = CORRUPT in schema.names
        decoders: dict[str, Decoder] = {}
        for name in PARTS:
            if parts[name].format is Format.BINARY or not (name in schema.names or has_corrupt):
                continue
            kind = schema[name].dataType if name in schema.names else spark_type(parts[name])
            decoder = None if kind is None else decoder_of(parts[name], kind)
            if decoder is not None:
                decoders[name] = decoder
        return cls(decoders, has_corrupt=has_corrupt, is_failfast=options.mode is Mode.FAILFAST)

    def decode(
        self, given: Mapping[str, pa.Array], partition: TopicPartition, offsets: pa.Array | None
    ) -> dict[str, pa.Array]:
        """The decoded columns and, if requested, `_corrupt`; in mode failfast, UndecodableRecord names the
        first bad record.
        """
        made: dict[str, pa.Array] = {}
        refused: dict[int, dict[str, object]] = {}
        for name, decoder in self._decoders.items():
            made[name], reasons = decoder.decode(given[name])
            if reasons and self._is_failfast:
                row = min(reasons)
                assert offsets is not None, "offsets are among what is needed"
                raise UndecodableRecord(partition, offsets[row].as_py(), name, reasons[row])
            for row, reason in reasons.items() if self._has_corrupt else ():
                told = refused.setdefault(row, {})
                told[name] = given[name][row].as_py()
                told["reason"] = "; ".join(filter(None, (str(told.get("reason", "")), f"{name}: {reason}")))
        if refused:
            count = len(next(iter(made.values())))
            made[CORRUPT] = pa.array([refused.get(row) for row in range(count)], arrow_type(CORRUPT_TYPE))
        return made


AS_THEY_ARE = Decoding({}, has_corrupt=False, is_failfast=False)
