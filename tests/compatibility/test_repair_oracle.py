"""Kafka's own tool reads a log that was repaired: batches without records stand where something was taken
out.
"""

import re
from pathlib import Path

import pytest

from tests.compatibility.kafka_tools import DUMP_LOG, kafka_tool
from tests.log_tools.corruption import LOG, files_of, repaired, served, world_over, zero

pytestmark = pytest.mark.compat


def test_dump_log_accepts_a_repaired_log_and_its_indexes(tmp_path: Path) -> None:
    before = served(is_clean=True)
    files = dict(before.files)
    zero(".log", 1, 0.45, 0.55)(files)
    disk = world_over(files).disk
    repaired(disk, cluster_id="the-cluster-of-the-test")
    for path, content in files_of(disk).items():
        if path.startswith(f"{LOG}/"):
            (tmp_path / path.rpartition("/")[2]).write_bytes(content)
    paths = [
        *sorted(tmp_path.glob("*.log")),
        *sorted(tmp_path.glob("*.index")),
        *sorted(tmp_path.glob("*.timeindex")),
    ]
    dumped = kafka_tool(DUMP_LOG, "--files", ",".join(map(str, paths)))
    batches = re.findall(
        r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isvalid: (\w+)$", dumped, re.MULTILINE
    )
    assert {valid for *_, valid in batches} == {"true"}
    assert [int(base) for base, *_ in batches[1:]] == [int(last) + 1 for _, last, *_ in batches[:-1]]
    assert [count for *_, count, _ in batches].count("0") == 1
    assert int(batches[-1][1]) == before.end - 1
