"""A broker that served records, groups and transactions, its files, and one damage at a time to them.

served(kill or clean) ──► files ──► Case.apply ──► start: refused, or serving ──► judged
                                                     ──► repaired ──► start ──► judged
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from sparklog.errors import DecodeError, ErrorCode, SparklogError
from sparklog.record.batch import decode_records, iterate_headers
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.cli.inspect import other_readers as readers
from sparklog_server.cli.log_repair import planned
from sparklog_server.disk.checkpoint import CheckpointCorrupt
from sparklog_server.disk.door import StorageError
from sparklog_server.log.directory.log_dir import DirectoryRefused
from sparklog_server.log_tools.examine_directory import Looking, Report, verify
from sparklog_server.simulation.cluster import SimulatedConnection
from sparklog_server.simulation.disk import SimulatedDisk
from tests.broker import groups
from tests.broker.coordinators import participants
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, produce, produced

ROOT = "/data"
LOG = f"{ROOT}/t-0"
METADATA = f"{ROOT}/__cluster_metadata-0"
VALUE_BYTES = 60_000
REFUSALS = (SparklogError, StorageError, DirectoryRefused, CheckpointCorrupt)
SETTINGS = {
    "log.segment.bytes": str(1 << 20),
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}
Files = dict[str, bytes]
Damage = Callable[[Files], str | None]
"""Alters the files; returns the damaged one, None if there is no such file."""


class Served(NamedTuple):
    """The files of a stopped broker, and the records of `t-0` by offset that it acknowledged."""

    files: Files
    records: dict[int, bytes]
    end: int


class Case(NamedTuple):
    """A damage, and the maximum number of acknowledged records that it may cost: those in the damaged batch,
    or in the damaged file.
    """

    name: str
    damage: Damage
    lost_max: int = 0
    is_offline: bool = False  # whether the start may refuse the whole partition
    is_above: bool = False  # above the recovery point, where a start truncates the log and continues
    is_unchecked: bool = False  # whether a reader may get another offset, which only the tools can detect


def world_over(files: Files) -> World:
    """A node, not started, over these files."""
    world = World(1, **(participants.SETTINGS | SETTINGS))
    for path, content in sorted(files.items()):
        world.disk.make_directory(path.rpartition("/")[0])
        world.disk.write(path, content)
    return world


def files_of(disk: SimulatedDisk, root: str = ROOT) -> Files:
    """Every file below a directory."""
    found: Files = {}
    for name in disk.list(root):
        path = f"{root}/{name}"
        content = disk.read(path)
        found |= files_of(disk, path) if content is None else {path: content}
    return found


@cache
def served(*, is_clean: bool) -> Served:
    """A finished run of the broker: two topics and their snapshot, three segments, aborted transactions,
    groups, records deleted from the front.
    """
    world = participants.started(**SETTINGS)
    client = world.node.connect()
    writer = participants.Writer(world, "a", version=2)
    records: dict[int, bytes] = {}
    for number in range(40):
        value = b"%d " % number + b"v" * VALUE_BYTES
        answer = world.ask(
            client, produce("t", world.batch(b"k", value), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
        )
        code, base = produced(answer)
        assert code == 0
        records |= {base: b"k", base + 1: value}
        if number in (3, 10, 20, 38):
            sent, offset = writer.send(b"aborted %d" % number)
            assert sent is ErrorCode.NONE
            records[offset] = b"aborted %d" % number
            assert writer.end(is_commit=False) is ErrorCode.NONE
            assert groups.ask_commit(world, client, "g", number) is ErrorCode.NONE
    world.settle(20_000)
    found = read(world, client)
    assert found.records == records
    world.node.stop() if is_clean else world.node.kill(is_power_cut=False)
    return Served(files_of(world.disk), records, found.end)


class Found(NamedTuple):
    """The result of reading `t-0`: records by offset, offsets that fail the reader's CRC check, the end, and
    the broker's error if there was one.
    """

    records: dict[int, bytes]
    refused: set[int]
    end: int
    code: ErrorCode


def read(world: World, client: SimulatedConnection) -> Found:
    """Read the partition from its first offset to its end, as a client does that checks CRCs."""
    records: dict[int, bytes] = {}
    refused: set[int] = set()
    offset = 0
    for _ in range(200):
        answer = world.ask(
            client, fetch("t", offset, max_wait_ms=0, max_bytes=1 << 18), FETCH_BY_NAME, FetchResponse
        )
        assert isinstance(answer, FetchResponse)
        part = answer.responses[0].partitions[0]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and part.log_start_offset > offset:
            offset = part.log_start_offset
            continue
        if part.error_code:
            return Found(records, refused, offset, ErrorCode(part.error_code))
        content = part.records or b""
        before = offset
        try:
            for position, header in iterate_headers(content):
                batch = content[position : position + header.size]
                try:
                    records |= {
                        record.offset: record.value or b""
                        for record in decode_records(batch)
                        if record.offset >= before
                    }
                except DecodeError:
                    refused.update(range(header.base_offset, header.next_offset))
                offset = max(offset, header.next_offset)
        except DecodeError:
            return Found(records, refused, offset, ErrorCode.CORRUPT_MESSAGE)
        if offset == before:
            return Found(records, refused, offset, ErrorCode.CORRUPT_MESSAGE if content else ErrorCode.NONE)
    raise AssertionError("no end")


class Outcome(NamedTuple):
    """The result of a start: the message of its refusal, or the records that a reader got and the offset of
    the next record.
    """

    refusal: str
    found: Found | None
    told: list[str]
    appended: int


def start(world: World) -> Outcome:
    """Start the node over its disk, read the partition, and append one record to it."""
    world.node.trace.clear()
    try:
        world.node.start()
    except REFUSALS as error:
        world.node.kill(is_power_cut=False)
        return Outcome(
            error.with_remedy if isinstance(error, StorageError) else str(error),
            None,
            list(world.node.trace),
            -1,
        )
    world.settle(5_000)
    client = world.node.connect()
    found = read(world, client)
    answer = world.ask(
        client, produce("t", world.batch(b"after"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
    )
    code, base = produced(answer)
    return Outcome("", found, list(world.node.trace), -1 if code else base)


def verified(disk: SimulatedDisk) -> list[Report]:
    """The findings of `log verify`."""
    return list(verify(disk, ROOT, Looking(also=readers())))


def repaired(disk: SimulatedDisk, *, cluster_id: str) -> list[str]:
    """Repair the directory with `log repair --execute`; returns the losses that it reported, and the damage
    that it cannot repair.
    """
    told: list[str] = []
    for _ in range(3):
        plans = planned(disk, ROOT, cluster_id=cluster_id, wall_ms=1_700_000_000_000)
        steps = [step for plan in plans for step in plan.steps]
        if not steps:
            break
        told += [f"{step.path}: {step.what}; {step.action}; {step.lost}" for step in steps]
        assert all(step.is_possible for step in steps), told
        for plan in plans:
            plan.execute()
    return told


# -- damages


def batch_positions(content: bytes) -> list[tuple[int, int]]:
    """(begin, end) of each batch."""
    return [(position, position + header.size) for position, header in iterate_headers(content)]


def nth(files: Files, suffix: str, number: int, directory: str = LOG) -> str | None:
    """The n-th file of a kind in a directory."""
    paths = sorted(path for path in files if path.startswith(f"{directory}/") and path.endswith(suffix))
    return paths[number] if -len(paths) <= number < len(paths) else None


def flip(
    suffix: str, number: int = 0, *, batch: int | None = None, byte: int = 0, directory: str = LOG
) -> Damage:
    """Flip one bit: `byte` of a file, or of a batch in it."""

    def damage(files: Files) -> str | None:
        path = nth(files, suffix, number, directory)
        if path is None or not files[path]:
            return None
        content = bytearray(files[path])
        begin = 0 if batch is None else batch_positions(bytes(content))[batch][0]
        content[(begin + byte) % len(content)] ^= 0x10
        files[path] = bytes(content)
        return path

    return damage


def cut(suffix: str, number: int = -1, *, batches: int = 0, size: int = 0, directory: str = LOG) -> Damage:
    """Remove whole batches, and then bytes, from the end of a file."""

    def damage(files: Files) -> str | None:
        path = nth(files, suffix, number, directory)
        if path is None or not files[path]:
            return None
        end = batch_positions(files[path])[-batches][0] if batches else len(files[path])
        files[path] = files[path][: end - size]
        return path

    return damage


def zero(suffix: str, number: int, begin: float, limit: float, directory: str = LOG) -> Damage:
    """Zero a part of a file."""

    def damage(files: Files) -> str | None:
        path = nth(files, suffix, number, directory)
        assert path is not None
        size = len(files[path])
        first, last = int(size * begin), int(size * limit)
        files[path] = files[path][:first] + bytes(last - first) + files[path][last:]
        return path

    return damage


def delete(suffix: str, number: int = 0, directory: str = LOG) -> Damage:
    """Remove a file."""

    def damage(files: Files) -> str | None:
        path = nth(files, suffix, number, directory)
        if path is not None:
            del files[path]
        return path

    return damage


def overwrite(path: str, content: bytes) -> Damage:
    """Replace the content of a file."""

    def damage(files: Files) -> str | None:
        files[path] = content
        return path

    return damage


def remove_directory(directory: str) -> Damage:
    """Remove a directory."""

    def damage(files: Files) -> str | None:
        for path in [path for path in files if path.startswith(f"{directory}/")]:
            del files[path]
        return directory

    return damage


def append(suffix: str, number: int, content: bytes) -> Damage:
    """Append bytes to a file."""

    def damage(files: Files) -> str | None:
        path = nth(files, suffix, number)
        assert path is not None
        files[path] += content
        return path

    return damage


def above(recovery_point: int, damage: Damage) -> Damage:
    """Replace the last stored recovery point with an older one, as a crash may leave it."""

    def both(files: Files) -> str | None:
        files[f"{ROOT}/recovery-point-offset-checkpoint"] = b"0\n1\nt 0 %d\n" % recovery_point
        return damage(files)

    return both
