"""Who is handed back, when, and in which order."""

import pytest

from sparklog.model import Offset
from sparklog_server.replica.purgatory import Purgatory, PurgatoryFull


def test_tokens_come_back_when_the_high_watermark_reaches_them_in_the_order_of_offsets() -> None:
    purgatory, released = Purgatory(10), []
    for until, token in ((7, "late"), (3, "first"), (5, "second")):
        purgatory.park(Offset(until), token)
    purgatory.release(Offset(5), released)
    assert released == ["first", "second"]
    purgatory.release(Offset(7), released)
    assert released[2:] == ["late"]


def test_tokens_of_one_offset_come_back_in_the_order_they_were_parked() -> None:
    purgatory, released = Purgatory(10), []
    for token in ("a", "b", "c"):
        purgatory.park(Offset(1), token)
    purgatory.release(Offset(1), released)
    assert released == ["a", "b", "c"]


def test_a_watcher_comes_back_once_at_the_next_move_unless_it_stopped_watching() -> None:
    purgatory, released = Purgatory(10), []
    gone = purgatory.watch("gone")
    purgatory.watch("here")
    purgatory.unwatch(gone)
    purgatory.release(Offset(1), released)
    purgatory.release(Offset(2), released)
    assert released == ["here"]


def test_a_full_purgatory_refuses_whoever_comes_next() -> None:
    purgatory = Purgatory(2)
    purgatory.park(Offset(1), "a")
    purgatory.watch("b")
    with pytest.raises(PurgatoryFull):
        purgatory.park(Offset(2), "c")
    with pytest.raises(PurgatoryFull):
        purgatory.watch("d")


def test_when_the_partition_ends_everybody_comes_back() -> None:
    purgatory, released = Purgatory(10), []
    purgatory.park(Offset(9), "produce")
    purgatory.watch("fetch")
    purgatory.release_all(released)
    assert released == ["produce", "fetch"]
    assert len(purgatory) == 0
