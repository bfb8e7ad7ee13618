"""Retention step by step: the removed files wait for the checkpoint of the log start offset."""

from sparklog.wire.messages.delete_records import DeleteRecordsResponse
from tests.broker.test_retention import delete, deleted
from tests.replica.by_hand import ByHand


def test_files_leave_an_idle_log_whose_start_moved_on_while_they_were_renamed() -> None:
    world = ByHand(
        **{
            "log.segment.bytes": str(1 << 20),
            "log.retention.bytes": "1000000",
            "log.initial.task.delay.ms": "1000",
        },
        **{"log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "1000"},
    )
    world.create("t")
    for _ in range(30):
        assert world.send("t", bytes(100_000)) == 0
    while not [line for line in world.trace if line.startswith("segments-deleted partition=t-0")]:
        world.wait(100)
    world.wait(100)  # the sync after it is done
    renaming = world.held[-1]
    for run in world.held[:-1]:
        world.run(run)
    world.begin(delete("t", 29), 2)
    for run in [run for run in world.held if run is not renaming]:
        world.run(run)
    assert deleted(world.answer(2, DeleteRecordsResponse)) == (0, 29)
    world.run(renaming)
    assert [name for name in world.disk.list("/data/t-0") if name.endswith(".deleted")]
    for _ in range(100):
        world.run_all()
        world.wait(1000)
    assert not [name for name in world.disk.list("/data/t-0") if name.endswith(".deleted")]
