"""One damage to one file of a stopped broker, after kill -9 and after a clean stop: each is reported.

No acknowledged record is altered, and no offset is used again.

Each case is one of: repaired at the start, with a log line; refused by the start or by the partition, with
file and remedy; found by `log verify`, if the file is not read at a start. Then `log repair` repairs it, `log
verify` is clean and the broker serves.
"""

import re

import pytest

from sparklog.errors import ErrorCode
from tests.log_tools.corruption import (
    LOG,
    METADATA,
    ROOT,
    Case,
    Files,
    Found,
    Outcome,
    Served,
    above,
    append,
    cut,
    delete,
    flip,
    overwrite,
    remove_directory,
    repaired,
    served,
    start,
    verified,
    world_over,
    zero,
)

OFFSETS = f"{ROOT}/__consumer_offsets-0"
TRANSACTIONS = f"{ROOT}/__transaction_state-0"
REMEDY = r"log repair|[rR]estore|mount"
READER_REFUSED = ErrorCode.CORRUPT_MESSAGE
"""The reader's error for bytes that are no batch."""
BATCH = 2
FILE = 60
PAYLOAD, LENGTH, MAGIC, BASE_OFFSET = 5_000, 8, 16, 6

CASES = [
    Case("log: payload of the first batch", flip(".log", 0, batch=0, byte=PAYLOAD), BATCH),
    Case("log: length of the first batch", flip(".log", 0, batch=0, byte=LENGTH), BATCH, is_offline=True),
    Case("log: payload in the middle", flip(".log", 1, batch=5, byte=PAYLOAD), BATCH),
    Case("log: magic in the middle", flip(".log", 1, batch=5, byte=MAGIC), BATCH, is_offline=True),
    Case(
        "log: base offset in the active segment",
        flip(".log", -1, batch=2, byte=BASE_OFFSET),
        FILE,
        is_offline=True,
        is_unchecked=True,
    ),
    Case("log: payload of the last batch", flip(".log", -1, batch=-1, byte=70), BATCH, is_offline=True),
    Case("log: length of the last batch", flip(".log", -1, batch=-1, byte=LENGTH), BATCH, is_offline=True),
    Case("log: cut within a batch", cut(".log", size=7), BATCH, is_offline=True),
    Case("log: cut between batches", cut(".log", batches=3), 3 * BATCH, is_offline=True),
    Case("log: a sealed segment cut", cut(".log", 1, size=70_000), 2 * BATCH, is_offline=True),
    Case("log: zeros in the middle", zero(".log", 1, 0.45, 0.55), 5 * BATCH, is_offline=True),
    Case("log: zeros at the end", zero(".log", -1, 0.8, 1.0), 8 * BATCH, is_offline=True),
    Case("log: active segment deleted", delete(".log", -1), FILE, is_offline=True),
    Case("log: middle segment deleted", delete(".log", 1), FILE, is_offline=True),
    Case("log: first segment deleted", delete(".log", 0), FILE, is_offline=True),
    Case("log: bytes behind the end", append(".log", -1, b"garbage" * 20)),
    Case("log: a torn end above the recovery point", above(80, cut(".log", size=7)), BATCH, is_above=True),
    Case(
        "log: a batch above it, sound ones follow",
        above(76, flip(".log", -1, batch=2, byte=70)),
        8 * BATCH,
        is_above=True,
    ),
    Case("index: flipped", flip(".index", 0, byte=13)),
    Case("index: cut", cut(".index", 0, size=3)),
    Case("index: deleted", delete(".index", 0)),
    Case("time index: flipped", flip(".timeindex", 0, byte=30)),
    Case("time index: deleted", delete(".timeindex", 0)),
    Case("transaction index: flipped", flip(".txnindex", 0, byte=20)),
    Case("transaction index: deleted", delete(".txnindex", 0)),
    Case("producer snapshot: flipped", flip(".snapshot", -1, byte=20)),
    Case("producer snapshot: deleted", delete(".snapshot", -1)),
    Case("leader epochs: not numbers", overwrite(f"{LOG}/leader-epoch-checkpoint", b"0\n1\n0 x\n")),
    Case("leader epochs: deleted", delete("leader-epoch-checkpoint")),
    Case("partition.metadata: damaged", overwrite(f"{LOG}/partition.metadata", b"version: 0\ntopic_id: ?\n")),
    Case("partition.metadata: deleted", delete("partition.metadata")),
    Case("recovery points: damaged", overwrite(f"{ROOT}/recovery-point-offset-checkpoint", b"0\n1\nt 0 x\n")),
    Case(
        "recovery points: beyond the end",
        overwrite(f"{ROOT}/recovery-point-offset-checkpoint", b"0\n1\nt 0 500\n"),
        is_offline=True,
    ),
    Case("high watermarks: damaged", overwrite(f"{ROOT}/replication-offset-checkpoint", b"\xff\xfe")),
    Case(
        "log starts: beyond the end",
        overwrite(f"{ROOT}/log-start-offset-checkpoint", b"0\n1\nt 0 500\n"),
        is_offline=True,
    ),
    Case("cleaner offsets: damaged", overwrite(f"{ROOT}/cleaner-offset-checkpoint", b"0\n7\n")),
    Case("meta.properties: deleted", delete("meta.properties", directory=ROOT), is_offline=True),
    Case("clean mark: not JSON", overwrite(f"{ROOT}/.kafka_cleanshutdown", b"{")),
    Case(
        "metadata log: payload flipped",
        flip(".log", 0, batch=-4, byte=70, directory=METADATA),
        FILE,
        is_offline=True,
    ),
    Case("metadata log: cut", cut(".log", 0, batches=2, size=3, directory=METADATA), FILE, is_offline=True),
    Case(
        "metadata snapshot: flipped", flip(".checkpoint", -1, byte=200, directory=METADATA), is_offline=True
    ),
    Case("quorum-state: damaged", overwrite(f"{METADATA}/quorum-state", b"{"), is_offline=True),
    Case("offsets topic: payload flipped", flip(".log", 0, batch=-2, byte=70, directory=OFFSETS)),
    Case("transactions topic: payload flipped", flip(".log", 0, batch=-2, byte=70, directory=TRANSACTIONS)),
    Case("a log named beyond 64 bits", overwrite(f"{LOG}/99999999999999999999.log", b"stray")),
    Case("a partition's directory deleted", remove_directory(LOG), 200, is_offline=True),
]
IDS = [case.name.replace(" ", "-") for case in CASES]


