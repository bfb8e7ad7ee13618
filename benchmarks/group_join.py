"""From making a consumer to its assignment, and to its first record: one member, both group protocols, our
client and librdkafka's.

The topic has four partitions with one record each; the group is new each time and the brokers do not delay
its first rebalance. Committing is off, and closing is not measured.
"""

import time
from collections.abc import Callable

import confluent_kafka

from benchmarks import harness
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer

PARTITIONS = 4
RUNS = 20
PATIENCE_S = 30
PROTOCOLS = ("classic", "consumer")


def ours(subject: harness.Subject, topic: str, group: str, protocol: str) -> tuple[float, float]:
    """Milliseconds until the listener was called, and until a record was in hand."""
    assigned: list[float] = []
    started = time.perf_counter()
    with Consumer(
        bootstrap_servers=subject.bootstrap_servers,
        group_id=group,
        group_protocol="consumer" if protocol == "consumer" else "classic",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe(
            [topic], on_assign=lambda held: assigned.append(time.perf_counter()) if held else None
        )
        while not consumer.poll(100):
            assert time.perf_counter() - started < PATIENCE_S
        return (assigned[0] - started) * 1000, (time.perf_counter() - started) * 1000


def librdkafka(subject: harness.Subject, topic: str, group: str, protocol: str) -> tuple[float, float]:
    """The same."""
    assigned: list[float] = []
    started = time.perf_counter()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": subject.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(
            [topic], on_assign=lambda _, held: assigned.append(time.perf_counter()) if held else None
        )
        while (message := consumer.poll(0.1)) is None or message.error():
            assert time.perf_counter() - started < PATIENCE_S
        return (assigned[0] - started) * 1000, (time.perf_counter() - started) * 1000
    finally:
        consumer.close()


CLIENTS: dict[str, Callable[[harness.Subject, str, str, str], tuple[float, float]]] = {
    "our client": ours,
    "librdkafka": librdkafka,
}


def measure(subject: harness.Subject, figures: harness.Figures, runs: int) -> None:
    harness.create_topic(subject, "joined", partitions=PARTITIONS)
    with Producer(bootstrap_servers=subject.bootstrap_servers) as producer:
        for number in range(PARTITIONS):
            producer.send("joined", b"x", partition=number)
    for protocol in PROTOCOLS:
        for client, join in CLIENTS.items():
            join(subject, "joined", f"warm-{client[:3]}-{protocol}", protocol)
            for number in range(runs):
                assigned_ms, read_ms = join(
                    subject, "joined", f"g-{client[:3]}-{protocol}-{number}", protocol
                )
                figures.add(
                    f"{protocol}, {client}: to assignment", "ms", subject.name, assigned_ms, bound="<= 40"
                )
                figures.add(f"{protocol}, {client}: to first record", "ms", subject.name, read_ms)


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=RUNS)
    figures = harness.Figures("group_join")
    if options.only != "kafka":
        with harness.sparklog(
            {"sparklog.ack.flush": "never", "group.initial.rebalance.delay.ms": "0"}
        ) as subject:
            measure(subject, figures, options.repeats)
    if options.against == "kafka" or options.only == "kafka":
        with harness.kafka() as subject:
            measure(subject, figures, min(options.repeats, 5))
    figures.note(
        "the first member of each client and protocol is not counted: it may have to wait for the offsets "
        "topic to be created"
    )
    figures.report(options)


if __name__ == "__main__":
    main()
