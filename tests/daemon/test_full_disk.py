"""A broker on a real file system that fills up."""

import signal
import time
from pathlib import Path

import pytest

from sparklog import Consumer, Producer, TopicPartition
from sparklog.errors import SparklogError
from tests.daemon.broker_process import BrokerProcess
from tests.daemon.small_disk import SmallDisk

PARTITION = TopicPartition("t", 0)
MIB = 1 << 20


def at(process: BrokerProcess) -> str:
    host, port = process.address()
    return f"{host}:{port}"


def stored(bootstrap_servers: str) -> list[bytes | None]:
    """Every value of the partition."""
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([PARTITION])
        end = consumer.end_offsets([PARTITION])[PARTITION]
        consumer.seek_to_beginning()
        values: list[bytes | None] = []
        while len(values) < end:
            values += [record.value for record in consumer.poll(timeout_ms=5_000)]
    return values


def fill(bootstrap_servers: str) -> list[bytes]:
    """Produce until the broker refuses; what it acknowledged."""
    acknowledged: list[bytes] = []
    with Producer(bootstrap_servers=bootstrap_servers, retries=0, linger_ms=0, enable_idempotence=False) as producer:
        try:
            while True:
                value = b"%d-" % len(acknowledged) + b"x" * 50_000
                producer.send(PARTITION.topic, value=value, partition=0).result(10)
                acknowledged.append(value)
        except SparklogError as error:
            assert "KAFKA_STORAGE_ERROR" in str(error) or "KAFKA_STORAGE_ERROR" in repr(error), error
    return acknowledged


def test_a_disk_filled_by_producers_serves_reads_over_a_restart_and_takes_records_again_when_there_is_room(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 8 * MIB) as disk:
        settings = ("sparklog.disk.reserve.bytes=2097152",)
        with disk.broker(*settings) as process:
            address = at(process)
            acknowledged = fill(address)
            assert len(acknowledged) > 50
            assert stored(address) == acknowledged
            process.end(signal.SIGKILL)
        with disk.broker(*settings) as process:
            address = at(process)
            assert stored(address) == acknowledged
            with Producer(bootstrap_servers=address, delivery_timeout_ms=30_000) as producer:
                disk.fill()
                future = producer.send(PARTITION.topic, value=b"patient", partition=0)
                print(stored(address) == acknowledged)
            code, _, err = process.end(signal.SIGTERM)
            print(code, err)
        t = time.time()
        with disk.broker(*settings) as process:
            address = at(process)
            print(time.time() - t)
            assert stored(address) == acknowledged