def files_with(case: Case, world: Served) -> tuple[Files, str]:
    files = dict(world.files)
    path = case.damage(files)
    assert path is not None, "no such file"
    return files, path


def agrees(case: Case, world: Served, found: Found) -> None:
    """Every record that a reader gets is the one acknowledged at its offset; at most the records that the
    damage covers are missing.
    """
    altered = {
        offset
        for offset, value in found.records.items()
        if offset in world.records and world.records[offset] != value
    }
    assert not altered
    if found.code is ErrorCode.NONE:
        missing = {offset for offset in world.records if offset not in found.records} - found.refused
        lost = sorted(missing | found.refused)
        assert len(lost) <= case.lost_max, lost
    else:
        assert case.is_offline, found.code


def is_told(outcome: Outcome, path: str) -> bool:
    """Whether a log line that an undamaged start does not have, or the refusal, names the file, or its
    partition.
    """
    name = path.rpartition("/")[2]
    directory = path.rpartition("/")[0].rpartition("/")[2]
    partition = "t-0" if path.startswith(f"{ROOT}/") and path.count("/") == 2 else directory
    return any(
        name in line or f"partition={partition} " in f"{line} "
        for line in [outcome.refusal, *complaints(outcome)]
    )


def complaints(outcome: Outcome) -> list[str]:
    """The log lines that report a problem."""
    usual = (
        "metadata-change",
        "raft-role",
        "coordinator-loaded",
        "broker-ready",
        "metadata-snapshot-written",
        "metadata-log-trimmed",
        "settings-changed keys=min.insync.replicas",  # set for the cluster with its first records
    )
    return [line for line in outcome.told if not line.startswith(usual)]


@pytest.mark.parametrize("is_clean", [False, True], ids=["kill", "clean"])
def test_an_undamaged_start_complains_of_nothing(*, is_clean: bool) -> None:
    before = served(is_clean=is_clean)
    world = world_over(before.files)
    assert [str(one) for report in verified(world.disk) for one in report.findings] == []
    outcome = start(world)
    assert complaints(outcome) == []
    assert outcome.found is not None
    assert outcome.found.records == before.records


@pytest.mark.parametrize("is_clean", [False, True], ids=["kill", "clean"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_no_damage_is_silent_and_no_acknowledged_record_is_altered(case: Case, *, is_clean: bool) -> None:
    before = served(is_clean=is_clean)
    files, path = files_with(case, before)
    world = world_over(files)
    found_by_verify = [one for report in verified(world.disk) for one in report.findings]
    outcome = start(world)
    is_seen = is_told(outcome, path)
    if outcome.refusal:
        assert case.is_offline, outcome.refusal
        assert is_seen
        assert re.search(REMEDY, outcome.refusal), outcome.refusal
        return
    found = outcome.found
    assert found is not None
    if case.is_unchecked and not is_seen:
        assert any(one.is_damage and one.path == path for one in found_by_verify)
        return
    agrees(case, before, found)
    appended = outcome.appended
    assert appended < 0 or appended >= before.end or (case.is_above and is_seen)
    if found.code is not ErrorCode.NONE or appended < 0:
        lines = complaints(outcome)
        assert found.code is READER_REFUSED or any(re.search(REMEDY, line) and is_seen for line in lines), (
            lines
        )
    elif found.records != before.records:
        assert is_seen or found.refused, "silent"
    assert is_seen or found_by_verify, "silent"


@pytest.mark.parametrize("is_clean", [False, True], ids=["kill", "clean"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_damage_is_repaired_by_the_tool_and_the_broker_serves(case: Case, *, is_clean: bool) -> None:
    before = served(is_clean=is_clean)
    files, _ = files_with(case, before)
    world = world_over(files)
    told = repaired(world.disk, cluster_id="the-cluster-of-the-test")
    damaged = [str(one) for report in verified(world.disk) for one in report.findings if one.is_damage]
    assert damaged == [], told
    outcome = start(world)
    assert outcome.refusal == ""
    assert outcome.found is not None
    if case.damage is CASES[-1].damage or "metadata log" in case.name:
        return  # the topic itself may be missing
    assert outcome.found.code is ErrorCode.NONE
    agrees(case, before, outcome.found)
    if case.is_unchecked:
        assert outcome.found.records == before.records  # its neighbours determine its offset
    assert outcome.found.refused == set()
    assert outcome.appended >= before.end


def test_the_table_has_every_case_that_was_asked_for() -> None:
    assert len(CASES) >= 39
