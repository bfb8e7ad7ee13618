"""A million commits over ten thousand keys in one partition of `__consumer_offsets`: how soon a restarted
broker serves its groups again.

Run as `python -m benchmarks.group_reload [--json FILE]`. The broker is killed, so that it must also
recover the log; the broker itself reports the duration of the shard's load. Meanwhile a client asks
for API versions again and again: how long each answer took says for how long the loop was held (wall time,
the sockets' included; the control is the same client when nothing is loaded).
"""

import tempfile
import time
from pathlib import Path

from benchmarks import harness, raw
from benchmarks.group_members import ask, wait_for_coordinator
from benchmarks.reloading import answers_ms, tell_answers, while_loading
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

GROUPS, PARTITIONS, ROUNDS = 10, 1_000, 100
SETTINGS = {"offsets.topic.num.partitions": "1", "sparklog.ack.flush": "never"}


def fill(subject: harness.Subject) -> None:
    """A million commits, the last of each key the highest."""
    harness.create_topic(subject, "t", partitions=PARTITIONS)
    with raw.connect(subject) as connection:
        wait_for_coordinator(connection, "g0")
        for number in range(ROUNDS):
            parts = [OffsetCommitRequestPartition(index, number) for index in range(PARTITIONS)]
            for group in range(GROUPS):
                request = OffsetCommitRequest(
                    group_id=f"g{group}", topics=[OffsetCommitRequestTopic(name="t", partitions=parts)]
                )
                answer = ask(connection, request, 8, OffsetCommitResponse)
                assert isinstance(answer, OffsetCommitResponse)
                assert {part.error_code for part in answer.topics[0].partitions} == {0}


def measure(figures: harness.Figures, directory: Path) -> None:
    with harness.sparklog(SETTINGS, directory=directory) as subject:
        started, cpu_before = time.perf_counter(), 0.0
        with raw.connect(subject) as connection:
            elapsed_ms, held_ms = while_loading(connection, directory / "stderr", "__consumer_offsets-0")
            cpu_before = subject.cpu_s()
            wait_for_coordinator(connection, "g0")
            figures.add("shard loaded", "ms", "sparklog", elapsed_ms, bound="<= 1000")
            figures.add(
                "from the ready line to the groups' first answer",
                "ms",
                "sparklog",
                (time.perf_counter() - started) * 1000,
            )
            figures.add("broker CPU from its start on", "ms", "sparklog", cpu_before * 1000)
            tell_answers(figures, held_ms)
            fetched = ask(
                connection,
                OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g9", topics=None)]),
                8,
                OffsetFetchResponse,
            )
            assert isinstance(fetched, OffsetFetchResponse)
            parts = fetched.groups[0].topics[0].partitions
            assert {part.committed_offset for part in parts} == {ROUNDS - 1}
            assert len(parts) == PARTITIONS
            idle_ms = answers_ms(connection, seconds=1)
            figures.add(
                "another client's answers when nothing is loaded: p99",
                "ms",
                "sparklog",
                harness.percentile(idle_ms, 99),
            )
        subject.process.kill()


def main() -> None:
    options = harness.options(__doc__)
    figures = harness.Figures("group_reload")
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        with harness.sparklog(SETTINGS, directory=directory) as subject:
            fill(subject)
            subject.process.kill()
        for _ in range(options.repeats):
            measure(figures, directory)
    figures.report(options)


if __name__ == "__main__":
    main()
