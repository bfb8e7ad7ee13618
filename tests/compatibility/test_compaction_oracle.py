"""Kafka's own tool reads compacted logs: batches, records, offsets, and both indexes."""

import re
from pathlib import Path
from random import Random

import pytest

from sparklog.record.batch import decode_records
from sparklog.record.compression import Codec
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.recovery.log_loader import Checkpointed
from tests.compatibility import kafka_tools as tools
from tests.compatibility.kafka_tools import kafka_tool
from tests.log.compacting import compact
from tests.log.logs import EPOCH, NOW, START_MS, T0, TOPIC_ID, batch, read_all, sync
from tests.log.test_compaction import fill

pytestmark = pytest.mark.compat


def test_dump_log_reads_compacted_segments_of_all_codecs(tmp_path: Path) -> None:
    disk = OsDisk()
    directory = tmp_path / "t-0"
    directory.mkdir()
    settings = LogConfig(
        segment_bytes=100_000, index_interval_bytes=1000, is_compacted=True, delete_retention_ms=1000
    )
    log = PartitionLog.open(disk, str(directory), T0, TOPIC_ID, settings, now=NOW)
    log.append(batch(3, producer_id=9, key=b"key-1"), EPOCH, NOW)
    fill(log, Random(1), count=4000, keys=900, codecs=tuple(Codec))
    sync(disk, log)
    for now_ms in (0, 500):
        compact(disk, log, now_ms=START_MS + now_ms)
    log.close(NOW)
    log = PartitionLog.open(
        disk,
        str(directory),
        T0,
        TOPIC_ID,
        settings,
        Checkpointed(log.log_end_offset, was_clean=True),
        now=NOW,
    )

    logs = sorted(directory.glob("*.log"))
    complaints: list[str] = []
    for file in logs:
        last, pairs = -1, []
        for record in decode_records(file.read_bytes(), include_control=True):
            if record.offset != last + 1:
                pairs.append(f"  {last} is followed by {record.offset}")
            last = record.offset
        complaints += [f"Non-consecutive offsets in {file}", *pairs] if pairs else []
    names = ",".join(map(str, logs))
    dumped = kafka_tool(
        tools.DUMP_LOG, "--deep-iteration", "--print-data-log", "--files", names, complaints=complaints
    )
    assert "isvalid: false" not in dumped
    expected = [record.offset for place in read_all(log) for record in decode_records(place.content)]
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", dumped, re.MULTILINE)] == expected
    assert re.search(r"lastOffset: 2 count: 0 baseSequence: 0 lastSequence: 2 producerId: 9 ", dumped)
    assert re.search(rf"deleteHorizonMs: OptionalLong\[{START_MS + 1000}\]", dumped)
    indexes = ",".join(
        str(path) for suffix in ("index", "timeindex") for path in sorted(directory.glob(f"*.{suffix}"))
    )
    checked = kafka_tool(tools.DUMP_LOG, "--index-sanity-check", "--files", indexes)
    assert "mismatch" not in checked.lower()
