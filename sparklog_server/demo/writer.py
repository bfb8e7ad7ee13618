"""The writer, a process: `python -m sparklog_server.demo.writer SERVERS FLIGHTS FLIGHTS_PER_S`.

The flights of each day are one transaction, together with the id of the next flight in the topic
`flights-progress`. A transaction is committed as a whole or not at all: a writer that starts after `kill -9`
fences the one before it, which aborts its open transaction, and continues at that id.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog_server.demo.flights import PARTITIONS, TOPIC, days

PROGRESS: Final = "flights-progress"
LOG: Final = "writer.log"
TRANSACTIONAL_ID: Final = "flights-writer"
_LATEST: Final = -1


def write(servers: str, limit: int, flights_per_s: float) -> None:
    """Write the flights below `limit` that no transaction has committed yet, a day at a time."""
    encode = msgspec.json.Encoder().encode
    with Producer(bootstrap_servers=servers, transactional_id=TRANSACTIONAL_ID) as producer:
        producer.init()
        done = next_flight(servers)
        due_s = time.monotonic()
        for day in days(done, limit):
            producer.begin()
            producer.send_many(TOPIC, [encode(one) for one in day], [one.carrier.encode() for one in day])
            done += len(day)
            producer.send(PROGRESS, key=b"next flight", value=b"%d" % done)
            producer.flush()
            due_s += len(day) / flights_per_s
            if (early_s := due_s - time.monotonic()) > 0:
                time.sleep(early_s)
            else:
                due_s -= early_s  # after a break the writer keeps its pace
            producer.commit()


def next_flight(servers: str) -> int:
    """The id of the first flight that no committed transaction has."""
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


def start(servers: str, limit: int, flights_per_s: float, output: Path) -> subprocess.Popen[bytes]:
    """A writer as a process, which logs to a file of the directory."""
    command = (
        sys.executable,
        "-P",
        "-m",
        "sparklog_server.demo.writer",
        servers,
        str(limit),
        str(flights_per_s),
    )
    with (output / LOG).open("ab") as log:
        return subprocess.Popen(command, stderr=log)


def stopped_in_transaction(writer: subprocess.Popen[bytes], admin: Admin) -> int:
    """Stop the writer and return the number of its records in an open transaction. If there are none, or it
    has asked for the end of the transaction already, let it continue and return 0.
    """
    writer.send_signal(signal.SIGSTOP)
    # In this order: the coordinator's answer is after all that the writer has sent.
    count = log_end(admin) - last_stable(admin)
    states = admin.describe_transactions([TRANSACTIONAL_ID])
    if count > 0 and states[TRANSACTIONAL_ID].state == "Ongoing":
        return count
    writer.send_signal(signal.SIGCONT)
    return 0


def log_end(admin: Admin) -> int:
    """The log end offsets of the topic, added up."""
    return sum(one.offset for one in admin.list_offsets(_ends()).values())


def last_stable(admin: Admin) -> int:
    """The last stable offsets of the topic, added up."""
    found = admin.list_offsets(_ends(), isolation_level="read_committed")
    return sum(one.offset for one in found.values())


def _ends() -> dict[TopicPartition, int]:
    return {TopicPartition(TOPIC, number): _LATEST for number in range(PARTITIONS)}


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
