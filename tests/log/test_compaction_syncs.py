"""A cleaned segment is synced in small steps, so that other syncs do not wait behind the whole segment."""

from sparklog.record.batch import build_batch
from sparklog_server.log.cleaning.cleaner import CHUNK_BYTES, UNSYNCED_BYTES_MAX
from sparklog_server.log.log_config import LogConfig
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.compacting import compact
from tests.log.logs import EPOCH, NOW, START_MS, open_log, sync

SEGMENT_BYTES = 8 * UNSYNCED_BYTES_MAX


def test_no_more_of_a_new_segment_than_a_few_chunks_waits_to_be_synced() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(is_compacted=True, segment_bytes=SEGMENT_BYTES, max_message_bytes=1 << 20))
    for number in range(SEGMENT_BYTES // 100_000 + 2):
        log.append(memoryview(build_batch([(b"key-%d" % number, bytes(100_000), (), START_MS)])), EPOCH, NOW)
    sync(disk, log)
    synced_bytes, unsynced = disk.used_bytes, [0]

    def seen(call: str, path: str) -> None:
        nonlocal synced_bytes
        if path.endswith(".log.cleaned"):
            unsynced.append(disk.used_bytes - synced_bytes)
            synced_bytes = disk.used_bytes if call == "sync" else synced_bytes

    disk.fault = seen
    assert compact(disk, log)
    assert (
        sum(one >= UNSYNCED_BYTES_MAX for one in unsynced)
        >= SEGMENT_BYTES // (UNSYNCED_BYTES_MAX + CHUNK_BYTES) - 1
    )
    assert max(unsynced) < UNSYNCED_BYTES_MAX + CHUNK_BYTES
