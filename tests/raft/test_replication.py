"""What followers have: commits, diverging logs (figures 7 and 8 of the Raft paper), and snapshots."""

from contextlib import suppress

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import LeaderEpoch, NodeId, Offset, OffsetAndEpoch
from sparklog.record.batch import build_batch, iterate_headers
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from sparklog.wire.schema import Message
from sparklog_server.raft import recovery_point
from sparklog_server.raft.durable_log import METADATA_PARTITION
from sparklog_server.raft.election_state import ElectionState
from sparklog_server.raft.peers import Peer, Purpose
from sparklog_server.raft.quorum_config import QuorumConfig
from sparklog_server.raft.requests import Myself, fetch_request
from sparklog_server.raft.roles import Role
from sparklog_server.simulation.disk import NO_SPACE
from tests.raft.quorum_world import CLUSTER, Machine, QuorumWorld
from tests.raft.test_elections import SEEDS, STATE, led, others


def epochs_of(machine: Machine) -> list[int]:
    """The epoch of each batch of a log."""
    node = machine.node
    assert node is not None
    pieces = node.durable.read(node.log.log_start_offset, node.log_end_offset)
    return [header.leader_epoch for piece in pieces for _, header in iterate_headers(piece)]


def given(world: QuorumWorld, logs: dict[int, list[int]]) -> None:
    """Each node has a durable log of one record of each of these epochs, and knows the latest epoch."""
    latest = LeaderEpoch(max(max(epochs) for epochs in logs.values()))
    for number, epochs in logs.items():
        machine = world.machines[NodeId(number)]
        machine.start()
        assert machine.node is not None
        durable = machine.node.durable
        for epoch in epochs:
            durable.append(build_batch([(None, b"%d" % epoch, (), 0)]), LeaderEpoch(epoch), world.instant)
        machine.disk.sync(durable.log.begin_sync()[0])
        durable.log.synced(durable.end_offset)
        machine.disk.write(STATE, ElectionState(latest).render())
        recovery_point.write(machine.disk, durable.log.directory, METADATA_PARTITION, durable.end_offset)
        machine.stop(power=True)


def test_a_record_is_committed_once_a_majority_has_synced_it() -> None:
    world, leader = led()
    one, two = others(world, leader)
    before = leader.high_watermark
    one.is_stuck = two.is_stuck = True
    leader.append(b"held by one")
    world.run(100)
    assert leader.high_watermark == before
    one.release()
    world.run(50)
    assert leader.high_watermark == before + 1


def test_followers_commit_without_the_disk_of_the_leader() -> None:
    world, leader = led()
    leader.is_stuck = True
    offset = leader.append(b"sent before it is synced")
    assert offset is not None
    world.run(50)
    assert leader.node is not None
    assert leader.node.log.recovery_point <= offset < leader.high_watermark


@SEEDS
def test_every_log_of_figure_7_becomes_that_of_the_leader(seed: int) -> None:
    world = QuorumWorld(seed, count=7)
    logs = {
        1: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6],
        2: [1, 1, 1, 4, 4, 5, 5, 6, 6],
        3: [1, 1, 1, 4],
        4: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
        5: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
        6: [1, 1, 1, 4, 4, 4, 4],
        7: [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
    }
    given(world, logs)
    # The leader of the figure is elected by b, e and f; then the others appear.
    for number in (1, 2, 6, 7):
        world.machines[NodeId(number)].start()
    world.run_until(lambda: world.leader is not None)
    assert world.leader is world.machines[NodeId(1)]
    for number in (3, 4, 5):
        world.machines[NodeId(number)].start()
    world.settle()
    found = {number: epochs_of(world.machines[NodeId(number)]) for number in logs}
    assert len(set(map(tuple, found.values()))) == 1
    assert found[1][:10] == logs[1]


@SEEDS
def test_a_record_of_an_earlier_epoch_on_a_majority_is_overwritten_as_in_figure_8(seed: int) -> None:
    world = QuorumWorld(seed, count=5)
    # (c) of the figure: a record of epoch 2 is on three of five, and the fifth has one of epoch 3.
    given(world, {1: [1, 2], 2: [1, 2], 3: [1, 2], 4: [1], 5: [1, 3]})
    for number in (1, 2, 3):
        world.machines[NodeId(number)].start()
        world.machines[NodeId(number)].is_stuck = True  # no record of a new epoch is synced
    world.run(100)
    assert all(machine.high_watermark == 0 for machine in world.machines.values())
    for number in (1, 2, 3):
        world.machines[NodeId(number)].stop(power=True)
    # (d): the fifth is elected by the second, third and fourth, and overwrites it.
    world.cut([2, 3, 4], [2, 3, 4])
    for number in (2, 3, 4, 5):
        world.machines[NodeId(number)].is_stuck = False
        world.machines[NodeId(number)].start()
    world.run_until(lambda: world.leader is not None)
    assert world.leader is world.machines[NodeId(5)]
    world.machines[NodeId(1)].is_stuck = False
    world.settle()
    assert epochs_of(world.machines[NodeId(1)])[:2] == [1, 3]


