"""One small batch to each of 1 000 partitions over one connection, acks=all: how long until all are
acknowledged, and their cost.

Run as `python -m benchmarks.partitions [--json FILE] [--against kafka]`. Once as one request that names
all partitions, as a producer with a moment of linger sends it, and once as a thousand requests sent
without waiting. The first round writes into files that are new, so that their directories must become
durable too. Under `sparklog.ack.flush=auto` acknowledged is durable; `never` is Kafka's behaviour.
"""

import os
import socket
import time

from benchmarks import cpu, harness, raw

PARTITIONS = 1_000
ROUNDS = 10
VALUE_BYTES = 100
FLUSH = ("never", "auto")


def in_one_request(connection: socket.socket, topic: str) -> float:
    """Milliseconds from the first byte sent to the reply received."""
    frame = raw.produce_batches(
        topic, dict.fromkeys(range(PARTITIONS), raw.batch(value_bytes=VALUE_BYTES)), acks=-1
    )
    started = time.perf_counter()
    connection.sendall(frame)
    reply = raw.reply(connection)
    elapsed_ms = (time.perf_counter() - started) * 1000
    assert raw.check_produced(reply, topic) == PARTITIONS
    return elapsed_ms


def in_many_requests(connection: socket.socket, topic: str) -> float:
    """The same, one request for each partition."""
    batch = raw.batch(value_bytes=VALUE_BYTES)
    frames = [raw.produce_batches(topic, {partition: batch}, acks=-1) for partition in range(PARTITIONS)]
    started = time.perf_counter()
    raw.pour(connection, topic, frames, in_flight=PARTITIONS)
    return (time.perf_counter() - started) * 1000


def measure(figures: harness.Figures, subject: harness.Subject, topic: str) -> None:
    """A new topic: the first round of each kind apart, then the median of ten."""
    harness.create_topic(subject, topic, partitions=PARTITIONS)
    bound = "<= 50" if subject.name != "kafka" else ""
    with raw.connect(subject) as connection:
        raw.wait_for_leaders(connection, topic, PARTITIONS)
        os.sync()  # writes left by the creation are not measured
        what = f"{PARTITIONS} partitions, acks=all"
        figures.add(
            f"{what}, new files, in one request",
            "ms",
            subject.name,
            in_one_request(connection, topic),
            bound=bound,
        )
        for form, send, promised in (
            ("in one request", in_one_request, bound),
            (f"in {PARTITIONS} requests", in_many_requests, ""),
        ):
            with cpu.Stopwatch(subject) as watch:
                elapsed_ms = [send(connection, topic) for _ in range(ROUNDS)]
            figures.add(
                f"{what}, {form}", "ms", subject.name, harness.percentile(elapsed_ms, 50), bound=promised
            )
            figures.add(f"{what}, {form}: worst of {ROUNDS}", "ms", subject.name, max(elapsed_ms))
            figures.add(f"{what}, {form}: broker CPU", "ms", subject.name, watch.cpu_s * 1000 / ROUNDS)


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("partitions")
    for subject in harness.subjects(options, flush=FLUSH):
        for repeat in range(options.repeats):
            measure(figures, subject, f"spread-{repeat}")
    figures.note(
        "a session of ours has 64 requests in flight at most (sparklog.session.in.flight.max), so a thousand "
        "are sixteen syncs"
    )
    figures.report(options)


if __name__ == "__main__":
    main()
