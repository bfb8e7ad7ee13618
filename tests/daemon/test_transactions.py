"""A transactional producer of ours and a broker that is killed under it, and started anew on the same
files.
"""

from pathlib import Path

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.failures import TransactionFatal
from sparklog.client.producer.producer import Producer
from sparklog.model import TopicPartition
from tests.daemon.broker_process import PATIENCE_S, BrokerProcess, broker

T0 = TopicPartition("t", 0)


def again(data_dir: Path, port: int) -> BrokerProcess:
    """The broker on the same files and the same port, ready."""
    process = BrokerProcess("--data-dir", str(data_dir), "--listen", f"127.0.0.1:{port}")
    process.address()
    return process


def committed(servers: str) -> list[str]:
    """Every value up to the end of the log, read-committed."""
    with (
        Consumer(bootstrap_servers=servers) as plain,
        Consumer(
            bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as reader,
    ):
        end = plain.end_offsets([T0])[T0]
        reader.assign([T0])
        found: list[str] = []
        for _ in range(PATIENCE_S * 5):
            found += [(record.value or b"").decode() for record in reader.poll(200)]
            if reader.position(T0) >= end:
                return found
    raise AssertionError(f"read-committed does not come to {end}")


@pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.long), 2])
def test_what_was_committed_and_nothing_else_is_read_though_the_broker_dies_in_between(
    tmp_path: Path, version: int
) -> None:
    process = broker(tmp_path)
    try:
        host, port = process.address()
        servers = f"{host}:{port}"
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"t": 1})
            if version < 2:
                admin.update_features({"transaction.version": version}, upgrade_type="safe-downgrade")
        expected: list[str] = []
        with Producer(
            bootstrap_servers=servers, transactional_id="x", retry_backoff_ms=20, reconnect_backoff_max_ms=100
        ) as producer:
            producer.init()
            for number in range(5):
                producer.begin()
                producer.send("t", f"{number}a").result(PATIENCE_S)
                if number == 1:  # with the transaction open, before more is written
                    process.__exit__(None, None, None)
                    process = again(tmp_path, port)
                producer.send("t", f"{number}b")
                if number in (2, 3):  # with everything written, before it is ended
                    producer.flush()
                    process.__exit__(None, None, None)
                    process = again(tmp_path, port)
                if number == 3:
                    producer.abort(1000 * PATIENCE_S)
                else:
                    producer.commit(1000 * PATIENCE_S)
                    expected += [f"{number}a", f"{number}b"]
        assert committed(servers) == expected
    finally:
        process.__exit__(None, None, None)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(tmp_path: Path) -> None:
    with broker(
        tmp_path, "--set", "transaction.abort.timed.out.transaction.cleanup.interval.ms=50"
    ) as process:
        servers = process.bootstrap_servers()
        with (
            Admin(bootstrap_servers=servers) as admin,
            Producer(bootstrap_servers=servers, transactional_id="x", transaction_timeout_ms=200) as producer,
        ):
            admin.create_topics({"t": 1})
            producer.init()
            producer.begin()
            producer.send("t", "slow").result(PATIENCE_S)
            assert committed(servers) == []
            with pytest.raises(TransactionFatal, match=r"transaction\.timeout\.ms"):
                producer.commit()
