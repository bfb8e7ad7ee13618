"""The cost of a Fetch: processor time of the broker per gigabyte with librdkafka, and gigabytes per second
over a bare socket.

The data lies in the page cache. Our broker sends records by `sendfile`; in the column `sparklog pread`
that call is replaced by a read into memory and a write, as for a connection under TLS.
"""

from benchmarks import cpu, harness, raw, rdkafka

VALUE_BYTES = 1_024
RECORDS = 1_000_000
RAW_BYTES = 2_000_000_000
FETCH_BYTES = 8 << 20
# No more at a time than a socket is likely to take, since the bytes it does not take are read again.
PREAD = "import os; os.sendfile = lambda out, file, position, length: os.write(out, os.pread(file, min(length, 256 << 10), position))"  # noqa: E501


def librdkafka(figures: harness.Figures, subject: harness.Subject, topic: str, partitions: int) -> None:
    """A fast client from the beginning; it spends its first half second on start-up, which costs the
    broker nothing.
    """
    with cpu.Stopwatch(subject) as watch:
        load = rdkafka.consume(
            subject, topic, count=RECORDS, partitions=partitions, settings=("check.crcs=false",)
        )
    gigabytes = load["bytes"] / 1e9
    label = f"librdkafka, 1 KB, {partitions} partition{'s' * (partitions > 1)}"
    figures.add(f"{label}: broker CPU", "s/GB", subject.name, watch.cpu_s / gigabytes, bound="<= 0.4")
    figures.add(f"{label}: values", "MB/s", subject.name, load["bytes"] / 1e6 / load["seconds"])


def bare_socket(figures: harness.Figures, subject: harness.Subject, topic: str) -> None:
    """One Fetch after another, from the beginning again when the end is reached."""
    received, offset = 0, 0
    room = raw.FetchedTo(FETCH_BYTES + (2 << 20))
    with raw.connect(subject) as connection, cpu.Stopwatch(subject) as watch:
        while received < RAW_BYTES:
            connection.sendall(raw.fetch_request(topic, offset=offset, max_bytes=FETCH_BYTES))
            record_bytes, next_offset = room.receive(connection, topic)
            received += record_bytes
            offset = 0 if next_offset < 0 or next_offset >= RECORDS else next_offset
    figures.add(
        "bare socket, 8 MiB a request: records",
        "GB/s",
        subject.name,
        received / 1e9 / watch.wall_s,
        bound=">= 1.2",
    )
    figures.add(
        "bare socket, 8 MiB a request: broker CPU", "s/GB", subject.name, watch.cpu_s / (received / 1e9)
    )


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("fetch")
    if not rdkafka.is_available():
        raise SystemExit("fetch: needs a C compiler for the librdkafka driver that fills the topics")
    for subject in harness.subjects(options, preludes={"sparklog pread": PREAD}):
        for partitions in (1, 4):
            topic = f"fetched-{partitions}"
            harness.create_topic(subject, topic, partitions=partitions)
            rdkafka.produce(subject, topic, count=RECORDS, size=VALUE_BYTES)
            for _ in range(options.repeats):
                librdkafka(figures, subject, topic, partitions)
        for _ in range(options.repeats):
            bare_socket(figures, subject, "fetched-1")
    figures.report(options)


if __name__ == "__main__":
    main()
