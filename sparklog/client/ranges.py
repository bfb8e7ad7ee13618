"""One partition's records of a range of offsets, as whole batches at the speed of memory: the road into Spark's readers."""

from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from sparklog.client.settings import ClientSettings

FETCH_BYTES: Final = 8 << 20


class RangeReader:
    """Reads ranges, one after another, over connections kept between them. Not safe for use from several threads."""

    def __init__(self, settings: ClientSettings, *, fetch_bytes: int = FETCH_BYTES) -> None:
        raise NotImplementedError

    def read(self, topic: str, partition: int, start: int, limit: int) -> Iterator[memoryview]:
        """Whole batches, many in a view, that hold the records `[start, limit)`; the next Fetch is under way while a view is used.

        The first batch may begin before `start` and the last one end at or after `limit`: the caller leaves those records out.
        A view is valid until the next one is asked for. Raises OffsetOutOfRange if `start` is no longer (or not yet) in the log,
        CorruptRecords, and RequestTimeout after `default_api_timeout_ms` without progress.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Drop the connections."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
