"""Producer and consumer without Spark: `python -m examples.clients`."""

from collections import Counter

import sparklog
from sparklog import Consumer, Producer


def send_readings(servers: str, topic: str) -> None:
    """A hundred readings of four sensors; `flush` returns when the broker has all of them, or raises the
    broker's error.
    """
    with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        for number in range(100):
            producer.send(topic, key=f"sensor {number % 4}".encode(), value=f"{number}".encode())
        producer.flush()


def count_readings(servers: str, topic: str, group: str, expected: int) -> Counter[str]:
    """Reads `expected` records as a member of a group, and commits: the next member goes on behind them."""
    counts: Counter[str] = Counter()
    with Consumer(
        bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([topic])
        while counts.total() < expected:
            counts.update(
                record.key.decode() for record in consumer.poll(timeout_ms=1000) if record.key is not None
            )
        consumer.commit()
    return counts


def main() -> None:
    with sparklog.embedded() as broker:
        send_readings(broker.bootstrap_servers, "readings")
        print(dict(count_readings(broker.bootstrap_servers, "readings", "examples", 100)))


if __name__ == "__main__":
    main()
