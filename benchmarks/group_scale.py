"""A thousand groups of three members each: the broker's memory for 3 000 connected members, and
the cost of their heartbeats.

Run as `python -m benchmarks.group_scale [--json FILE] [--against kafka]`. Heartbeats come every 3 s, by
both protocols. All members are sockets of one process (benchmarks/group_members.py).
"""

import time
from collections.abc import Iterator

from benchmarks import cpu, harness, raw
from benchmarks.group_members import (
    HEARTBEAT_S,
    ClassicMember,
    ConsumerMember,
    Crowd,
    Member,
    wait_for_coordinator,
)

GROUPS, MEMBERS = 1_000, 3
SECONDS = 18.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": str(int(HEARTBEAT_S * 1000)),
    "group.consumer.heartbeat.interval.ms": str(int(HEARTBEAT_S * 1000)),
}


def subjects(against_kafka: bool) -> Iterator[tuple[harness.Subject, str]]:
    """A new broker for each protocol: the members of the last one would end their sessions while the next
    are measured.
    """
    for protocol in ("classic", "consumer"):
        with harness.sparklog(SETTINGS) as subject:
            yield subject, protocol
    for protocol in ("classic", "consumer") if against_kafka else ():
        with harness.kafka(SETTINGS) as subject:
            yield subject, protocol


def measure(figures: harness.Figures, subject: harness.Subject, protocol: str) -> None:
    crowd = Crowd(subject)
    what = f"{protocol}: {GROUPS} groups of {MEMBERS}"
    promised = "<= 60" if subject.name != "kafka" else ""
    try:
        before = subject.resident_bytes()
        members: list[Member] = []
        for number in range(GROUPS):
            group = f"{protocol}-{number}"
            for _ in range(MEMBERS):
                one = (
                    ClassicMember(crowd, group, "t", MEMBERS)
                    if protocol == "classic"
                    else ConsumerMember(crowd, group, "t", MEMBERS)
                )
                members.append(one)
            crowd.run(seconds=0.003)  # the next come while these wait for one another
        crowd.run(
            until=lambda: all(member.is_stable and len(member.owned) == 1 for member in members), seconds=60
        )
        # Until all is quiet: each has sent a heartbeat or two, and the joins' rubbish is gone.
        crowd.run(seconds=2 * HEARTBEAT_S)
        figures.add(
            f"{what}: memory added",
            "MB",
            subject.name,
            (subject.resident_bytes() - before) / 1e6,
            bound=promised,
        )
        crowd.requests = 0
        with cpu.Stopwatch(subject) as watch:
            crowd.run(seconds=SECONDS)
        promised = "<= 10" if subject.name != "kafka" else ""
        figures.add(
            f"{what}: broker CPU by heartbeats",
            "% of a core",
            subject.name,
            100 * watch.cpu_s / watch.wall_s,
            bound=promised,
        )
        figures.add(f"{what}: heartbeats", "1/s", subject.name, crowd.requests / watch.wall_s)
        figures.add(f"{what}: broker CPU each", "µs", subject.name, watch.cpu_s / crowd.requests * 1e6)
        assert all(member.is_stable for member in members), "a member lost its place"
    finally:
        crowd.close()


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=1)
    figures = harness.Figures("group_scale")
    for _ in range(options.repeats):
        for subject, protocol in subjects(options.against == "kafka"):
            harness.create_topic(subject, "t", partitions=MEMBERS)
            with raw.connect(subject) as connection:
                wait_for_coordinator(connection, "warm")
            time.sleep(2)  # the work that the new topics left
            measure(figures, subject, protocol)
    figures.report(options)


if __name__ == "__main__":
    main()
