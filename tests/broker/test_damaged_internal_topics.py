"""A batch of an internal topic is damaged: the keys of all others are served, and the batch is reported by
file, byte and offsets.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.record.batch import iterate_headers
from tests.broker import groups, participants
from tests.broker.world import World

PAYLOAD_BYTE = 70


def damage_batch(world: World, path: str, number: int, byte: int) -> tuple[int, int]:
    """Alter one byte of a batch; gives (position of that byte, base offset of the batch)."""
    content = bytearray(world.disk.read(path) or b"")
    position, header = list(iterate_headers(content))[number]
    content[position + byte] ^= 0x10
    world.disk.write(path, bytes(content))
    return position + byte, header.base_offset


def passed_over(world: World, byte: int, path: str) -> list[str]:
    """The lines that report this byte."""
    lines = [line for line in world.node.trace if line.startswith("coordinator-batch-skipped")]
    return [line for line in lines if f"file={path} byte={byte} " in line and "log repair" in line]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("byte", [PAYLOAD_BYTE, 8, 16])
def test_groups_of_other_batches_are_served_and_the_lost_commit_falls_back_to_the_one_before(
    *, is_clean: bool, byte: int
) -> None:
    world = groups.started(**{"offsets.topic.num.partitions": "1"})
    client = world.node.connect()
    assert groups.ask_coordinator(world, client, "g") is ErrorCode.NONE
    for group, offset in (("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)):
        assert groups.ask_commit(world, client, group, offset) is ErrorCode.NONE
    world.settle(10_000)
    world.node.stop() if is_clean else world.node.kill()
    path = f"/data/__consumer_offsets-0/{0:020d}.log"
    damaged, base_offset = damage_batch(world, path, 2, byte)
    world.node.start()
    world.settle()
    if byte != PAYLOAD_BYTE:
        assert any(
            "partition-offline" in line and path in line for line in world.node.trace
        )  # found at the start, and repaired by the tool
        return
    client = world.node.connect()
    assert groups.ask_coordinator(world, client, "a") is ErrorCode.NONE
    assert [groups.ask_offsets(world, client, group) for group in "abc"] == [[1], [5], [4]]
    (line,) = passed_over(world, damaged, path)
    assert f"offset={base_offset} next_offset={base_offset + 1} " in line
    assert groups.ask_commit(world, client, "a", 7) is ErrorCode.NONE
    assert groups.ask_offsets(world, client, "a") == [7]


def test_transactions_of_other_batches_are_served_and_an_open_one_whose_end_may_be_lost_is_named() -> None:
    world = participants.started()
    kept = participants.Writer(world, "kept", version=2)
    open_one = participants.Writer(world, "open", version=2)
    assert kept.send(b"a")[0] is ErrorCode.NONE
    assert open_one.send(b"b")[0] is ErrorCode.NONE
    world.settle(10_000)
    world.node.stop()
    path = f"/data/__transaction_state-0/{0:020d}.log"
    content = world.disk.read(path) or b""
    before = len(list(iterate_headers(content)))
    world.node.start()
    world.settle()
    kept.reconnect()
    assert kept.end(is_commit=True) is ErrorCode.NONE
    world.settle(10_000)
    world.node.stop()
    content = world.disk.read(path) or b""
    assert len(list(iterate_headers(content))) > before + 1
    damaged, _ = damage_batch(
        world, path, before, PAYLOAD_BYTE
    )  # the decision to commit; its completion follows
    world.node.start()
    world.settle()
    assert passed_over(world, damaged, path)
    (line,) = [line for line in world.node.trace if line.startswith("coordinator-state-uncertain")]
    assert "ids=open " in line
    kept.reconnect()
    open_one.reconnect()
    assert kept.one.state() == "CompleteCommit"
    assert open_one.one.state() == "Ongoing"
    assert open_one.end(is_commit=True) is ErrorCode.NONE
    world.settle(10_000)
    assert participants.read(world)[0] == [b"a", b"b"]
