"""A real process on a real file system that fills up: by produced records, and fully by other programs."""

import signal
from pathlib import Path

from sparklog import Producer, TopicPartition
from sparklog.errors import SparklogError
from tests.daemon.broker_process import stored
from tests.daemon.small_disk import SmallDisk

PARTITION = TopicPartition("t", 0)
DISK_BYTES = 24 << 20
RESERVE = 2 << 20


def produce_until_refused(bootstrap_servers: str) -> list[bytes]:
    """The records acknowledged before the broker refused."""
    acknowledged: list[bytes] = []
    with Producer(
        bootstrap_servers=bootstrap_servers, retries=0, linger_ms=0, enable_idempotence=False
    ) as producer:
        while True:
            value = b"%d-" % len(acknowledged) + b"x" * 500_000
            try:
                producer.send(PARTITION.topic, value=value, partition=PARTITION.partition).result(20)
            except SparklogError as error:
                refusal = str(error)
                break
            acknowledged.append(value)
    assert "KAFKA_STORAGE_ERROR" in refusal
    return acknowledged


def test_a_full_disk_serves_reads_over_restarts_and_a_patient_producer_is_served_when_there_is_room(
    tmp_path: Path,
) -> None:
    with SmallDisk(tmp_path / "disk", DISK_BYTES) as disk:
        settings = f"sparklog.disk.reserve.bytes={RESERVE}"
        with disk.broker(settings) as process:
            address = process.bootstrap_servers()
            acknowledged = produce_until_refused(address)
            assert len(acknowledged) > 30
            assert disk.room() >= RESERVE - (64 << 10)  # the broker's own writes
            assert stored(address, PARTITION) == acknowledged
            disk.fill()
            assert disk.room() == 0
            assert stored(address, PARTITION) == acknowledged
            _, _, said = process.end(signal.SIGKILL)
            assert said.count(" disk-full ") == 1
        with disk.broker(settings) as process:
            address = process.bootstrap_servers()
            assert stored(address, PARTITION) == acknowledged
            with Producer(bootstrap_servers=address) as producer:
                future = producer.send(PARTITION.topic, value=b"patient", partition=PARTITION.partition)
                assert stored(address, PARTITION) == acknowledged
                assert not future.done()
                disk.free(RESERVE)
                assert future.result(30).offset == len(acknowledged)
            code, _, said = process.end(signal.SIGTERM)
            assert code == 0
            assert "log-directory-offline" not in said
            assert said.count(" disk-full ") == said.count(" disk-no-longer-full ") == 1
