"""A real process whose disk fails: its log, the partitions it serves, and a start after the repair
brings back.
"""

import errno
import signal
from pathlib import Path

import pytest

from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog.errors import SparklogError
from tests.daemon.failing_calls import FailingCalls

LARGE = b"x" * 200_000


def create(address: str, partitions: int) -> None:
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics({"t": partitions})


def send(address: str, partition: int, value: bytes = LARGE) -> str:
    """Produce one record; the error's text, empty if it was acknowledged."""
    with Producer(
        bootstrap_servers=address,
        retries=0,
        enable_idempotence=False,
        delivery_timeout_ms=2_000,
        request_timeout_ms=1_500,
        linger_ms=0,
    ) as producer:
        try:
            producer.send("t", value=value, partition=partition).result(10)
        except SparklogError as error:
            return str(error)
    return ""


def read(address: str, partition: int, *, patience_ms: int = 5_000) -> list[bytes | None]:
    """The first records of a partition that come within that time."""
    with Consumer(bootstrap_servers=address) as consumer:
        consumer.assign([TopicPartition("t", partition)])
        consumer.seek_to_beginning()
        return [record.value for record in consumer.poll(timeout_ms=patience_ms)]


def leaders(address: str) -> list[int]:
    with Admin(bootstrap_servers=address) as admin:
        return [part.leader for part in admin.describe_topics(["t"])["t"].partitions]


def homes(directories: list[Path]) -> list[int]:
    """In which of the directories each of four partitions lies."""
    return [
        next(index for index, directory in enumerate(directories) if (directory / f"t-{part}").is_dir())
        for part in range(4)
    ]


def test_a_file_that_cannot_be_read_and_one_that_cannot_be_synced_cost_no_more_than_they_must(
    tmp_path: Path,
) -> None:
    failing, directories = FailingCalls(tmp_path), [tmp_path / "a", tmp_path / "b"]
    with failing.broker(*directories) as process:
        address = process.bootstrap_servers()
        create(address, 4)
        assert [send(address, partition) for partition in range(4)] == [""] * 4
        lies = homes(directories)
        unread = lies.index(0)  # beside the metadata log
        failing.fail(("read", f"/t-{unread}/", errno.EIO))
        assert read(address, unread, patience_ms=500) == []
        assert [read(address, partition) for partition in range(4) if partition != unread] == [[LARGE]] * 3
        failing.fail(("fsync", f"/t-{lies.index(1)}/", errno.EIO))
        assert send(address, lies.index(1)) != ""
        gone = [home == 1 or partition == unread for partition, home in enumerate(lies)]
        assert leaders(address) == [-1 if is_gone else 1 for is_gone in gone]
        assert [send(address, partition) for partition, is_gone in enumerate(gone) if not is_gone] == [
            ""
        ] * gone.count(False)
        failing.fail()
        code, _, said = process.end(signal.SIGTERM)
    assert code == 0
    assert f"partition=t-{unread}" in said
    assert f"log-directory-offline path={directories[1]}" in said
    assert said.count("Input/output error") == 2
    assert said.count("kernel's log") == 2  # the remedy
    with failing.broker(*directories) as process:
        address = process.bootstrap_servers()
        assert [read(address, partition)[0] for partition in range(4)] == [LARGE] * 4
        assert leaders(address) == [1] * 4


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_disk_that_lets_nothing_be_written_costs_no_record_and_says_what_to_do(
    tmp_path: Path, number: int
) -> None:
    failing, directory, metadata = FailingCalls(tmp_path), tmp_path / "data", tmp_path / "metadata"
    writes = [(call, "/data", number) for call in ("open", "pwrite", "ftruncate", "rename", "unlink")]
    remedy = "mount it read-write" if number == errno.EROFS else "give the user of the broker the right"
    with failing.broker(directory, metadata_log_dir=metadata) as process:
        address = process.bootstrap_servers()
        create(address, 1)
        assert send(address, 0, b"kept") == ""
        failing.fail(*writes)
        assert "KAFKA_STORAGE_ERROR" in send(address, 0, b"refused")
        assert leaders(address) == [-1]
        code, _, said = process.end(signal.SIGTERM)
    assert code == 0
    assert "log-directory-offline" in said
    assert remedy in said
    assert "Traceback" not in said
    with failing.broker(directory, metadata_log_dir=metadata) as process:
        code, out, said = process.end()
    assert (code, out) == (1, "")
    assert remedy in said
    assert "Traceback" not in said
    failing.fail()
    with failing.broker(directory, metadata_log_dir=metadata) as process:
        assert read(process.bootstrap_servers(), 0) == [b"kept"]


def test_a_node_whose_metadata_log_cannot_be_written_ends_and_says_what_to_do(tmp_path: Path) -> None:
    failing, directory = FailingCalls(tmp_path), tmp_path / "data"
    with failing.broker(directory) as process:
        address = process.bootstrap_servers()
        create(address, 1)
        assert send(address, 0, b"kept") == ""
        failing.fail(*[(call, "/data", errno.EROFS) for call in ("open", "pwrite", "ftruncate", "rename")])
        code, _, said = process.end()  # with the next record, which comes twice a second
    assert code == 1
    assert "mount it read-write" in said
    assert "Traceback" not in said
    failing.fail()
    with failing.broker(directory) as process:
        assert read(process.bootstrap_servers(), 0) == [b"kept"]
