"""The cost of a transaction of one record: transactions per second, and how long a commit takes, by client.

One producer, one partition, one after another; each commit returns before the next transaction begins, so
that the next one may have to wait until the one before has all its markers. Promised is that no client is
served slower than by a real Kafka in the same run.
"""

from collections.abc import Mapping

from benchmarks import cpu, harness, transaction_clients
from benchmarks.transaction_clients import Client, Load, Run

LOAD = Load(count=10_000, seconds_max=1.5, warm_up=150)
KAFKA = "kafka"

Runs = dict[tuple[str, str], list[Run]]  # by client and subject


def main() -> None:
    """Measure, and print the table."""
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("transactions")
    clients: dict[str, Client] = {
        "prepared frames (TV2)": transaction_clients.prepared,
        "our client (TV2)": transaction_clients.ours,
        "librdkafka (TV1)": transaction_clients.librdkafka,
    }
    if transaction_clients.has_java():
        clients["Java (TV2)"] = transaction_clients.java
    else:
        figures.note("no JDK, or no jars of Kafka: its own producer is left out")
    runs: Runs = {}
    for subject in harness.subjects(options, flush=("never", "auto")):
        for repeat in range(options.repeats):
            for name, client in clients.items():
                harness.create_topic(subject, topic := f"{name.split()[0].lower()}-{repeat}")
                _measure(figures, subject, name, client, topic, runs)
    _compare(figures, clients, runs)
    figures.note(
        "one record of 100 B each, acks=all; sparklog.ack.flush is `never` (as Kafka's default) first and "
        "then `auto`"
    )
    figures.report(options)


def _measure(
    figures: harness.Figures, subject: harness.Subject, name: str, client: Client, topic: str, runs: Runs
) -> None:
    with cpu.Stopwatch(subject) as watch:
        run = client(subject, topic, LOAD)
    runs.setdefault((name, subject.name), []).append(run)
    figures.add(f"{name}: transactions", "1/s", subject.name, run.per_second)
    figures.add(f"{name}: commit p50", "µs", subject.name, harness.percentile(run.commits_us, 50))
    figures.add(f"{name}: commit p99", "µs", subject.name, harness.percentile(run.commits_us, 99))
    # The warm-up included: it is served alike.
    cpu_us = watch.cpu_s / (len(run.commits_us) + LOAD.warm_up) * 1e6
    figures.add(f"{name}: broker CPU per transaction", "µs", subject.name, cpu_us)


def _compare(figures: harness.Figures, clients: Mapping[str, Client], runs: Runs) -> None:
    """The bounds: our medians over Kafka's."""
    for name in clients:
        theirs = runs.get((name, KAFKA))
        for (client, subject), ours in runs.items():
            if theirs is not None and client == name and subject != KAFKA:
                rate = _median([run.per_second for run in ours]) / _median([run.per_second for run in theirs])
                figures.add(f"{name}: transactions, ours / Kafka's", "×", subject, rate, bound=">= 1")
                commit = _median([_p50(run) for run in ours]) / _median([_p50(run) for run in theirs])
                figures.add(f"{name}: commit p50, ours / Kafka's", "×", subject, commit, bound="<= 1")


def _p50(run: Run) -> float:
    return harness.percentile(run.commits_us, 50)


def _median(samples: list[float]) -> float:
    return harness.percentile(samples, 50)


if __name__ == "__main__":
    main()
