"""From `produce` to the hands of a waiting consumer: 1 000 records a second of 100 B, linger 0, acks=1,
confluent-kafka on both sides.

Producer and consumer are two processes of this machine, so one wall clock serves both. Under
`sparklog.ack.flush=auto` a record is handed out only when it is on disk; `never` is Kafka's behaviour.
"""

import multiprocessing
import struct
import time
from multiprocessing.synchronize import Event

import confluent_kafka

from benchmarks import harness

RATE_PER_S = 1_000
RECORDS = 6_000
WARM_UP = 1_000
PATIENCE_S = 30
BOUNDS = {"sparklog never": {50: "<= 0.25", 99: "<= 1.5"}, "sparklog auto": {50: "<= 0.55"}}


def receive(
    bootstrap_servers: str, topic: str, is_waiting: Event, latencies_ms: "multiprocessing.Queue[list[float]]"
) -> None:
    """The consumer's process: how old each record is when it arrives."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[float] = []
    is_waiting.set()
    deadline = time.monotonic() + RECORDS / RATE_PER_S + PATIENCE_S
    while len(found) < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        value = message.value() if message is not None and message.error() is None else None
        if value is not None:
            found.append((time.time_ns() - struct.unpack_from(">q", value)[0]) / 1e6)
    consumer.close()
    latencies_ms.put(found)


def end_to_end(figures: harness.Figures, subject: harness.Subject, topic: str) -> None:
    """One run at a steady pace; the first second is not counted."""
    context = multiprocessing.get_context("spawn")
    is_waiting, latencies_ms = context.Event(), context.Queue()
    consumer = context.Process(
        target=receive, args=(subject.bootstrap_servers, topic, is_waiting, latencies_ms)
    )
    consumer.start()
    is_waiting.wait(PATIENCE_S)
    time.sleep(1)  # until its first Fetch waits at the broker
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": subject.bootstrap_servers, "linger.ms": 0, "acks": 1}
    )
    start = time.perf_counter()
    for number in range(RECORDS):
        while (wait_s := start + number / RATE_PER_S - time.perf_counter()) > 0:
            time.sleep(wait_s)
        producer.produce(topic, struct.pack(">q", time.time_ns()) + b"x" * 92, partition=0)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    found = latencies_ms.get(timeout=2 * PATIENCE_S)
    consumer.join(PATIENCE_S)
    if len(found) < RECORDS:
        raise RuntimeError(f"{subject.name}: {len(found)} of {RECORDS} records arrived")
    for percent in (50, 99):
        bound = BOUNDS.get(subject.name, {}).get(percent, "")
        figures.add(
            f"end to end: p{percent}",
            "ms",
            subject.name,
            harness.percentile(found[WARM_UP:], percent),
            bound=bound,
        )


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("latency")
    for subject in harness.subjects(options, flush=("never", "auto")):
        for repeat in range(options.repeats):
            topic = f"paced-{repeat}"
            harness.create_topic(subject, topic)
            end_to_end(figures, subject, topic)
    figures.report(options)


if __name__ == "__main__":
    main()
