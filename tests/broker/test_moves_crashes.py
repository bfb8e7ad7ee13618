"""The power is cut, or the process killed, at every call that changes a disk while a replica moves and is
written to.

After each: nothing acknowledged is missing, nothing is there twice, the log lies in one directory, and
what was begun comes to its end.
"""

from contextlib import suppress
from random import Random

import pytest

from sparklog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsResponse
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.moves import asking, elsewhere, fill, home, left_over, read, send, started
from tests.broker.world import ACKS_ALL, PRODUCE_BY_NAME, World, produce, produced
from tests.log.history import Fuse, PowerCut

SAMPLED = 6
DELETED = 3


class Life:
    """A topic of two segments and a bit, of which the first records were deleted; then a move under a
    stream of records.
    """

    def __init__(self, seed: int, flush: str) -> None:
        self.world, self.client = started(seed, **{"sparklog.ack.flush": flush})
        self.values = fill(self.world, self.client, 12, size=200_000)
        topics = [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, DELETED)])]
        self.world.ask(
            self.client, DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2, DeleteRecordsResponse
        )
        self.world.settle(10_000)
        self.target = elsewhere(self.world)
        self.sent: list[bytes] = []
        self.random = Random(seed)

    def move(self, acks: int) -> None:
        """Ask for the move, and send until it is over."""
        world = self.world
        self.mover = world.node.connect()
        self.mover.send(asking(self.target), 2, AlterReplicaLogDirsResponse)
        for index in range(40):
            value = b"m%d" % index + bytes(self.random.choice([10, 60_000]))
            self.sent.append(value)
            self.client.send(produce("t", world.batch(value), acks=acks), PRODUCE_BY_NAME, ProduceResponse)
            world.settle(self.random.choice([1, 2, 5]))
        world.settle(10_000)

    def acknowledged(self, client: SimulatedConnection) -> list[bytes]:
        answers = [reply for reply in client.replies if isinstance(reply, ProduceResponse)][
            len(self.values) :
        ]
        assert [produced(answer)[0] for answer in answers] == [0] * len(answers)
        return self.sent[: len(answers)]


def total(flush: str, acks: int, seed: int = 7) -> int:
    life = Life(seed, flush)
    life.world.disk.fault = fuse = Fuse()
    life.move(acks)
    assert home(life.world) == [life.target]
    return fuse.count


def cut(flush: str, acks: int, at: int, seed: int = 7, *, is_power_cut: bool) -> None:
    life = Life(seed, flush)
    world = life.world
    world.disk.fault = Fuse(at)
    with suppress(PowerCut):
        life.move(acks)
    world.disk.fault = None
    promised = life.acknowledged(life.client)
    world.node.kill(is_power_cut=is_power_cut)
    check(world, life, promised)
    world.settle(20_000)
    world.node.kill(is_power_cut=flush == "auto")
    check(world, life, promised)


def check(world: World, life: Life, promised: list[bytes]) -> None:
    world.node.start()
    world.settle(20_000)
    client = world.node.connect()
    found = read(world, client, DELETED)
    expected = life.values[DELETED:] + life.sent
    assert found == expected[: len(found)]
    assert len(found) >= len(life.values) - DELETED + len(promised)
    assert len(home(world)) == 1
    assert left_over(world) == []
    if len(found) == len(expected) or not life.sent:
        return
    life.sent = expected[len(life.values) - DELETED : len(found)]
    life.sent.append(b"after")
    assert send(world, client, b"after") == 0


CASES = [("auto", ACKS_ALL, True), ("auto", 1, False), ("never", ACKS_ALL, False)]


@pytest.mark.parametrize(("flush", "acks", "is_power_cut"), CASES)
def test_a_move_that_is_cut_short_loses_nothing_that_was_acknowledged(
    flush: str, acks: int, is_power_cut: bool
) -> None:
    for at in range(acks & 1, total(flush, acks), SAMPLED):
        cut(flush, acks, at, is_power_cut=is_power_cut)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(7, 13))
@pytest.mark.parametrize(("flush", "acks", "is_power_cut"), CASES)
def test_a_move_cut_short_at_every_call_loses_nothing_that_was_acknowledged(
    flush: str, acks: int, is_power_cut: bool, seed: int
) -> None:
    for at in range(total(flush, acks, seed)):
        cut(flush, acks, at, seed, is_power_cut=is_power_cut)