def test_a_leader_commits_no_record_of_an_earlier_epoch_before_one_of_its_own() -> None:
    world = QuorumWorld(count=3)
    given(world, {1: [1, 2], 2: [1, 2], 3: [1]})
    for number in (1, 2):
        world.machines[NodeId(number)].start()
    leader = None
    while leader is None:
        world.run(0.1)
        leader = world.leader
    for machine in world.machines.values():
        machine.is_stuck = True
    world.run(1500)  # both fetch from offset 2 on, and neither syncs the first record of the epoch
    assert [machine.high_watermark for machine in others(world, world.machines[NodeId(3)])] == [0, 0]
    world.settle()


@SEEDS
def test_an_isolated_leader_loses_what_it_could_not_commit(seed: int) -> None:
    world, leader = led(seed)
    world.cut([leader.id], [other.id for other in others(world, leader)])
    for _ in range(30):
        leader.append(b"lost" * 40)
        world.run(5)
    world.run(6000)
    successor = world.leader
    assert successor is not None
    assert successor is not leader
    successor.append(b"kept")
    world.run(100)
    world.heal()
    world.run(3000)
    assert "raft-truncated" in leader.told
    assert epochs_of(leader) == epochs_of(successor)
    world.settle()


def lagging(seed: int = 0) -> tuple[QuorumWorld, Machine, Machine]:
    """A follower that is down while the leader removes the log which it needs."""
    world, leader = led(seed)
    follower = others(world, leader)[0]
    follower.stop(power=False)
    for _ in range(80):
        leader.append(b"r" * 100)
        world.run(3)
    world.run(50)
    leader.snapshot()
    assert leader.node is not None
    assert leader.node.log.log_start_offset > 50
    return world, leader, follower


@SEEDS
def test_a_follower_that_lags_behind_the_log_start_installs_a_snapshot(seed: int) -> None:
    world, leader, follower = lagging(seed)
    follower.start()
    world.run(500)
    assert leader.node is not None
    assert follower.node is not None
    assert follower.node.log.log_start_offset == leader.node.log.log_start_offset
    assert follower.high_watermark == leader.high_watermark
    follower.stop(power=True)
    follower.start()
    assert follower.node.log_end_offset >= leader.node.log.log_start_offset
    world.settle()


def test_a_snapshot_larger_than_one_response_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    world, leader, follower = lagging()
    world.config = QuorumConfig(snapshot_bytes_max=37)
    asked: list[FetchSnapshotRequest] = []
    carry = world.carry

    def carried(
        source: Machine, target: Machine, peer: Peer, purpose: Purpose, correlation: int, request: Message
    ) -> None:
        if isinstance(request, FetchSnapshotRequest):
            asked.append(request)
        carry(source, target, peer, purpose, correlation, request)

    monkeypatch.setattr(world, "carry", carried)
    follower.start()
    world.run(1000)
    assert follower.high_watermark == leader.high_watermark
    assert {request.max_bytes for request in asked} == {37}
    assert len(asked) > 3


def test_a_fetch_brings_no_more_than_its_limit_and_one_batch_at_least() -> None:
    world = QuorumWorld()
    world.config = QuorumConfig(fetch_bytes_max=1)
    world.start()
    world.run_until(lambda: world.leader is not None)
    leader = world.leader
    assert leader is not None
    ends: set[Offset] = set()
    follower = next(machine for machine in world.machines.values() if machine is not leader)
    begin = leader.append(b"0" * 100)
    for value in range(9):
        leader.append(b"%d" % value * 100)
    assert begin is not None
    while follower.high_watermark < begin + 10:
        world.run(0.1)
        assert follower.node is not None
        ends.add(follower.node.log_end_offset)
    assert len(ends) >= 10


class _Crash(BaseException):
    """The power is cut at a call of the disk."""


@pytest.mark.parametrize("call", range(1, 40))
def test_a_crash_at_any_call_of_an_installation_leaves_a_node_that_starts(call: int) -> None:
    world, leader, follower = lagging()
    follower.start()
    assert follower.node is not None
    before = follower.node.log_end_offset
    while not follower.node.durable.is_cutting:
        world.run(0.1)
    calls = 0

    def count(_call: str, _path: str) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise _Crash

    follower.disk.fault = count
    with suppress(_Crash):
        world.run(50)
    follower.disk.fault = None
    follower.stop(power=True)
    follower.start()
    assert follower.node is not None
    assert follower.node.log_end_offset in range(before, leader.high_watermark + 1)
    assert follower.node.log_end_offset == before or follower.node.log.log_start_offset > 50
    world.settle()


