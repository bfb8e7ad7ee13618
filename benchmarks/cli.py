"""How long a command takes, from the shell's point of view: `topics list` with ten topics, against the same tool of Kafka's.

Python's compiled files are there, as pip leaves them.
"""

import subprocess
import time

from benchmarks import harness

RUNS = 10
TOPICS = 10


def listing(subject: harness.Subject) -> list[str]:
    """The command that lists the topics of `subject`, each by its own tool."""
    if subject.name == "kafka":
        return harness.java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", subject.bootstrap_servers, "--list")
    return [*harness.sparklog_command(), "topics", "list", "--bootstrap-server", subject.bootstrap_servers]


def main() -> None:
    options = harness.options(__doc__, against=True, repeats=RUNS)
    figures = harness.Figures("cli")
    for subject in harness.subjects(options):
        for number in range(TOPICS):
            harness.create_topic(subject, f"listed-{number}", partitions=1)
        command = listing(subject)
        subprocess.run(command, capture_output=True, check=True, timeout=60, env=harness.ENVIRONMENT)
        for _ in range(options.repeats):
            started_s = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=harness.ENVIRONMENT)
            wall_ms = (time.perf_counter() - started_s) * 1000
            assert done.stdout.count("listed-") == TOPICS, done.stdout
            figures.add("topics list", "ms", subject.name, wall_ms, bound="<= 150")
    figures.report(options)


if __name__ == "__main__":
    main()
