"""A hundred thousand transactional ids in one partition of `__transaction_state`: how soon a restarted
broker serves their producers again.

Run as `python -m benchmarks.transaction_reload [--json FILE]`. Every tenth id has a transaction open. The
broker is killed, so that it must also recover the log; the broker itself reports the duration of the
shard's load. Meanwhile a client asks for API versions again and again: how long each answer took says for
how long the loop was held (the control is the same client when nothing is loaded).
"""

import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks import harness, raw
from benchmarks.group_members import framed
from benchmarks.reloading import answers_ms, tell_answers, while_loading
from benchmarks.transaction_clients import begin
from sparklog.errors import ErrorCode
from sparklog.wire.header import decode_reply
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.schema import Message

R = TypeVar("R", bound=Message)

IDS, OPEN_ONE_IN = 100_000, 10
IN_FLIGHT = 50
TIMEOUT_MS = 900_000  # the longest that a broker allows unless told otherwise: none is over before the end
SETTINGS = {"transaction.state.log.num.partitions": "1", "sparklog.ack.flush": "never"}
_INIT, _ADD = 4, 3


def fill(subject: harness.Subject) -> None:
    """All the ids, and the transactions that are open."""
    harness.create_topic(subject, "t")
    with raw.connect(subject) as connection:
        begin(connection, "id-0")
        for first in range(0, IDS, IN_FLIGHT):
            names = [f"id-{number}" for number in range(first, first + IN_FLIGHT)]
            identities = _producer_ids(connection, names)
            opened = [
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=name,
                    v3_and_below_producer_id=identities[name][0],
                    v3_and_below_producer_epoch=identities[name][1],
                    v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0])],
                )
                for name in names[::OPEN_ONE_IN]
            ]
            for answer in _exchange(connection, opened, _ADD, AddPartitionsToTxnResponse):
                assert (
                    answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
                )


def _producer_ids(connection: socket.socket, names: list[str]) -> dict[str, tuple[int, int]]:
    """Producer id and epoch of each; a request is repeated while the broker has no ids left."""
    found: dict[str, tuple[int, int]] = {}
    while missing := [name for name in names if name not in found]:
        requests = [InitProducerIdRequest(name, TIMEOUT_MS) for name in missing]
        for name, answer in zip(
            missing, _exchange(connection, requests, _INIT, InitProducerIdResponse), strict=True
        ):
            if answer.error_code == 0:
                found[name] = answer.producer_id, answer.producer_epoch
            elif answer.error_code not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.CONCURRENT_TRANSACTIONS,
            ):
                raise RuntimeError(f"InitProducerId answered with error {answer.error_code}")
    return found


def _exchange(
    connection: socket.socket, requests: Sequence[Message], version: int, reply: type[R]
) -> list[R]:
    connection.sendall(b"".join(framed(request, version) for request in requests))
    received = b""
    answers: list[R] = []
    while len(answers) < len(requests):
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4]):
            more = connection.recv(1 << 20)
            if not more:
                raise ConnectionError("the broker closed the connection")
            received += more
        end = 4 + int.from_bytes(received[:4])
        answers.append(decode_reply(reply, version, received[4:end])[1])
        received = received[end:]
    return answers


def measure(figures: harness.Figures, directory: Path) -> None:
    """One restart; the broker is killed again."""
    with harness.sparklog(SETTINGS, directory=directory) as subject:
        started = time.perf_counter()
        with raw.connect(subject) as connection:
            elapsed_ms, held_ms = while_loading(connection, directory / "stderr", "__transaction_state-0")
            cpu_s = subject.cpu_s()
            begin(connection, f"id-{IDS - 1}")
            served_ms = (time.perf_counter() - started) * 1000
            figures.add("shard loaded", "ms", "sparklog", elapsed_ms, bound="<= 2000")
            figures.add("from the ready line to a producer's first answer", "ms", "sparklog", served_ms)
            figures.add("broker CPU from its start on", "ms", "sparklog", cpu_s * 1000)
            tell_answers(figures, held_ms)
            idle_ms = answers_ms(connection, seconds=1)
            figures.add(
                "another client's answers when nothing is loaded: p99",
                "ms",
                "sparklog",
                harness.percentile(idle_ms, 99),
            )
            figures.add(
                "another client's answers when nothing is loaded: max", "ms", "sparklog", max(idle_ms)
            )
        subject.process.kill()


def main() -> None:
    """Measure, and print the table."""
    options = harness.options(__doc__)
    figures = harness.Figures("transaction_reload")
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-", ignore_cleanup_errors=True) as made:
        directory = Path(made)
        with harness.sparklog(SETTINGS, directory=directory) as subject:
            fill(subject)
            subject.process.kill()
        for _ in range(options.repeats):
            measure(figures, directory)
    figures.note(f"{IDS} transactional ids in one partition, every {OPEN_ONE_IN}th with an open transaction")
    figures.report(options)


if __name__ == "__main__":
    main()
