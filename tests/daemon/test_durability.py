"""Acknowledged records are served again, after a clean end, after `kill -9`, and after the disk took no
more.
"""

import resource
import signal
from pathlib import Path

import pytest

from sparklog import Producer, TopicPartition
from sparklog.errors import SparklogError
from tests.daemon.broker_process import broker, stored

PARTITION = TopicPartition("kept", 0)


def acknowledge_until_refused(producer: Producer, acknowledged: list[bytes]) -> bool:
    """Send one record after the other and note those acknowledged, until one is refused; False if none
    ever is.
    """
    for number in range(1_000):
        value = b"%d-" % number + b"x" * 100_000
        try:
            producer.send(PARTITION.topic, value=value, partition=0).result(10)
        except SparklogError:
            return True
        acknowledged.append(value)
    return False


@pytest.mark.parametrize("flush", ["auto", "never"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_every_acknowledged_record_is_there_after_the_process_ended(
    tmp_path: Path, end: signal.Signals, flush: str
) -> None:
    acknowledged: list[bytes] = []
    for life in range(3):
        with broker(
            tmp_path, "--set", f"sparklog.ack.flush={flush}", "--set", "log.segment.bytes=1048576"
        ) as process:
            address = process.bootstrap_servers()
            if life:
                assert stored(address, PARTITION)[: len(acknowledged)] == acknowledged
            with Producer(
                bootstrap_servers=address, delivery_timeout_ms=10_000, request_timeout_ms=5_000
            ) as producer:
                values = [b"%d-%d-" % (life, number) + b"x" * 3_000 for number in range(500)]
                for future in [producer.send(PARTITION.topic, value=value, partition=0) for value in values]:
                    future.result(10)
            acknowledged += values
            process.end(end)
    with broker(tmp_path) as process:
        assert stored(process.bootstrap_servers(), PARTITION) == acknowledged


def test_a_disk_that_takes_no_more_is_told_to_the_producer_and_costs_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    acknowledged: list[bytes] = []
    with broker(tmp_path) as process:
        address = process.bootstrap_servers()
        # A file larger than this fails to grow (EFBIG): the nearest thing to a full disk that needs no mount.
        resource.prlimit(process.child.pid, resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
        with Producer(
            bootstrap_servers=address,
            retries=0,
            delivery_timeout_ms=3_000,
            request_timeout_ms=2_000,
            linger_ms=0,
        ) as producer:
            assert acknowledge_until_refused(producer, acknowledged)
        assert process.child.poll() is None
        process.end(signal.SIGKILL)
    assert 20 < len(acknowledged) < 50
    with broker(tmp_path) as process:
        assert stored(process.bootstrap_servers(), PARTITION)[: len(acknowledged)] == acknowledged
