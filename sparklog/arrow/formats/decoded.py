"""The result of every decoder, and the error of mode failfast."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

from sparklog.errors import SparklogError
from sparklog.model import TopicPartition

REASON_CHARACTERS_MAX = 300


class Decoded(NamedTuple):
    """One value per row; a row in `refused` is null, with a reason of one line."""

    array: pa.Array
    refused: Mapping[int, str]


class Decoder(Protocol):
    """Decodes byte strings into values of one type."""

    def decode(self, values: pa.Array) -> Decoded:
        """One value for each of `values`, null for null; the content of a value never makes it raise."""


class UndecodableRecord(SparklogError):
    """A record cannot be decoded, and `mode` is failfast."""

    def __init__(self, partition: TopicPartition, offset: int, part: str, reason: str) -> None:
        super().__init__(
            f"the {part} of offset {offset} in {partition} cannot be decoded: {reason}; with the option "
            f"mode=permissive such records"
            " are null, and the column _corrupt has their bytes and the reason"
        )
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[type["UndecodableRecord"], tuple[object, ...]]:
        part = self.args[0].split()[1]
        return type(self), (self.partition, self.offset, part, self.reason)


def reason_of(error: Exception) -> str:
    """The message as one line of limited length; a library's message may contain the whole value."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= REASON_CHARACTERS_MAX else text[: REASON_CHARACTERS_MAX - 1] + "…"
