"""How long commands take, from the shell's point of view, and the processor time of each, against the same
tools of Kafka's.

Ten topics of one partition, and a group that committed for the 100 partitions of another. Python's
compiled files are there, as pip leaves them. The processor time counts if others share the
machine: the wall time contains them.
"""

import resource
import subprocess
import time
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from benchmarks import harness

RUNS = 10
TOPICS = 10
PARTITIONS = 100
GROUP = "reading"
WIDE = "wide"
BOUND_MS = 100
TOOLS = "org.apache.kafka.tools"


class Command(NamedTuple):
    """A command of ours, the same of Kafka's if there is one, and the text that its output contains how
    often.
    """

    ours: tuple[str, ...]
    kafkas: tuple[str, ...]
    expected: str
    count: int
    bound_ms: int = BOUND_MS


COMMANDS = (
    Command(("topics", "list"), (f"{TOOLS}.TopicCommand", "--list"), "listed-", TOPICS),
    Command(
        ("topics", "describe", WIDE),
        (f"{TOOLS}.TopicCommand", "--describe", "--topic", WIDE),
        "1",
        PARTITIONS,
    ),
    Command(
        ("groups", "describe", GROUP),
        (f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--describe", "--group", GROUP),
        GROUP,
        PARTITIONS,
        bound_ms=200,
    ),
    Command(("groups", "list"), (f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--list"), GROUP, 1),
    Command(
        ("configs", "describe", "--topic", WIDE, "--all"),
        ("kafka.admin.ConfigCommand", "--describe", "--topic", WIDE, "--all"),
        "segment.bytes",
        1,
    ),
    Command(("cluster", "describe"), (), "broker", 1),
    Command(("log-dirs", "describe"), (), WIDE, PARTITIONS),
    Command(("consume", WIDE, "--from", "beginning", "--exit-eof"), (), "", 0),
    Command(("--help",), (), "consume", 1),
)


def prepare(subject: harness.Subject) -> None:
    """Topics, and a group that has read nothing of 100 partitions."""
    for number in range(TOPICS):
        harness.create_topic(subject, f"listed-{number}", partitions=1)
    harness.create_topic(subject, WIDE, partitions=PARTITIONS)
    consumer = Consumer(
        {"bootstrap.servers": subject.bootstrap_servers, "group.id": GROUP, "enable.auto.commit": False}
    )
    consumer.commit(
        offsets=[TopicPartition(WIDE, number, 0) for number in range(PARTITIONS)], asynchronous=False
    )
    consumer.close()


def run(arguments: list[str], command: Command) -> tuple[float, float]:
    """Wall and processor time in ms of one run, whose answer is checked."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started_s = time.perf_counter()
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=True, timeout=60, env=harness.ENVIRONMENT
    )
    wall_ms = (time.perf_counter() - started_s) * 1000
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.count(command.expected) >= command.count, done.stdout
    return wall_ms, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=RUNS)
    figures = harness.Figures("cli")
    for subject in harness.subjects(options):
        prepare(subject)
        for command in COMMANDS:
            if subject.name == "kafka":
                if not command.kafkas:
                    continue
                arguments = harness.java(
                    command.kafkas[0], "--bootstrap-server", subject.bootstrap_servers, *command.kafkas[1:]
                )
            else:
                reach = (
                    () if command.ours == ("--help",) else ("--bootstrap-server", subject.bootstrap_servers)
                )
                arguments = [*harness.sparklog_command(), *command.ours, *reach]
            name = " ".join(command.ours[:2])
            run(arguments, command)
            for _ in range(options.repeats):
                wall_ms, cpu_ms = run(arguments, command)
                figures.add(name, "ms", subject.name, wall_ms, bound=f"<= {command.bound_ms}")
                figures.add(f"{name}, processor", "ms", subject.name, cpu_ms)
    figures.report(options)


if __name__ == "__main__":
    main()
