"""Kafka's own log dump reads segments made of our batches: every codec, every way of building them, and
control records.
"""

from array import array
from pathlib import Path

import pytest

from sparklog.kernels import scan
from sparklog.record.batch import build_batch
from sparklog.record.columns import BinaryColumn, write_batches
from sparklog.record.compression import Codec
from sparklog.record.control import (
    ControlType,
    KRaftVersion,
    KRaftVersionFeature,
    KRaftVoters,
    LeaderChange,
    Marker,
    QuorumVoter,
    Voter,
    VoterEndpoint,
    build_control,
    build_marker,
)
from tests.compatibility.kafka_tools import DUMP_LOG, kafka_tool

pytestmark = pytest.mark.compat

LARGE = 2000  # records of about 130 bytes: several blocks of each codec
TIME_MS = 1_700_000_000_000
DIRECTORY = bytes(range(16))


def dump(directory: Path, batches: list[bytearray]) -> list[str]:
    """The output of the tool for these batches as the first segment of a log."""
    segment = directory / f"{0:020}.log"
    segment.write_bytes(b"".join(batches))
    return kafka_tool(DUMP_LOG, "--deep-iteration", "--print-data-log", "--files", segment).splitlines()


def test_kafka_reads_every_record_of_every_codec(tmp_path: Path) -> None:
    batches: list[bytearray] = []
    base_offset = 0
    contents = [b"column-%d" % row for row in range(500)]
    offsets = array("i", [0])
    for content in contents:
        offsets.append(offsets[-1] + len(content))
    column = BinaryColumn(None, offsets, b"".join(contents))
    for codec in Codec:
        rows = [
            (b"k" if row % 2 else None, b"value-%d " % row * 10, [("h", b"x")], TIME_MS + row)
            for row in range(LARGE)
        ]
        batches.append(build_batch(rows, codec=codec, base_offset=base_offset, leader_epoch=0))
        base_offset += LARGE
        sequences = array("i", [7])
        written = write_batches(
            500,
            value=column,
            timestamp_ms=TIME_MS,
            partition_count=1,
            codec=codec,
            producer_id=3,
            producer_epoch=0,
            sequences=sequences,
        )
        for whole in written.batches:
            scan.stamp(whole.batch, base_offset, 0)
            batches.append(whole.batch)
            base_offset += whole.record_count
    lines = dump(tmp_path, batches)
    told = [line for line in lines if line.startswith("baseOffset:")]
    assert len(told) == len(batches)
    assert all("isvalid: true" in line for line in told)
    assert [
        f"compresscodec: {codec.name.lower()}" in line for codec, line in zip(Codec, told[::2], strict=True)
    ] == [True] * len(Codec)
    assert sum(line.startswith("| offset:") for line in lines) == base_offset
    assert sum("payload: column-499" in line and "sequence: 506 " in line for line in lines) == len(Codec)


def test_kafka_understands_our_control_records(tmp_path: Path) -> None:
    lines = dump(
        tmp_path,
        [
            build_marker(
                Marker(ControlType.COMMIT, 7),
                producer_id=3,
                producer_epoch=0,
                timestamp_ms=TIME_MS,
                leader_epoch=0,
            ),
            build_control(
                LeaderChange(leader_id=3, voters=[Voter(3)], granting_voters=[Voter(3)]),
                timestamp_ms=TIME_MS,
                base_offset=1,
            ),
            build_control(KRaftVersion(k_raft_version=1), timestamp_ms=TIME_MS, base_offset=2),
            build_control(
                KRaftVoters(
                    voters=[
                        QuorumVoter(
                            1, DIRECTORY, [VoterEndpoint("C", "host", 9093)], KRaftVersionFeature(0, 1)
                        )
                    ]
                ),
                timestamp_ms=TIME_MS,
                base_offset=3,
            ),
        ],
    )
    told = [line for line in lines if line.startswith("| offset:")]
    assert "endTxnMarker: COMMIT coordinatorEpoch: 7" in told[0]
    assert '"leaderId":3,"voters":[{"voterId":3' in told[1]
    assert '"grantingVoters":[{"voterId":3' in told[1]
    assert '"kRaftVersion":1' in told[2]
    assert '"endpoints":[{"name":"C","host":"host","port":9093}]' in told[3]
