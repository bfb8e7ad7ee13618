"""A batch of an internal topic is damaged: nothing is served from the state that its partition keeps, the
error names file, byte and command, and an operator may give the batch up.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.record.batch import iterate_headers
from sparklog.wire.messages.find_coordinator import FindCoordinatorResponse
from sparklog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog_server.cli.log_repair import planned
from tests.broker import groups
from tests.broker.coordinators import participants
from tests.broker.world import World

PAYLOAD_BYTE = 70
OFFSETS = f"/data/__consumer_offsets-0/{0:020d}.log"
TRANSACTIONS = f"/data/__transaction_state-0/{0:020d}.log"
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def damage_batch(world: World, path: str, number: int, byte: int) -> tuple[int, int]:
    """Alter one byte of a batch; gives (position of that byte, base offset of the batch)."""
    content = bytearray(world.disk.read(path) or b"")
    position, header = list(iterate_headers(content))[number]
    content[position + byte] ^= 0x10
    world.disk.write(path, bytes(content))
    return position + byte, header.base_offset


def failed_loads(world: World) -> list[str]:
    return [line for line in world.node.trace if line.startswith("coordinator-load-failed")]


def repair(world: World) -> list[str]:
    """Give up the damaged batches of the stopped broker, as `log repair --execute` does; the losses."""
    lost: list[str] = []
    for _ in range(4):
        plans = planned(world.disk, "/data", wall_ms=1)
        lost += [step.lost for plan in plans for step in plan.steps if step.lost]
        for plan in plans:
            plan.execute()
    return lost


def committed_and_stopped(*, is_clean: bool) -> World:
    world = groups.started(**{"offsets.topic.num.partitions": "1"})
    client = world.node.connect()
    assert groups.ask_coordinator(world, client, "g") is ErrorCode.NONE
    for group, offset in (("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)):
        assert groups.ask_commit(world, client, group, offset) is ErrorCode.NONE
    world.settle(10_000)
    world.node.stop() if is_clean else world.node.kill()
    return world


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("byte", [PAYLOAD_BYTE, 8, 16])
def test_no_group_of_a_damaged_partition_is_served_until_the_batch_is_given_up(
    *, is_clean: bool, byte: int
) -> None:
    world = committed_and_stopped(is_clean=is_clean)
    damaged, base_offset = damage_batch(world, OFFSETS, 2, byte)
    world.node.start()
    world.settle()
    client = world.node.connect()
    told = [line for line in world.node.trace if OFFSETS in line and "sparklog log repair /data" in line]
    assert len(told) == 1, told
    if byte == PAYLOAD_BYTE:  # the frame is intact, so the start does not see it
        assert told == failed_loads(world)
        assert "partition=__consumer_offsets-0 " in told[0]
        assert f"at byte {damaged}: " in told[0]
        answer = world.ask(client, groups.find("a"), groups.FIND, FindCoordinatorResponse)
        assert groups.found(answer) == [UNAVAILABLE]
        assert "coordinator-load-failed" in (answer.coordinators[0].error_message or "")
        listed = world.ask(client, ListGroupsRequest(), 4, ListGroupsResponse)
        assert listed.error_code == UNAVAILABLE  # never an empty list
    for group in "abc":  # those whose records are sound too: which keys the batch has is unknown
        answer = world.ask(client, groups.commit(group, 9), groups.COMMIT, groups.OffsetCommitResponse)
        assert groups.committed(answer) in (UNAVAILABLE, ErrorCode.NOT_COORDINATOR)
    world.node.stop()
    losses = repair(world)
    assert any(
        one.startswith(f"offsets [{base_offset}, {base_offset + 1}); for each group") for one in losses
    )
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert groups.ask_coordinator(world, client, "a") is ErrorCode.NONE
    assert [groups.ask_offsets(world, client, group) for group in "abc"] == [[1], [5], [4]]
    assert groups.ask_commit(world, client, "a", 7) is ErrorCode.NONE
    assert groups.ask_offsets(world, client, "a") == [7]


def test_no_transaction_of_a_damaged_partition_is_served_until_the_batch_is_given_up() -> None:
    world = participants.started()
    open_one = participants.Writer(world, "open", version=2)
    kept = participants.Writer(world, "kept", version=2)
    assert open_one.send(b"b")[0] is ErrorCode.NONE
    assert kept.send(b"a")[0] is ErrorCode.NONE
    world.settle(10_000)
    before = len(list(iterate_headers(world.disk.read(TRANSACTIONS) or b"")))
    assert kept.end(is_commit=True) is ErrorCode.NONE
    world.settle(10_000)
    world.node.stop()
    assert len(list(iterate_headers(world.disk.read(TRANSACTIONS) or b""))) > before + 1
    # The decision to commit; its completion follows.
    damaged, _ = damage_batch(world, TRANSACTIONS, before, PAYLOAD_BYTE)
    world.node.start()
    world.settle()
    (line,) = failed_loads(world)
    assert f"{TRANSACTIONS}: at byte {damaged}: " in line
    assert "sparklog log repair /data" in line
    open_one.reconnect()
    assert open_one.end(is_commit=True) is UNAVAILABLE
    world.node.stop()
    assert any("transactional id" in lost for lost in repair(world))
    world.node.start()
    world.settle()
    kept.reconnect()
    open_one.reconnect()
    assert kept.one.state() == "CompleteCommit"
    assert open_one.one.state() == "Ongoing"
    assert open_one.end(is_commit=True) is ErrorCode.NONE
    world.settle(10_000)
    assert participants.read(world)[0] == [b"b", b"a"]
