"""A transaction shard with late, repeated and outdated events, and with very many ids: no event is lost, and
none takes effect twice.
"""

from sparklog.errors import ErrorCode
from sparklog.model import ProducerEpoch, ProducerId, TopicPartition
from sparklog_server.coordinator.txn.events import MarkersDue, MarkersWritten, VerdictDue
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


def test_markers_that_were_on_their_way_when_the_shard_was_loaded_anew_do_not_count_for_those_that_were_not() -> (  # noqa: E501
    None
):
    world = about_to_end()
    world.run("written a failed=t-1")
    world.advance(1)
    on_its_way = world.due["a"]
    assert on_its_way.partitions == (LATER,)
    world.reload()  # the shard does not know that t-0 has its marker: both are due, but one was already sent
    world.decide(written(on_its_way), 0)
    world.advance(1)
    assert world.due["a"].partitions == (EARLIER,)
    world.run("written a")
    assert world.shard.transactions["a"].state is State.COMPLETE_COMMIT


def test_markers_that_are_due_by_a_shard_loaded_anew_are_so_no_more_once_those_on_their_way_were_written() -> (  # noqa: E501
    None
):
    # In transaction version 1 no other field distinguishes the second markers from those of the next
    # transaction, which they would end.
    world = about_to_end(version=3)
    on_its_way = world.due["a"]
    world.reload()
    assert not world.due["a"].end.is_over
    world.decide(written(on_its_way), 0)
    assert world.due["a"].end.is_over
    assert world.run("end a commit v=3") == [f"-> a end {ErrorCode.NONE.name}"]


def test_markers_of_a_shard_that_is_dropped_before_they_are_begun_are_not_written() -> None:
    # Another broker may have led the partition since, and the next transaction of the producer be open: the
    # marker would have the epoch of the leadership of that moment, which fences nothing.
    world = about_to_end(version=3)
    due = world.due["a"]
    world.shard.dropped()
    assert due.end.is_over
    world.reload()
    assert not world.due["a"].end.is_over


def crowd(*, count: int = 450) -> TxnWorld:
    """A shard loaded with more ids than it completes at once: of every three, one is in PREPARE_COMMIT, and
    two are ongoing.
    """
    world = TxnWorld()
    for number in range(count):
        world.run(f"init id-{number} timeout=60")
        world.run(f"add id-{number} t-0 v=5")
        if number % 3 == 0:
            world.run(f"end id-{number} commit v=5")
    world.due.clear()
    world.reload()
    return world


def states(world: TxnWorld) -> dict[State, int]:
    counted: dict[State, int] = {}
    for transaction in world.shard.transactions.values():
        counted[transaction.state] = counted.get(transaction.state, 0) + 1
    return counted


def test_a_crowd_of_transactions_goes_on_over_several_turns_after_a_load_and_none_is_passed_over() -> None:
    world = crowd()
    assert 0 < len([one for one in world.took if one.answers]) < 150  # the first turn is short
    for decision in world.took:
        world.replay(decision)
    world.advance(0)
    assert len(world.due) == 150
    for due in list(world.due.values()):
        world.decide(written(due), 0)
    assert states(world) == {State.COMPLETE_COMMIT: 150, State.ONGOING: 300}
    world.advance(80)
    assert states(world) == {State.COMPLETE_COMMIT: 150, State.PREPARE_ABORT: 300}


def test_what_is_asked_before_a_transaction_goes_on_after_a_load_is_done_once() -> None:
    world = crowd()
    last, ending = "id-449", "id-447"
    # One ends and begins again, the other is retried before its markers are due.
    assert f"-> {last} end NONE 449/1" in world.run(f"end {last} commit v=5")
    world.decide(written(world.due.pop(last)), 0)
    world.run(f"add {last} t-1 v=5")
    world.run(f"end {ending} commit v=5")
    for decision in world.took:
        world.replay(decision)
    world.advance(0)
    assert last not in world.due
    assert ending in world.due
    assert world.shard.transactions[last].state is State.ONGOING
    world.advance(80)
    assert world.shard.transactions[last].state is State.PREPARE_ABORT


def test_a_verdict_of_before_a_load_waits_until_time_runs_again() -> None:
    world = crowd(count=240)
    last = "id-239"
    for verdict in ("ask-again", "commit"):
        world.verdicts[last] = VerdictDue(
            last, ProducerId(world.producers[last][0]), ProducerEpoch(world.producers[last][1])
        )
        world.run(f"verdict {last} {verdict}")
    assert world.shard.transactions[last].state is State.ONGOING


def test_a_crowd_of_open_transactions_is_taken_up_slice_by_slice_and_asked_about_meanwhile() -> None:
    world = TxnWorld()
    count = 1_000
    for number in range(count):
        world.run(f"init id-{number} timeout=5")
        world.run(f"add id-{number} t-0 v=5")
        if number % 2:
            world.run(f"end id-{number} commit")
    world.due.clear()
    world.reload()
    assert len(world.took) < count / 4
    assert world.shard.deadline() == 0
    ending, early, late = f"id-{count - 1}", f"id-{count - 2}", f"id-{count - 4}"
    # No request waits for the last slice: an end, an end followed by the next transaction, and one of an id
    # whose end is decided already.
    assert world.run(f"init {ending}") == [f"-> {ending} init CONCURRENT_TRANSACTIONS"]
    world.run(f"end {early} commit")
    assert early in world.due
    world.run(f"end {late} commit")
    world.run(f"written {late}")
    world.run(f"add {late} t-1 v=5")
    world.advance(0)
    assert len(world.due) == count // 2 + 2
    for transactional_id in sorted(world.due):
        if transactional_id != late:
            world.run(f"written {transactional_id}")
    states = [one.state for one in world.shard.transactions.values()]
    assert states.count(State.COMPLETE_COMMIT) == count // 2 + 1
    world.advance(4)
    world.run(f"end {late} commit")
    world.run(f"written {late}")
    world.advance(20)
    assert {one.state for one in world.shard.transactions.values()} == {
        State.COMPLETE_COMMIT,
        State.PREPARE_ABORT,
    }
