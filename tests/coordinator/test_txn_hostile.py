"""What a shard of transactions is told late, twice or of another life, and crowds of ids: nothing is lost, and nothing is done twice."""

from sparklog.errors import ErrorCode
from sparklog.model import TopicPartition
from sparklog_server.coordinator.txn.events import MarkersDue, MarkersWritten
from sparklog_server.coordinator.txn.states import State
from tests.coordinator.transactions import TxnWorld

EARLIER, LATER = TopicPartition("t", 0), TopicPartition("t", 1)


def about_to_end(*, version: int = 5) -> TxnWorld:
    """A transaction in two partitions whose end is decided."""
    world = TxnWorld()
    for line in ("init a", f"add a t-0,t-1 v={version}", f"end a commit v={version}"):
        world.run(line)
    return world


def written(due: MarkersDue) -> MarkersWritten:
    return MarkersWritten(due.transactional_id, due.producer_id, due.producer_epoch, due.partitions, ())


def test_markers_that_were_on_their_way_when_the_shard_was_loaded_anew_do_not_count_for_those_that_were_not() -> None:
    world = about_to_end()
    world.run("written a failed=t-1")
    world.advance(1)
    on_its_way = world.due["a"]
    assert on_its_way.partitions == (LATER,)
    world.reload()  # it does not know that t-0 has its marker: both are due, but one was on its way already
    world.decide(written(on_its_way), 0)
    assert world.shard.transactions["a"].state is State.PREPARE_COMMIT
    world.advance(1)
    assert world.due["a"].partitions == (EARLIER,)
    world.run("written a")
    assert world.shard.transactions["a"].state is State.COMPLETE_COMMIT


def test_markers_that_are_due_by_a_shard_loaded_anew_are_so_no_more_once_those_on_their_way_were_written() -> None:
    # In transaction version 1 nothing else tells the second markers from those of the next transaction, which they would seem to end.
    world = about_to_end(version=3)
    on_its_way = world.due["a"]
    world.reload()
    assert not world.due["a"].end.is_over
    world.decide(written(on_its_way), 0)
    assert world.due["a"].end.is_over
    assert world.run("end a commit v=3") == [f"-> a end {ErrorCode.NONE.name}"]
