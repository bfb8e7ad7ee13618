"""Where the high watermark begins with a leadership: at what may be shown, and never below what this life
has shown already.
"""

from sparklog.model import LeaderEpoch, NodeId, Offset
from sparklog_server.replica.partition import Partition
from tests.log.logs import EPOCH, NOW
from tests.replica.test_cutting import World


def lead(world: World, *, epoch: int = EPOCH, high_watermark: int = 0, waits_for_sync: bool) -> None:
    world.partition.lead(
        LeaderEpoch(epoch),
        followers=(),
        isr=(NodeId(1),),
        high_watermark=Offset(high_watermark),
        waits_for_sync=waits_for_sync,
        now=NOW,
    )


def test_a_leader_that_leads_on_in_a_new_epoch_takes_nothing_back_that_it_has_shown() -> None:
    world = World()
    lead(world, waits_for_sync=False)
    world.append(5, b"shown before it was synced")
    assert world.partition.high_watermark == 5
    world.partition.wait_for_sync(True, NOW)
    lead(world, epoch=EPOCH + 1, waits_for_sync=True)
    assert world.partition.high_watermark == 5
    world.append(1, b"x")
    assert world.partition.high_watermark == 5
    world.sync()
    assert world.partition.high_watermark == 6


def test_what_the_checkpoint_calls_committed_is_shown_in_the_next_life_only_when_it_is_durable() -> None:
    world = World()
    world.append(5, b"shown by a topic that was not to be synced, and read back after a crash")
    del world.directory.partitions[world.partition]
    world.partition = Partition(world.partition.log, world.directory, parked_max=10, released=[])
    world.directory.partitions[world.partition] = None
    lead(world, high_watermark=5, waits_for_sync=True)
    assert world.partition.high_watermark == 0
    world.sync()
    assert world.partition.high_watermark == 5
