"""Reads several partitions at once, in threads, and hands their record batches to one consumer.

A thread has a `RangeReader`, and takes the next range when it has read one. The batches that are not taken
yet are bounded in number: a thread waits while there are `BATCHES_MAX` for each. The first error ends the
read.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import pyarrow as pa

from sparklog.arrow.ranges import OffsetRange
from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.failures import ClientClosed
from sparklog.client.settings import ClientSettings

BATCHES_MAX: Final = 2
"""Batches of a thread that wait for the consumer; each has at most the records of one Fetch."""

CLOSE_S_MAX: Final = 10.0
"""An interrupted thread ends when it has built its batch. At the end of the process it may not run again."""

BatchesOf = Callable[[RangeReader, OffsetRange], Iterator[pa.RecordBatch]]


class PieceBatch(NamedTuple):
    """Some records of the range at this place."""

    place: int
    rows: pa.RecordBatch


class ParallelRead:
    """The record batches of some ranges, in order within each range, as threads read them. An iterator, to be
    closed, by any thread: that ends the threads and closes their connections.
    """

    def __init__(
        self,
        settings: ClientSettings,
        pieces: Sequence[OffsetRange],
        batches_of: BatchesOf,
        *,
        threads_max: int,
    ) -> None:
        self._settings = settings
        self._batches_of = batches_of
        self._left = deque(enumerate(pieces))
        self._topics = dict.fromkeys(piece.partition.topic for piece in pieces)
        self._ready: deque[PieceBatch] = deque()
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_closed = False
        count = min(threads_max, len(pieces))
        self._readers: list[RangeReader] = []
        self._working = count
        self._room = BATCHES_MAX * count
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[PieceBatch]:
        return self

    def __next__(self) -> PieceBatch:
        with self._changed:
            while not self._ready and self._working and self._error is None and not self._is_closed:
                self._changed.wait()
            if self._error is not None:
                raise self._error
            if self._is_closed:
                raise ClientClosed("the read was closed before its end")
            if not self._ready:
                raise StopIteration
            self._changed.notify_all()
            return self._ready.popleft()

    def close(self) -> None:
        """End the threads and close their connections."""
        with self._changed:
            self._is_closed = True
            self._ready.clear()
            self._interrupt()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(CLOSE_S_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- in the threads --------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with self._reader() as reader:
                while (piece := self._next_piece()) is not None:
                    place, offsets = piece
                    for rows in self._batches_of(reader, offsets):
                        if not self._put(PieceBatch(place, rows)):
                            return
        except BaseException as error:
            with self._changed:
                if self._error is None and not self._is_closed:
                    self._error = error
                    self._interrupt()
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def _reader(self) -> RangeReader:
        reader = RangeReader(self._settings, can_be_interrupted=True)
        reader.expect(self._topics)
        with self._changed:
            self._readers.append(reader)
            if self._is_over:
                reader.interrupt()
        return reader

    def _next_piece(self) -> tuple[int, OffsetRange] | None:
        with self._changed:
            return self._left.popleft() if self._left and not self._is_over else None

    def _put(self, batch: PieceBatch) -> bool:
        """Hand over a batch; whether the read goes on."""
        with self._changed:
            while len(self._ready) >= self._room and not self._is_over:
                self._changed.wait()
            if self._is_over:
                return False
            self._ready.append(batch)
            self._changed.notify_all()
            return True

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._error is not None

    def _interrupt(self) -> None:
        for reader in self._readers:
            reader.interrupt()
        self._changed.notify_all()
