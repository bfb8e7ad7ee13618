"""The load on a cluster under attack: its topics, the clients and what they note, and what is stored at the
end.
"""

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.live.history import At, History, Told

PLAIN, WHOLE, VERIFIABLE = "plain", "whole", "verifiable"
COPIED_BY_CLASSIC_GROUP, COPIED_BY_MODERN_GROUP = "copied-classic", "copied-modern"
COPIES = {COPIED_BY_CLASSIC_GROUP: PLAIN, COPIED_BY_MODERN_GROUP: PLAIN}
"""The source of each copy."""
TOPICS = (PLAIN, WHOLE, VERIFIABLE, *COPIES)
PARTITIONS = 6
PAUSE_S = 0.01
PATIENCE_S = 90.0
"""More than the timeout of a transaction whose producer has failed."""
QUIET = {"log_level": 0}


class Load:
    """Clients of a cluster, and the history that they write."""

    def __init__(self, servers: str, clients: Sequence[Callable[["Load"], None]]) -> None:
        self.servers = servers
        self.history = History()
        self._clients = clients
        self._is_over = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run every client in a thread of its own; a client that raises is a failure of the history."""
        threads = [threading.Thread(target=self._guarded, args=(client,)) for client in self._clients]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def numbers(self) -> Iterator[int]:
        """Count until the load is over, with a pause after each number."""
        number = 0
        while not self._is_over.wait(PAUSE_S):
            yield number
            number += 1

    def wait(self) -> None:
        """Wait until the load is over."""
        self._is_over.wait()

    def _guarded(self, client: Callable[["Load"], None]) -> None:
        try:
            client(self)
        except Exception:  # it is the finding of the test
            self.history.failures.append(f"{client.__name__}: {traceback.format_exc()}")


def stored(servers: str, topics: Sequence[str] = TOPICS) -> dict[At, dict[int, str]]:
    """Every value that a read_committed consumer is given, from the beginning to the end."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "end", "isolation.level": "read_committed", **QUIET}
    )
    found = {}
    for at in (At(topic, number) for topic in topics for number in range(PARTITIONS)):
        values = found[at] = {}
        place = TopicPartition(at.topic, at.partition, 0)
        until_s = time.monotonic() + PATIENCE_S
        end = _end(consumer, place, until_s)
        consumer.assign([place])
        while end and consumer.position([place])[0].offset < end:
            if time.monotonic() > until_s:
                raise RuntimeError(f"{at} cannot be read to its end {end}")
            for message in consumer.consume(1000, timeout=0.2):
                if message.error() is None:
                    one = told(message)
                    values[one.offset] = one.value
    consumer.close()
    return found


def _end(consumer: Consumer, place: TopicPartition, until_s: float) -> int:
    """The end offset; librdkafka raises an error if the leader changes just then."""
    while True:
        try:
            return consumer.get_watermark_offsets(place, timeout=PATIENCE_S)[1]
        except KafkaException:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.1)


def told(message: Message) -> Told:
    """What librdkafka says of a record."""
    at = At(message.topic(), message.partition())
    return Told(
        at, message.offset(), message.value().decode().replace(".", ":")
    )  # as VerifiableProducer writes
