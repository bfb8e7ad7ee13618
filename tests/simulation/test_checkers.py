"""The history checker by itself: small histories with one anomaly each, and some that only look like it."""

from collections.abc import Callable

import pytest

from sparklog.model import TopicPartition
from sparklog_server.simulation.checkers import check
from sparklog_server.simulation.history import (
    Commit,
    History,
    Initialized,
    OffsetRead,
    Outcome,
    Poll,
    Transaction,
    Write,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def sound() -> History:
    """Three transactions of one producer, the second of them aborted; the first consumes the records of a
    fourth, by another producer.
    """
    fed = txn(0, 1, Outcome.COMMITTED, Write(T1, 10, 0, 2), transactional_id="feed")
    first = txn(1, 10, Outcome.COMMITTED, Write(T0, 11, 0, 12), Write(T0, 12, 1, 13))
    first.commits.append(Commit("g", T1, 0, 2, 14))
    second = txn(2, 20, Outcome.ABORTED, Write(T0, 21, 3, 22))
    third = txn(3, 30, Outcome.COMMITTED, Write(T0, 31, 5, 32))
    return History(
        transactions=[fed, first, second, third],
        initialized=[Initialized("x", 1, 8, 9), Initialized("feed", 1, 0, 1)],
        polls=[
            poll(0, 3, (0, 11), (1, 12), at=19),
            poll(3, 7, (5, 31), at=39),
            poll(0, 4, (0, 11), (1, 12), (3, 21), at=24, reader="all", is_committed=False),
        ],
        offset_reads=[
            OffsetRead("g", T1, True, False, None, 3, 4),
            OffsetRead("g", T1, True, False, (2, 1), 19, 20),
        ],
        final_committed=[
            poll(0, 7, (0, 11), (1, 12), (5, 31), at=90),
            poll(0, 2, (0, 10), at=90, partition=T1),
        ],
        final_all=[
            poll(0, 7, (0, 11), (1, 12), (3, 21), (5, 31), at=90, is_committed=False),
            poll(0, 2, (0, 10), at=90, partition=T1, is_committed=False),
        ],
        final_offsets=[OffsetRead("g", T1, True, False, (2, 1), 90, 91)],
    )


def txn(
    number: int, begun_us: int, outcome: Outcome, *writes: Write, transactional_id: str = "x"
) -> Transaction:
    is_commit = outcome is not Outcome.ABORTED
    return Transaction(
        number=number,
        transactional_id=transactional_id,
        incarnation=1,
        begun_us=begun_us,
        timeout_us=1000,
        writes=list(writes),
        outcome=outcome,
        commit_us=begun_us + 6 if is_commit else None,
        ended_us=begun_us + 6,
        told_us=begun_us + 8,
    )


def poll(
    start: int,
    limit: int,
    *records: tuple[int, int],
    at: int,
    reader: str = "r",
    is_committed: bool = True,
    partition: TopicPartition = T0,
) -> Poll:
    return Poll(reader, partition, is_committed, start, limit, records, at - 1, at)


def kinds(history: History) -> list[str]:
    return sorted({anomaly.kind for anomaly in check(history)})


def lost(history: History) -> None:
    history.transactions[3].writes.append(Write(T0, 99, 6, 33))


def twice_there(history: History) -> None:
    history.final_all[0] = poll(0, 8, (0, 11), (1, 12), (3, 21), (5, 31), (7, 31), at=90, is_committed=False)
    history.final_committed[0] = poll(0, 8, (0, 11), (1, 12), (5, 31), (7, 31), at=90)


def two_values_at_one_offset(history: History) -> None:
    history.transactions[2].writes[0].offset = 5
    history.final_all[0] = poll(0, 7, (0, 11), (1, 12), (5, 31), at=90, is_committed=False)
    history.polls.pop()


def aborted_but_read(history: History) -> None:
    history.polls[1] = poll(3, 7, (3, 21), (5, 31), at=39)


def read_before_the_commit(history: History) -> None:
    history.polls[0] = poll(0, 3, (0, 11), (1, 12), at=11)


def passed_over(history: History) -> None:
    history.polls[1] = poll(3, 7, at=39)


def gone_back(history: History) -> None:
    history.polls.append(poll(1, 3, (1, 12), at=50))


def shown_and_gone(history: History) -> None:
    history.polls[1] = poll(3, 7, (4, 11), (5, 31), at=39)


def beyond_what_is_open(history: History) -> None:
    history.polls.append(poll(7, 8, at=35, reader="early"))
    history.transactions[3].writes[0].acked_us = 31


def written_behind_what_began_later(history: History) -> None:
    first, third = history.transactions[1], history.transactions[3]
    first.begun_us, third.begun_us = third.begun_us, first.begun_us
    first.commit_us = first.ended_us = 36
    first.told_us, third.told_us = 38, 18
    third.commit_us = third.ended_us = 16
    history.polls = history.polls[1:2]
    history.offset_reads.pop()


def committed_though_fenced(history: History) -> None:
    history.initialized.append(Initialized("x", 2, 28, 29))


def hanging(history: History) -> None:
    history.final_committed[0] = poll(0, 6, (0, 11), (1, 12), (5, 31), at=90)


def torn(history: History) -> None:
    first = history.transactions[1]
    first.outcome = Outcome.UNKNOWN
    first.writes.append(Write(T1, 13, 1, 14))


def offset_of_the_aborted(history: History) -> None:
    history.transactions[2].commits.append(Commit("g", T1, 2, 3, 24))
    history.offset_reads.append(OffsetRead("g", T1, False, False, (3, 2), 50, 51))


def offset_before_the_commit(history: History) -> None:
    history.offset_reads[1] = OffsetRead("g", T1, False, False, (2, 1), 14, 15)


def offset_gone_back(history: History) -> None:
    history.offset_reads.append(OffsetRead("g", T1, True, False, None, 50, 51))


def offset_lost(history: History) -> None:
    history.final_offsets[0] = OffsetRead("g", T1, False, False, None, 90, 91)


def offset_told_while_undecided(history: History) -> None:
    history.transactions[1].ended_us = history.transactions[1].commit_us = 17
    history.offset_reads.append(OffsetRead("g", T1, True, False, None, 15, 16))


def offset_undecided_in_the_end(history: History) -> None:
    history.final_offsets[0] = OffsetRead("g", T1, True, True, None, 90, 91)


def consumed_twice(history: History) -> None:
    history.transactions[3].commits.append(Commit("g", T1, 1, 2, 34))


BROKEN: dict[Callable[[History], None], list[str]] = {
    lost: ["lost"],
    twice_there: ["duplicate"],
    two_values_at_one_offset: ["inconsistent"],
    aborted_but_read: ["aborted-read", "vanished"],
    read_before_the_commit: ["early-read"],
    passed_over: ["skipped"],
    gone_back: ["non-monotonic"],
    shown_and_gone: ["duplicate", "vanished"],
    beyond_what_is_open: ["unstable-read"],
    written_behind_what_began_later: ["write-cycle"],
    committed_though_fenced: ["zombie"],
    hanging: ["hanging"],
    torn: ["torn"],
    offset_of_the_aborted: ["aborted-offset"],
    offset_before_the_commit: ["early-offset"],
    offset_gone_back: ["stale-offset"],
    offset_lost: ["lost-offset"],
    offset_told_while_undecided: ["unstable-offset"],
    offset_undecided_in_the_end: ["hanging"],
    consumed_twice: ["twice-consumed"],
}


@pytest.mark.parametrize(("broken", "expected"), BROKEN.items(), ids=[one.__name__ for one in BROKEN])
def test_a_broken_promise_is_called_by_its_name(
    broken: Callable[[History], None], expected: list[str]
) -> None:
    history = sound()
    broken(history)
    assert kinds(history) == expected


def test_nothing_is_found_in_a_sound_history() -> None:
    assert check(sound()) == []


def test_a_commit_whose_answer_was_lost_happened_whole_or_not_at_all() -> None:
    there, absent = sound(), sound()
    for history in (there, absent):
        history.transactions[3].outcome = Outcome.UNKNOWN
        history.transactions[3].told_us = None
    absent.polls = absent.polls[:1]
    absent.final_committed[0] = poll(0, 7, (0, 11), (1, 12), at=90)
    assert (check(there), check(absent)) == ([], [])


def test_transactions_side_by_side_may_interleave_in_either_order() -> None:
    one, other = txn(0, 1, Outcome.COMMITTED), txn(1, 2, Outcome.COMMITTED, transactional_id="y")
    one.writes = [Write(T0, 1, 0, 4), Write(T1, 2, 1, 5)]
    other.writes = [Write(T0, 3, 1, 4), Write(T1, 4, 0, 5)]
    records = {T0: ((0, 1), (1, 3)), T1: ((0, 4), (1, 2))}
    finals = [poll(0, 4, *found, at=90, partition=partition) for partition, found in records.items()]
    assert check(History(transactions=[one, other], final_committed=finals, final_all=finals)) == []


def test_a_history_is_told_in_the_order_of_time() -> None:
    lines = sound().told()
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    assert any("transaction 2 (x#1, aborted) writes 21 to t-0 at 3" in line for line in lines)
