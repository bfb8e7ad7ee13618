"""The Python reader, a thread: it reads committed flights and counts them by airport and hour of the day."""

import threading
from types import TracebackType
from typing import Self

import msgspec

from sparklog import Consumer, TopicPartition
from sparklog_server.demo.flights import PARTITIONS, TOPIC, Flight, Total, Totals


class Reader:
    """Reads until the block ends. An error of the thread is raised at the end of the block."""

    def __init__(self, servers: str) -> None:
        self.position = 0
        """The offsets that have been read, added up over the partitions."""
        self.records = 0
        self.ids: set[int] = set()
        self.totals: Totals = {}
        self._servers = servers
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        decode = msgspec.json.Decoder(Flight).decode
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        try:
            with Consumer(bootstrap_servers=self._servers, isolation_level="read_committed") as consumer:
                consumer.assign(partitions)
                consumer.seek_to_beginning()
                while not self._ended.is_set():
                    for record in consumer.poll(timeout_ms=200):
                        self._count(decode(record.value or b""))
                    self.position = sum(consumer.position(one) for one in partitions)
        except Exception as error:  # raised where the block ends
            self._error = error

    def _count(self, flight: Flight) -> None:
        self.records += 1
        self.ids.add(flight.id)
        total = self.totals.setdefault((flight.airport, int(flight.hour[11:13])), Total())
        total.flights += 1
        if flight.delay is None:
            total.cancelled += 1
        else:
            total.delay += flight.delay
