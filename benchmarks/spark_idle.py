"""The requests per second of an idle stream, and the delay until it sees a record: the planning side alone,
without Spark's JVM.

    idle      `latestOffset` called repeatedly, 10 ms apart as Spark does: requests sent per second, and the
              duration of a call
    wakes     a record is produced while `latestOffset` waits, or between two calls: the time from its
              acknowledgement to the reply
    planning  a micro-batch of one record: `latestOffset` with a new record, and `partitions`

Requests are counted as the client sends them. Durability is the broker's default.
"""

import statistics
import threading
import time
from typing import Any

from benchmarks import harness
from sparklog import Admin, Producer
from sparklog.client.transport.connection import Connection
from sparklog.spark.source import SparklogSource
from sparklog.spark.stream_reader import StreamReader

IDLE_S = 5.0
POLLING_DELAY_S = 0.01
RECORDS = 60
PARTITIONS = 4


class Counted:
    """Counts the requests of every connection of this process while it is entered."""

    def __init__(self) -> None:
        self.requests = 0
        self._send = Connection.request

    def __enter__(self) -> "Counted":
        def counting(connection: Connection, *arguments: Any, **options: Any) -> None:
            self.requests += 1
            self._send(connection, *arguments, **options)

        Connection.request = counting  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        Connection.request = self._send  # type: ignore[method-assign]


def reader(servers: str, topic: str) -> StreamReader:
    """A stream of the topic, as Spark makes it."""
    source = SparklogSource({"kafka.bootstrap.servers": servers, "subscribe": topic})
    made = source.streamReader(source.schema())
    assert isinstance(made, StreamReader)
    return made


def idle(stream: StreamReader, figures: harness.Figures, subject: str) -> None:
    """Asked for `IDLE_S` with nothing to tell."""
    at = stream.initialOffset()
    stream.latestOffset(at)
    took: list[float] = []
    with Counted() as counted:
        began = time.perf_counter()
        while time.perf_counter() - began < IDLE_S:
            asked = time.perf_counter()
            assert stream.latestOffset(at) == at
            took.append(time.perf_counter() - asked)
            time.sleep(POLLING_DELAY_S)
        elapsed_s = time.perf_counter() - began
    figures.add("requests of an idle stream", "1/s", subject, counted.requests / elapsed_s, bound="<= 5")
    figures.add("an idle call, p50", "ms", subject, statistics.median(took) * 1000, bound="<= 60")
    figures.add("an idle call, longest", "ms", subject, max(took) * 1000)


def wakes(
    stream: StreamReader, producer: Producer, topic: str, figures: harness.Figures, subject: str
) -> None:
    """Records one at a time, each sent while the stream waits."""
    at = stream.initialOffset()
    heard: list[float] = []
    planned: list[float] = []
    for number in range(RECORDS):
        acknowledged: list[float] = []

        def send(number: int = number, acknowledged: list[float] = acknowledged) -> None:
            time.sleep(0.005 + 0.01 * (number % 8))
            producer.send(topic, value=b"v", partition=number % PARTITIONS)
            producer.flush()
            acknowledged.append(time.perf_counter())

        sender = threading.Thread(target=send)
        sender.start()
        while (end := stream.latestOffset(at)) == at:
            time.sleep(POLLING_DELAY_S)
        told = time.perf_counter()
        stream.partitions(at, end)
        planned.append(time.perf_counter() - told)
        sender.join()
        heard.append(max(0.0, told - acknowledged[0]))
        at = end
    quantiles = statistics.quantiles(heard, n=100)
    figures.add("acknowledged → answered, p50", "ms", subject, statistics.median(heard) * 1000)
    figures.add("acknowledged → answered, p99", "ms", subject, quantiles[98] * 1000)
    figures.add("partitions of one record, p50", "ms", subject, statistics.median(planned) * 1000)


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("spark_idle")
    makers = [harness.sparklog] + ([harness.kafka] if options.against else [])
    for repeat in range(options.repeats):
        for make in makers:
            with make() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                topic = f"idle-{repeat}"
                admin.create_topics({topic: PARTITIONS})
                stream = reader(broker.bootstrap_servers, topic)
                with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
                    idle(stream, figures, broker.name)
                    wakes(stream, producer, topic, figures, broker.name)
                stream.stop()
    figures.report(options)


if __name__ == "__main__":
    main()