def damaged(content: object) -> bytes:
    """The same bytes with one bit flipped at the end."""
    assert isinstance(content, (bytes, bytearray, memoryview))
    flipped = bytearray(content)
    flipped[-1] ^= 1
    return bytes(flipped)


def damage_once(machine: Machine, kind: type[Message]) -> list[Message]:
    """Flip a bit in the next response of this kind that has content; it is in the list from then on."""
    hear, found = machine.hear, list[Message]()

    def heard(correlation: int, response: Message) -> None:
        match response:
            case FetchResponse() if kind is FetchResponse and not found and response.responses:
                part = response.responses[0].partitions[0]
                if part.records:
                    part.records = damaged(part.records)
                    found.append(response)
            case FetchSnapshotResponse() if kind is FetchSnapshotResponse and not found and response.topics:
                piece = response.topics[0].partitions[0]
                if piece.unaligned_records:
                    piece.unaligned_records = damaged(piece.unaligned_records)
                    found.append(response)
        hear(correlation, response)

    machine.hear = heard  # type: ignore[method-assign]
    return found


def test_a_download_that_is_damaged_is_fetched_again() -> None:
    world, leader, follower = lagging()
    found = damage_once(follower, FetchSnapshotResponse)
    follower.start()
    world.run_until(lambda: follower.high_watermark == leader.high_watermark)
    assert found
    assert "metadata-snapshot-damaged" in follower.told
    assert not world.halts


def test_records_that_are_damaged_on_their_way_are_fetched_again() -> None:
    world, leader = led()
    follower = others(world, leader)[0]
    found = damage_once(follower, FetchResponse)
    leader.append(b"flipped once")
    world.run_until(lambda: "raft-records-refused" in follower.told)
    world.run_until(lambda: follower.high_watermark == leader.high_watermark)
    assert found
    assert not world.halts


def test_a_leader_that_lacks_committed_records_stops_the_follower_and_truncates_nothing() -> None:
    world, leader = led()
    follower = others(world, leader)[0]
    assert follower.node is not None
    end = follower.node.log_end_offset
    follower.node.state.following._truncate(
        leader.node.durable.end_of_epoch(LeaderEpoch(1))._replace(offset=Offset(1)) if leader.node else None,
        world.instant,
    )
    assert follower.node.role is Role.HALTED
    assert follower.node.log_end_offset == end


def test_a_full_disk_delays_a_follower_and_does_not_end_it() -> None:
    world, leader = led()
    follower = others(world, leader)[0]

    def is_full(call: str, _path: str) -> str | None:
        return NO_SPACE if call in ("append", "replace") else None

    follower.disk.fault = is_full
    leader.append(b"no room there")
    world.run(3000)
    assert follower.high_watermark < leader.high_watermark
    follower.disk.fault = None
    world.run(3000)
    assert follower.high_watermark == leader.high_watermark
    assert not world.halts


def test_batches_of_a_later_epoch_than_that_of_the_fetch_are_left_out() -> None:
    world, leader = led()
    node = others(world, leader)[0].node
    assert node is not None
    end = node.log_end_offset
    batches = b"".join(
        bytes(build_batch([(None, b"x", (), 0)], base_offset=end + at, leader_epoch=epoch))
        for at, epoch in enumerate((1, 1, 2))
    )
    node.durable.append_fetched(batches, LeaderEpoch(1), world.instant)
    assert node.log_end_offset == end + 2


def test_a_second_fetch_of_a_replica_answers_the_first_that_still_waits() -> None:
    world, leader = led()
    node = leader.node
    assert node is not None
    follower = others(world, leader)[0]
    request = fetch_request(
        Myself(CLUSTER, follower.id, follower.directory_id),
        node.epoch,
        OffsetAndEpoch(node.log_end_offset, node.epoch),
        leader.high_watermark,
        1 << 20,
    )
    answers: list[tuple[str, FetchResponse]] = []
    world.break_links(follower.id)
    node.handle_fetch(request, lambda response: answers.append(("first", response)), world.instant)
    leader.after()
    assert answers == []
    node.handle_fetch(request, lambda response: answers.append(("second", response)), world.instant)
    leader.after()
    ((name, response),) = answers
    assert (name, response.error_code) == ("first", ErrorCode.NONE)
