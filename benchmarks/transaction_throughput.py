"""Produce throughput in transactions of 1 000 records of 1 KB each, against the same client without
transactions.

One producer, one partition; the reference writes as many records with the same settings, idempotent,
and waits once, at the end. The bound is nine tenths of that with our client; librdkafka's share is to be
compared with the one that it has with a real Kafka. A row beside it tells of one without transactions that
flushes after every 1 000 records: the loss by waiting alone.
"""

import time
from collections.abc import Callable
from typing import Protocol

import confluent_kafka

from benchmarks import harness
from sparklog.client.producer.producer import Producer

TRANSACTIONS, RECORDS = 50, 1_000
VALUE = b"x" * 1_000
ROUNDS = 2
"""In turns, so that whatever else the machine does falls on all of them; the first is not counted."""


class Client(Protocol):
    """One producer that is open; `begin` and `commit` only of one with a transactional id."""

    def begin(self) -> None: ...
    def write(self, topic: str) -> None: ...
    def flush(self) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class Ours:
    """Our own Producer."""

    def __init__(self, servers: str, transactional_id: str | None) -> None:
        self._producer = Producer(bootstrap_servers=servers, transactional_id=transactional_id)
        self.begin, self.commit, self.close = (
            self._producer.begin,
            self._producer.commit,
            self._producer.close,
        )
        if transactional_id is not None:
            self._producer.init()

    def write(self, topic: str) -> None:
        send = self._producer.send
        for _ in range(RECORDS):
            send(topic, VALUE, partition=0)

    def flush(self) -> None:
        self._producer.flush()


class Librdkafka:
    """librdkafka by confluent-kafka, its defaults but for the room in its queue."""

    def __init__(self, servers: str, transactional_id: str | None) -> None:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": servers,
            "queue.buffering.max.messages": 1_000_000,
        }
        settings |= (
            {"enable.idempotence": True}
            if transactional_id is None
            else {"transactional.id": transactional_id}
        )
        self._producer = confluent_kafka.Producer(settings)
        self.begin = self._producer.begin_transaction
        if transactional_id is not None:
            self._producer.init_transactions(60)

    def write(self, topic: str) -> None:
        produce = self._producer.produce
        for _ in range(RECORDS):
            produce(topic, VALUE, partition=0)

    def flush(self) -> None:
        if left := self._producer.flush(60):
            raise RuntimeError(f"{left} records were not acknowledged within a minute")

    def commit(self) -> None:
        self._producer.commit_transaction(60)

    def close(self) -> None:
        """It goes with its last reference."""


def in_transactions(client: Client, topic: str) -> None:
    """A transaction for every thousand."""
    for _ in range(TRANSACTIONS):
        client.begin()
        client.write(topic)
        client.commit()


def without(client: Client, topic: str) -> None:
    """None, and one wait at the end."""
    for _ in range(TRANSACTIONS):
        client.write(topic)
    client.flush()


def flushed(client: Client, topic: str) -> None:
    """None, and a wait for every thousand."""
    for _ in range(TRANSACTIONS):
        client.write(topic)
        client.flush()


def main() -> None:
    """Measure, and print the table."""
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("transaction_throughput")
    for subject in harness.subjects(options, flush=("never", "auto")):
        for repeat in range(options.repeats):
            _measure(figures, subject, "our client", Ours, repeat)
            _measure(figures, subject, "librdkafka", Librdkafka, repeat)
    figures.note(
        f"{TRANSACTIONS} times {RECORDS} records of {len(VALUE)} B in one partition, acks=all, idempotent; "
        f"nothing is compressed"
    )
    figures.note(
        "sparklog.ack.flush is `never` (as Kafka's default) in the first column and `auto` in the second"
    )
    figures.report(options)


def _measure(
    figures: harness.Figures,
    subject: harness.Subject,
    name: str,
    opened: Callable[[str, str | None], Client],
    repeat: int,
) -> None:
    ways: dict[str, tuple[Callable[[Client, str], None], Client]] = {
        "in transactions": (
            in_transactions,
            opened(subject.bootstrap_servers, f"{name} {time.monotonic_ns()}"),
        ),
        "without": (without, opened(subject.bootstrap_servers, None)),
        "without, flushed every 1 000": (flushed, opened(subject.bootstrap_servers, None)),
    }
    rates: dict[str, float] = {}
    for number in range(ROUNDS):
        for way, (run, client) in ways.items():
            topic = f"{name.replace(' ', '-')}-{repeat}-{number}-{run.__name__}"
            harness.create_topic(subject, topic)
            began = time.perf_counter()
            run(client, topic)
            rates[way] = TRANSACTIONS * RECORDS * len(VALUE) / 1e6 / (time.perf_counter() - began)
    for way, (_, client) in ways.items():
        client.close()
        figures.add(f"{name}: {way}", "MB/s", subject.name, rates[way])
    # librdkafka gathers a whole transaction into one or two requests: it loses the time of four round
    # trips, with any broker.
    bound = ">= 0.9" if opened is Ours else ""
    for other in ("without", "without, flushed every 1 000"):
        share = rates["in transactions"] / rates[other]
        figures.add(f"{name}: in transactions / {other}", "×", subject.name, share, bound=bound)


if __name__ == "__main__":
    main()
