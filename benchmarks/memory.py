"""Resident memory of the broker: idle after start, with five thousand idle connections, with five thousand
partitions, after a gigabyte in and out.
"""

import contextlib
import resource
import socket
import time

from benchmarks import harness, raw, rdkafka

CONNECTIONS = 5_000
PARTITIONS = 5_000
BATCHES = 1_000
"""Of one request."""
RECORDS = 1_000_000
SETTLE_S = 2.0
API_VERSIONS = raw.request(18, 0, b"")


def megabytes(subject: harness.Subject) -> float:
    """After a moment in which nothing happens."""
    time.sleep(SETTLE_S)
    return subject.resident_bytes() / 1e6


def idle_connections(figures: harness.Figures, subject: harness.Subject) -> None:
    """Each has asked once, so that each is a session; then all are silent."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * CONNECTIONS), hard))
    before = megabytes(subject)
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection: socket.socket = stack.enter_context(raw.connect(subject))
            connection.sendall(API_VERSIONS)
            connection.recv(4096)
        after = megabytes(subject)
    figures.add(f"{CONNECTIONS} idle connections: more by", "MB", subject.name, after - before, bound="<= 40")


def partitions(figures: harness.Figures, subject: harness.Subject) -> None:
    """Empty ones, then each with one small batch: the log, its producer state and its indexes exist."""
    before = megabytes(subject)
    harness.create_topic(subject, "many", partitions=PARTITIONS)
    with raw.connect(subject) as connection:
        raw.wait_for_leaders(connection, "many", PARTITIONS)
        empty = megabytes(subject)
        figures.add(f"{PARTITIONS} partitions without records: more by", "MB", subject.name, empty - before)
        batch = raw.batch(value_bytes=100)
        for first in range(0, PARTITIONS, BATCHES):
            named = dict.fromkeys(range(first, first + BATCHES), batch)
            connection.sendall(raw.produce_batches("many", named, acks=1))
            assert raw.check_produced(raw.reply(connection), "many") == BATCHES
    figures.add(
        f"{PARTITIONS} partitions with a batch each: more by", "MB", subject.name, megabytes(subject) - before
    )


def gigabyte(figures: harness.Figures, subject: harness.Subject) -> None:
    """A gigabyte of 1 KB values through librdkafka, into four partitions and back."""
    harness.create_topic(subject, "gigabyte", partitions=4)
    rdkafka.produce(subject, "gigabyte", count=RECORDS, size=1_024)
    rdkafka.consume(subject, "gigabyte", count=RECORDS, partitions=4)
    figures.add("after 1 GB produced and fetched", "MB", subject.name, megabytes(subject), bound="<= 120")


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=1)
    figures = harness.Figures("memory")
    for _ in range(options.repeats):
        for subject in harness.subjects(options):
            figures.add("idle after start", "MB", subject.name, megabytes(subject), bound="<= 60")
            if rdkafka.is_available():
                gigabyte(figures, subject)
            idle_connections(figures, subject)
        for subject in harness.subjects(options):  # new ones: the heap of the connections would be used again
            partitions(figures, subject)
    figures.note("a Java broker keeps what its heap allows: its figures depend on -Xmx1g")
    figures.report(options)


if __name__ == "__main__":
    main()
