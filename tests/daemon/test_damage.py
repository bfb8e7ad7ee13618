"""A bit flipped, or a file cut, under a broker that was killed: refused with file, byte and remedy, or cut
where no sync vouched for it.
"""

import select
import signal
import time
from pathlib import Path

import pytest

from sparklog import Producer
from sparklog.errors import SparklogError
from sparklog.record.batch import iterate_headers
from tests.daemon.broker_process import PATIENCE_S, broker

LOG = f"{0:020d}.log"
TOPICS = ("t1", "t2", "t3", "t4")


def written_down(path: Path, line: str) -> bool:
    """Whether a checkpoint has this line, which is written within a second."""
    return path.exists() and line in path.read_text().splitlines()


def wait_until_written(path: Path, line: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not written_down(path, line):
        assert time.monotonic() < deadline_s, path.read_text() if path.exists() else path
        select.select([], [], [], 0.05)


def killed(data: Path) -> list[tuple[int, int]]:
    """A broker had four topics with a record each, all of it written down, and was killed; (position,
    offset) of the metadata's batches.
    """
    with broker(data) as process:
        host, port = process.address()
        with Producer(bootstrap_servers=f"{host}:{port}") as producer:
            for topic in TOPICS:
                producer.send(topic, value=b"kept", partition=0).result(10)
        for topic in TOPICS:
            wait_until_written(data / "recovery-point-offset-checkpoint", f"{topic} 0 1")
        content = (data / "__cluster_metadata-0" / LOG).read_bytes()
        batches = [(position, header.base_offset) for position, header in iterate_headers(content)]
        end = max(header.next_offset for _, header in iterate_headers(content))
        wait_until_written(
            data / "__cluster_metadata-0" / "recovery-point-checkpoint", f"__cluster_metadata 0 {end}"
        )
        process.end(signal.SIGKILL)
    return batches


def flip(path: Path, position: int) -> bytes:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    return bytes(content)


def test_a_flipped_bit_in_the_metadata_log_is_refused_below_the_recovery_point_and_cut_above_it(
    tmp_path: Path,
) -> None:
    batches = killed(tmp_path)
    directory = tmp_path / "__cluster_metadata-0"
    position, offset = batches[len(batches) // 2]
    content = flip(directory / LOG, position + 64)
    with broker(tmp_path) as process:
        code, out, err = process.end()
    assert (code, out) == (1, "")
    for part in (
        f"{directory / LOG}",
        f"at byte {position}",
        f"offsets [{offset}, ",
        f"sparklog log repair {tmp_path}",
    ):
        assert err.count(part) == 1, err
    assert (directory / LOG).read_bytes() == content

    (directory / "recovery-point-checkpoint").unlink()
    with broker(tmp_path) as process:
        process.address()
        _, _, err = process.end(signal.SIGTERM)
    (line,) = [line for line in err.splitlines() if " log-cut " in line]
    (copy,) = directory.glob("*.cut-*")
    assert copy.read_bytes() == content[position:]
    for part in (
        "partition=__cluster_metadata-0",
        f"position={position}",
        f"offset={offset}",
        "sound_batches_follow=true",
        f"copy={copy}",
    ):
        assert part in line


def test_a_data_log_that_is_cut_or_deleted_takes_its_partition_offline_and_no_other(tmp_path: Path) -> None:
    killed(tmp_path)
    (tmp_path / "t1-0" / LOG).write_bytes(b"")
    (tmp_path / "t2-0" / LOG).unlink()
    for path in (tmp_path / "t3-0").iterdir():
        path.unlink()
    (tmp_path / "t3-0").rmdir()
    with broker(tmp_path) as process:
        host, port = process.address()
        with Producer(
            bootstrap_servers=f"{host}:{port}", retries=0, delivery_timeout_ms=1_000, request_timeout_ms=500
        ) as producer:
            assert producer.send("t4", value=b"x", partition=0).result(10).offset == 1
            for topic in TOPICS[:3]:
                with pytest.raises(SparklogError):
                    producer.send(topic, value=b"x", partition=0).result(10)
        _, _, err = process.end(signal.SIGTERM)
    for partition in ("t1-0", "t2-0", "t3-0"):
        (line,) = [line for line in err.splitlines() if f" partition-offline partition={partition} " in line]
        assert f"sparklog log repair {tmp_path}" in line
        assert "offsets [0, 1) are lost" in line
