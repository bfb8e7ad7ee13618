"""The cost of a Produce: latency of one request, requests per second, processor time of the broker per
request and per gigabyte.

One connection over loopback, acks=1, one replica. Client and broker share the machine. Nothing is
compressed. Under `sparklog.ack.flush=auto`, a request with acks=all waits for a sync; rounds of such
requests alternate with rounds of bare appends that are synced, on the same disk. Beside the processor time
per gigabyte stands the time of a bare `pwrite` of as many bytes at that time: the page cache has a slow mode,
which every broker pays.
"""

import os
import time

from benchmarks import cpu, harness, raw, rdkafka

WARM_UP = 500
REQUESTS = 5_000
PIPELINED = 60_000
SYNCED_ROUNDS, SYNCED_PER_ROUND = 20, 100
IN_FLIGHT = 16
LOADS = ((1_024, 500_000, "<= 1.5"), (100, 2_000_000, "<= 2.5"))


def one_in_flight(figures: harness.Figures, subject: harness.Subject, topic: str) -> None:
    """Send, wait, send: the latency that a single producer sees."""
    frame, reply_bytes = raw.produce_request(topic, value_bytes=100), raw.produce_reply_bytes(topic)
    latencies_us = []
    with raw.connect(subject) as connection:
        for _ in range(WARM_UP + REQUESTS):
            sent = time.perf_counter_ns()
            connection.sendall(frame)
            reply = connection.recv(4096)
            while len(reply) < reply_bytes:
                reply += connection.recv(4096)
            latencies_us.append((time.perf_counter_ns() - sent) / 1e3)
    assert raw.produce_error(reply, topic) == 0
    measured = latencies_us[WARM_UP:]
    figures.add(
        "100 B, one in flight: p50", "µs", subject.name, harness.percentile(measured, 50), bound="<= 70"
    )
    figures.add(
        "100 B, one in flight: p99", "µs", subject.name, harness.percentile(measured, 99), bound="<= 150"
    )


def synced(figures: harness.Figures, subject: harness.Subject, topic: str) -> None:
    """Send, wait for the sync, send; beside it a bare append of 200 bytes and fdatasync."""
    frame = raw.produce_request(topic, value_bytes=100, acks=-1)
    reply_bytes = raw.produce_reply_bytes(topic)
    ours_us, bare_us = [], []
    with raw.connect(subject) as connection, (subject.data_dir / "bare").open("wb", buffering=0) as file:
        for _ in range(SYNCED_ROUNDS):
            for _ in range(SYNCED_PER_ROUND):
                began = time.perf_counter_ns()
                connection.sendall(frame)
                reply = connection.recv(4096)
                while len(reply) < reply_bytes:
                    reply += connection.recv(4096)
                ours_us.append((time.perf_counter_ns() - began) / 1e3)
            for _ in range(SYNCED_PER_ROUND):
                began = time.perf_counter_ns()
                file.write(bytes(200))
                os.fdatasync(file.fileno())
                bare_us.append((time.perf_counter_ns() - began) / 1e3)
    assert raw.produce_error(reply, topic) == 0
    ours, bare = harness.percentile(ours_us, 50), harness.percentile(bare_us, 50)
    figures.add("100 B, one in flight, acks=all: p50", "µs", subject.name, ours)
    figures.add("bare append and fdatasync of 200 B: p50", "µs", subject.name, bare)
    figures.add("acks=all / bare append and fdatasync", "", subject.name, ours / bare, bound="<= 1.6")


def pipelined(figures: harness.Figures, subject: harness.Subject, topic: str) -> None:
    """Sixteen requests always under way on one connection."""
    frame, reply_bytes = raw.produce_request(topic, value_bytes=100), raw.produce_reply_bytes(topic)
    with raw.connect(subject) as connection, cpu.Stopwatch(subject) as watch:
        connection.sendall(frame * IN_FLIGHT)
        sent, answered, pending_bytes = IN_FLIGHT, 0, 0
        while answered < PIPELINED:
            received = connection.recv(65536)
            if not received:
                raise ConnectionError("the broker closed the connection")
            pending_bytes += len(received)
            whole, pending_bytes = divmod(pending_bytes, reply_bytes)
            answered += whole
            more = min(whole, PIPELINED - sent)
            if more > 0:
                connection.sendall(frame * more)
                sent += more
    figures.add(
        "100 B, 16 in flight: requests", "1/s", subject.name, answered / watch.wall_s, bound=">= 50000"
    )
    figures.add(
        "100 B, 16 in flight: broker CPU per request",
        "µs",
        subject.name,
        watch.cpu_s / answered * 1e6,
        bound="<= 15",
    )


def librdkafka(figures: harness.Figures, subject: harness.Subject, repeat: int) -> None:
    """Large batches from a fast client: the broker's cost per gigabyte of values."""
    for size, count, bound in LOADS:
        topic = f"rdkafka-{size}-{repeat}"
        harness.create_topic(subject, topic)
        with cpu.Stopwatch(subject) as watch:
            load = rdkafka.produce(subject, topic, count=count, size=size)
        gigabytes = load["bytes"] / 1e9
        figures.add(
            f"librdkafka, {size} B: broker CPU", "s/GB", subject.name, watch.cpu_s / gigabytes, bound=bound
        )
        control = cpu.bare_write_cpu_s(load["bytes"]) / gigabytes
        figures.add(f"librdkafka, {size} B: CPU of bare pwrite beside it", "s/GB", subject.name, control)
        figures.add(
            f"librdkafka, {size} B: values", "MB/s", subject.name, load["bytes"] / 1e6 / load["seconds"]
        )


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("produce")
    for subject in harness.subjects(options, flush=("never", "auto")):
        for repeat in range(options.repeats):
            topic = f"lone-{repeat}"
            harness.create_topic(subject, topic)
            one_in_flight(figures, subject, topic)
            pipelined(figures, subject, topic)
            if subject.name.endswith("auto"):
                synced(figures, subject, topic)
            if rdkafka.is_available():
                librdkafka(figures, subject, repeat)
            else:
                figures.note("no C compiler: the librdkafka rows are left out")
    figures.note(
        "sparklog.ack.flush is `never` (as Kafka's default) in the first column and `auto` in the second"
    )
    figures.report(options)


if __name__ == "__main__":
    main()
