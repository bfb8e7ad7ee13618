"""OffsetCommit: how long one takes with nothing else in flight, how many fit into a second when many are,
and the cost of each to the broker.

Run as `python -m benchmarks.group_commits [--json FILE] [--against kafka]`. Each commits one partition,
for a group without members, as tools and simple consumers do. Under `sparklog.ack.flush=auto` committed is
durable; `never` is Kafka's behaviour.
"""

import socket
import time

from benchmarks import cpu, harness, raw
from benchmarks.group_members import ask, framed, wait_for_coordinator
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

COMMITS = 2_000
PIPELINED = 20_000
IN_FLIGHT = 32
VERSION = 8
P50 = {"sparklog never": "<= 150", "sparklog auto": "<= 400"}


def commit(offset: int, group: str = "g", partition: int = 0) -> OffsetCommitRequest:
    parts = [OffsetCommitRequestPartition(partition, offset)]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=parts)])


def one_in_flight(connection: socket.socket) -> list[float]:
    """Microseconds of each commit."""
    frames = [framed(commit(number), VERSION) for number in range(COMMITS)]
    elapsed_us = []
    for frame in frames:
        started = time.perf_counter()
        connection.sendall(frame)
        raw.reply(connection)
        elapsed_us.append((time.perf_counter() - started) * 1e6)
    return elapsed_us


def pipelined(connection: socket.socket) -> float:
    """Seconds for all, so many unanswered at most."""
    frames = [framed(commit(number), VERSION) for number in range(PIPELINED)]
    started = time.perf_counter()
    for frame in frames[:IN_FLIGHT]:
        connection.sendall(frame)
    received, answered, sent = b"", 0, IN_FLIGHT
    while answered < PIPELINED:
        more = connection.recv(1 << 16)
        if not more:
            raise ConnectionError("the broker closed the connection")
        received += more
        at = 0
        while len(received) - at >= 4 and len(received) - at >= (
            size := 4 + int.from_bytes(received[at : at + 4])
        ):
            at += size
            answered += 1
        received = received[at:]
        due = min(PIPELINED, answered + IN_FLIGHT)
        if due > sent:
            connection.sendall(b"".join(frames[sent:due]))
            sent = due
    return time.perf_counter() - started


def measure(figures: harness.Figures, subject: harness.Subject) -> None:
    with raw.connect(subject) as connection:
        wait_for_coordinator(connection, "g")
        answer = ask(connection, commit(1), VERSION, OffsetCommitResponse)
        assert isinstance(answer, OffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == 0
        one_in_flight(connection)  # warm
        with cpu.Stopwatch(subject) as watch:
            elapsed_us = one_in_flight(connection)
        bound = P50.get(subject.name, "")
        figures.add("one in flight: p50", "µs", subject.name, harness.percentile(elapsed_us, 50), bound=bound)
        figures.add("one in flight: p99", "µs", subject.name, harness.percentile(elapsed_us, 99))
        figures.add("one in flight: broker CPU each", "µs", subject.name, watch.cpu_s / COMMITS * 1e6)
        with cpu.Stopwatch(subject) as watch:
            elapsed_s = pipelined(connection)
        promised = ">= 15000" if subject.name != "kafka" else ""
        figures.add(
            f"{IN_FLIGHT} in flight: rate", "1/s", subject.name, PIPELINED / elapsed_s, bound=promised
        )
        figures.add(
            f"{IN_FLIGHT} in flight: broker CPU each", "µs", subject.name, watch.cpu_s / PIPELINED * 1e6
        )


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("group_commits")
    for subject in harness.subjects(options, flush=("never", "auto")):
        harness.create_topic(subject, "t")
        for _ in range(options.repeats):
            measure(figures, subject)
    figures.report(options)


if __name__ == "__main__":
    main()
