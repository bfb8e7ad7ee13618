"""A member of a group in a separate process, which tests can kill: it prints the events of its library as
lines of JSON.

    python -m tests.compatibility.group_member LIBRARY SETTINGS
    SETTINGS: '{"bootstrap": …, "group": …, "topics": […] or "pattern": …, "settings": {…}}'

Events are `assigned`, `revoked` and `lost` with partitions as `topic:number`, `record` with [partition,
offset, value], and `committed` when all records read so far are committed. The member leaves
the group cleanly when its standard input ends. `group_member.js` is the same for kafkajs.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Iterable
from typing import Any

import aiokafka
import confluent_kafka
import kafka

STEP_S = 0.1
PATIENT_STEP_MS = (
    2_000  # kafka-python 3.0 may hang for good if a poll ends while the answer to its SyncGroup is on the way
)


def tell(**said: object) -> None:
    """Print one line for the parent process."""
    print(json.dumps(said), flush=True)


def named(partitions: Iterable[Any]) -> list[str]:
    """Partitions of any library, in order."""
    return sorted(f"{one.topic}:{one.partition}" for one in partitions)


def end_of_input() -> threading.Event:
    """Set when the standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def run_confluent(asked: dict[str, Any]) -> None:
    settings = {
        "bootstrap.servers": asked["bootstrap"],
        "group.id": asked["group"],
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer(settings | asked["settings"])
    topics = asked.get("topics") or [asked["pattern"]]
    consumer.subscribe(
        topics,
        on_assign=lambda _, partitions: tell(assigned=named(partitions)),
        on_revoke=lambda _, partitions: tell(revoked=named(partitions)),
        on_lost=lambda _, partitions: tell(lost=named(partitions)),
    )
    ended = end_of_input()
    while not ended.is_set():
        messages = [one for one in consumer.consume(500, STEP_S) if one.error() is None]
        for message in messages:
            value = message.value()
            tell(
                record=[
                    f"{message.topic()}:{message.partition()}",
                    message.offset(),
                    None if value is None else value.decode(),
                ]
            )
        if messages:
            try:
                consumer.commit(asynchronous=False)
                tell(committed=True)
            except confluent_kafka.KafkaException as refused:
                tell(refused=str(refused))
    consumer.close()


class _Told(aiokafka.ConsumerRebalanceListener, kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener for the two libraries that share its form."""

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        tell(revoked=named(revoked))

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        tell(assigned=named(assigned))

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        tell(lost=named(lost))


async def run_aiokafka(asked: dict[str, Any]) -> None:
    settings = {"auto_offset_reset": "earliest", "group_id": asked["group"]} | asked["settings"]
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=asked["bootstrap"], **settings)
    consumer.subscribe(topics=asked.get("topics") or (), pattern=asked.get("pattern"), listener=_Told())
    await consumer.start()
    ended = end_of_input()
    while not ended.is_set():
        batches = await consumer.getmany(timeout_ms=int(STEP_S * 1000))
        for partition, records in batches.items():
            for record in records:
                tell(
                    record=[f"{partition.topic}:{partition.partition}", record.offset, record.value.decode()]
                )
        if batches:
            try:
                await consumer.commit()
                tell(committed=True)
            except aiokafka.errors.KafkaError as refused:
                tell(refused=str(refused))
    await consumer.stop()


def run_kafka_python(asked: dict[str, Any]) -> None:
    settings = {"auto_offset_reset": "earliest", "group_id": asked["group"]} | asked["settings"]
    consumer = kafka.KafkaConsumer(bootstrap_servers=asked["bootstrap"], **settings)
    consumer.subscribe(topics=asked.get("topics") or (), pattern=asked.get("pattern"), listener=_Told())
    ended = end_of_input()
    while not ended.is_set():
        batches = consumer.poll(timeout_ms=PATIENT_STEP_MS)
        for partition, records in batches.items():
            for record in records:
                tell(
                    record=[f"{partition.topic}:{partition.partition}", record.offset, record.value.decode()]
                )
        if batches:
            try:
                consumer.commit()
                tell(committed=True)
            except kafka.errors.KafkaError as refused:
                tell(refused=str(refused))
    consumer.close()


def main() -> None:
    library, asked = sys.argv[1], json.loads(sys.argv[2])
    if library == "aiokafka":
        asyncio.run(run_aiokafka(asked))
    elif library == "kafka-python":
        run_kafka_python(asked)
    else:
        run_confluent(asked)
    tell(left=True)


if __name__ == "__main__":
    main()
