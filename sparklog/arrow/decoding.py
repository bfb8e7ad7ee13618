"""Decoding of keys and values into the types of the read's schema, and reporting of those that fail."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from sparklog.arrow.formats.choice import PARTS, column_type, decoder_of
from sparklog.arrow.formats.decoded import Decoder, UndecodableRecord
from sparklog.arrow.formats.names import Format, PartFormat
from sparklog.model import TopicPartition

CORRUPT: Final = "_corrupt"
"""Null if key and value could be decoded; otherwise the bytes of the part that could not, and the reason."""
CORRUPT_TYPE: Final = pa.struct([("key", pa.binary()), ("value", pa.binary()), ("reason", pa.string())])


class Decoding:
    """The decoders of one read, created once per task on the executor."""

    def __init__(self, decoders: Mapping[str, Decoder], *, has_corrupt: bool, is_failfast: bool) -> None:
        self._decoders = decoders
        self._has_corrupt = has_corrupt
        self._is_failfast = is_failfast
        self.needs: tuple[str, ...] = (*decoders, "offset") if is_failfast and decoders else tuple(decoders)
        """The columns of the log that decoding needs, in addition to those of the schema."""

    @classmethod
    def of(cls, parts: Mapping[str, PartFormat], schema: pa.Schema, *, is_failfast: bool) -> "Decoding":
        """The decoders of the parts in the schema, or of all parts if the schema has `_corrupt`."""
        has_corrupt = CORRUPT in schema.names
        decoders: dict[str, Decoder] = {}
        for name in PARTS:
            if parts[name].format is Format.BINARY or not (name in schema.names or has_corrupt):
                continue
            kind = schema.field(name).type if name in schema.names else column_type(parts[name])
            decoder = None if kind is None else decoder_of(parts[name], kind)
            if decoder is not None:
                decoders[name] = decoder
        return cls(decoders, has_corrupt=has_corrupt, is_failfast=is_failfast)

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
                corrupt = refused.setdefault(row, {})
                corrupt[name] = given[name][row].as_py()
                corrupt["reason"] = "; ".join(
                    filter(None, (str(corrupt.get("reason", "")), f"{name}: {reason}"))
                )
        if refused:
            count = len(next(iter(made.values())))
            made[CORRUPT] = pa.array([refused.get(row) for row in range(count)], CORRUPT_TYPE)
        return made


AS_THEY_ARE = Decoding({}, has_corrupt=False, is_failfast=False)
