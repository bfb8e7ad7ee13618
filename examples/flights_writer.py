"""The writer of the flights demo, a process: `python -m examples.flights_writer SERVERS FILE RATE`.

The flights of each day are one transaction, together with the number of the next flight in the compacted
topic `flights-progress`. A transaction is committed as a whole or not at all: a writer that starts after
`kill -9` fences the one before it, which aborts its open transaction, and continues at that number.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from sparklog import Admin, Consumer, Producer, TopicPartition

TOPIC, PROGRESS = "flights", "flights-progress"
PARTITIONS = 4
TRANSACTIONAL_ID = "flights-writer"
_PROJECT = Path(__file__).resolve().parent.parent
_LATEST = -1
_ASKED_EVERY_S = 0.01


class WriterEnded(Exception):
    """A writer ended on its own before it was to; the message has its exit code."""


class Killed(NamedTuple):
    """What `kill -9` did: at a time of `time.monotonic`, with so many records in an open transaction; the
    next writer had written `back_s` seconds later.
    """

    at_s: float
    uncommitted: int
    back_s: float


class _Flight(msgspec.Struct):
    carrier: str
    time_hour: str


def write(servers: str, path: Path, flights_per_s: float) -> None:
    """Write the flights of the file that no transaction has committed yet, a day at a time."""
    with Producer(bootstrap_servers=servers, transactional_id=TRANSACTIONAL_ID) as producer:
        producer.init()
        done = next_flight(servers)
        due_s = time.monotonic()
        with path.open("rb") as lines:
            for keys, values in _days(islice(lines, done, None)):
                producer.begin()
                producer.send_many(TOPIC, values, keys)
                done += len(values)
                producer.send(PROGRESS, key=b"next flight", value=b"%d" % done)
                producer.flush()
                due_s += len(values) / flights_per_s
                time.sleep(max(0.0, due_s - time.monotonic()))
                producer.commit()


def next_flight(servers: str) -> int:
    """The number of the first flight that no committed transaction has."""
    partition = TopicPartition(PROGRESS, 0)
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        number = 0
        while consumer.position(partition) < end:
            for record in consumer.poll(timeout_ms=1000):
                number = int(record.value or b"0")
    return number


def _days(lines: Iterable[bytes]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Keys and values of each day."""
    decoder = msgspec.json.Decoder(_Flight)
    flights = ((decoder.decode(line), line.rstrip()) for line in lines)
    for _, group in groupby(flights, key=lambda flight: flight[0].time_hour[:10]):
        day = list(group)
        yield [flight.carrier.encode() for flight, _ in day], [line for _, line in day]


def write_and_kill_once(
    servers: str, path: Path, flights_per_s: float, *, kill_at: int, say: Callable[[str], None] = print
) -> Killed:
    """Run a writer, kill it within a transaction once the log has `kill_at` records, and run another one.
    Returns when that has written the last flight.
    """
    with Admin(bootstrap_servers=servers) as admin:
        first = _start(servers, path, flights_per_s)
        try:
            while log_end(admin) < kill_at or not _stopped_in_transaction(first, admin):
                if first.poll() is not None:
                    raise WriterEnded(f"the writer ended with {first.returncode} before it was killed")
                time.sleep(_ASKED_EVERY_S)
        finally:
            first.kill()
            first.wait()
        at_s, left_open, end = time.monotonic(), uncommitted(admin), log_end(admin)
        say(f"the writer was killed (SIGKILL) with {left_open:,} flights in an open transaction")
        second = _start(servers, path, flights_per_s)
        try:
            # Each partition of the aborted transaction gets a marker, which is no flight.
            while log_end(admin) <= end + PARTITIONS and second.poll() is None:
                time.sleep(_ASKED_EVERY_S)
            back_s = time.monotonic() - at_s
            say(f"the next writer continued {back_s:.2f} s later")
            if second.wait() != 0:
                raise WriterEnded(f"the second writer ended with {second.returncode}")
        finally:
            second.kill()
            second.wait()
    return Killed(at_s, left_open, back_s)


def _stopped_in_transaction(writer: subprocess.Popen[bytes], admin: Admin) -> bool:
    """Stop the writer; if it has no transaction open, or has asked for the end of it already, let it
    continue.
    """
    writer.send_signal(signal.SIGSTOP)
    # In this order: the coordinator's answer is after all that the writer has sent.
    if (
        uncommitted(admin)
        and admin.describe_transactions([TRANSACTIONAL_ID])[TRANSACTIONAL_ID].state == "Ongoing"
    ):
        return True
    writer.send_signal(signal.SIGCONT)
    return False


def log_end(admin: Admin) -> int:
    """The log end offsets of the topic, added up."""
    wanted = {TopicPartition(TOPIC, number): _LATEST for number in range(PARTITIONS)}
    return sum(listed.offset for listed in admin.list_offsets(wanted).values())


def last_stable(admin: Admin) -> int:
    """The last stable offsets of the topic, added up."""
    wanted = {TopicPartition(TOPIC, number): _LATEST for number in range(PARTITIONS)}
    found = admin.list_offsets(wanted, isolation_level="read_committed")
    return sum(listed.offset for listed in found.values())


def uncommitted(admin: Admin) -> int:
    """The records from the open transaction on, 0 if there is none."""
    end = log_end(admin)  # first: what lies between is then still open when the second answer comes
    return max(0, end - last_stable(admin))


def _start(servers: str, path: Path, flights_per_s: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "examples.flights_writer", servers, str(path), str(flights_per_s)]
    return subprocess.Popen(command, cwd=_PROJECT, env={**os.environ, "PYTHONPATH": str(_PROJECT)})


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
