"""How soon members have their partitions: one new client, ten at once, a hundred over 500 partitions when
one dies or ten come.

Run as `python -m benchmarks.group_rebalance [--json FILE] [--against kafka]`. The first two are
librdkafka's, waits of its own included; the hundred are sockets of one process
(benchmarks/group_members.py). The initial rebalance delay is 0 for both brokers: our default for one
broker, and the value in Kafka's quick-start file. A dead member is detected when its session ends, 6 s here
(the least that a classic group may have) for both protocols and both brokers. Under
`sparklog.ack.flush=auto` a member is answered when its records are durable; `never` is Kafka's behaviour.
"""

import time
from collections.abc import Iterator

import confluent_kafka

from benchmarks import cpu, harness, raw
from benchmarks.group_members import (
    ClassicMember,
    ConsumerMember,
    Crowd,
    Member,
    are_stable,
    wait_for_coordinator,
)

PROTOCOLS = ("classic", "consumer")
MEMBERS, PARTITIONS, NEWCOMERS = 100, 500, 10
SESSION_MS = 6_000
ROUNDS = 10
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}


def subjects(against_kafka: bool) -> Iterator[harness.Subject]:
    for mode in ("never", "auto"):
        with harness.sparklog(SETTINGS | {"sparklog.ack.flush": mode}, name=f"sparklog {mode}") as subject:
            yield subject
    if against_kafka:
        with harness.kafka(SETTINGS) as subject:
            yield subject


def consumer_of(subject: harness.Subject, group: str, protocol: str) -> confluent_kafka.Consumer:
    settings = {
        "bootstrap.servers": subject.bootstrap_servers,
        "group.id": group,
        "group.protocol": protocol,
        "log_level": 0,
    }
    return confluent_kafka.Consumer(settings)


def one_client(subject: harness.Subject, group: str, protocol: str) -> float:
    """Milliseconds from the making of a consumer to its assignment."""
    assigned: list[float] = []
    started = time.perf_counter()
    consumer = consumer_of(subject, group, protocol)
    consumer.subscribe(
        ["one"], on_assign=lambda _, partitions: assigned.append(time.perf_counter()) if partitions else None
    )
    while not assigned:
        consumer.poll(0.05)
        if time.perf_counter() - started > 60:
            raise RuntimeError(f"{subject.name}: no assignment after a minute")
    consumer.close()
    return (assigned[0] - started) * 1000


def ten_clients(subject: harness.Subject, group: str, protocol: str) -> float:
    """Seconds until ten consumers, made one after the other without a wait, have one partition of ten
    each.
    """
    started = time.perf_counter()
    consumers = [consumer_of(subject, group, protocol) for _ in range(10)]
    for consumer in consumers:
        consumer.subscribe(["ten"])
    try:
        while sorted(len(consumer.assignment()) for consumer in consumers) != [1] * 10:
            for consumer in consumers:
                consumer.poll(0)
            time.sleep(0.002)
            if time.perf_counter() - started > 60:
                raise RuntimeError(f"{subject.name}: ten members are not balanced after a minute")
        return time.perf_counter() - started
    finally:
        for consumer in consumers:
            consumer.close()


def hundred(figures: harness.Figures, subject: harness.Subject, group: str, protocol: str) -> None:
    crowd = Crowd(subject)

    def member() -> Member:
        if protocol == "classic":
            return ClassicMember(crowd, group, "many", PARTITIONS, session_ms=SESSION_MS)
        return ConsumerMember(crowd, group, "many", PARTITIONS)

    what = f"{protocol}: {MEMBERS} members, {PARTITIONS} partitions"
    try:
        members = [member() for _ in range(MEMBERS)]
        crowd.run(until=lambda: are_stable(members, PARTITIONS))
        members.pop().die()
        elapsed_s = crowd.run(until=lambda: are_stable(members, PARTITIONS))
        figures.add(f"{what}: one dies (session {SESSION_MS // 1000} s)", "s", subject.name, elapsed_s)
        with cpu.Stopwatch(subject) as watch:
            members += [member() for _ in range(NEWCOMERS)]
            elapsed_s = crowd.run(until=lambda: are_stable(members, PARTITIONS))
        figures.add(f"{what}: {NEWCOMERS} join at once", "s", subject.name, elapsed_s)
        figures.add(f"{what}: {NEWCOMERS} join at once: broker CPU", "ms", subject.name, watch.cpu_s * 1000)
    finally:
        crowd.close()


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=2)
    figures = harness.Figures("group_rebalance")
    for subject in subjects(options.against == "kafka"):
        for topic, partitions in (("one", 1), ("ten", 10), ("many", PARTITIONS)):
            harness.create_topic(subject, topic, partitions=partitions)
        with raw.connect(subject) as connection:
            wait_for_coordinator(connection, "warm")
        for protocol in PROTOCOLS:
            bound = "<= 40" if subject.name != "kafka" else ""
            one_client(subject, f"warm-{protocol}", protocol)
            for number in range(ROUNDS):
                elapsed_ms = one_client(subject, f"one-{protocol}-{number}", protocol)
                figures.add(
                    f"{protocol}: new client to assignment", "ms", subject.name, elapsed_ms, bound=bound
                )
        if subject.name == "sparklog auto":
            # a join waits for the disk then; the rest is waits of seconds, which a sync does not change
            continue
        for repeat in range(options.repeats):
            for protocol in PROTOCOLS:
                elapsed_s = ten_clients(subject, f"ten-{protocol}-{repeat}", protocol)
                figures.add(f"{protocol}: ten members at once", "s", subject.name, elapsed_s)
        for protocol in PROTOCOLS:
            hundred(figures, subject, f"hundred-{protocol}", protocol)
    figures.report(options)


if __name__ == "__main__":
    main()
