"""Which waiters are released, when, and in which order."""

import pytest

from sparklog.model import Offset
from sparklog_server.replica.purgatory import Purgatory, PurgatoryFull


class Named:
    """A waiter that writes its name when it is released."""

    def __init__(self, name: str, names: list[str]) -> None:
        self.name = name
        self._names = names

    def released(self) -> None:
        self._names.append(self.name)


def test_waiters_are_released_when_the_high_watermark_reaches_them_in_the_order_of_offsets() -> None:
    purgatory, released = Purgatory(10), []
    for until, name in ((7, "late"), (3, "first"), (5, "second")):
        purgatory.park(Offset(until), Named(name, released))
    purgatory.release(Offset(5))
    assert released == ["first", "second"]
    purgatory.release(Offset(7))
    assert released[2:] == ["late"]


def test_waiters_of_one_offset_are_released_in_the_order_they_were_parked() -> None:
    purgatory, released = Purgatory(10), []
    for name in ("a", "b", "c"):
        purgatory.park(Offset(1), Named(name, released))
    purgatory.release(Offset(1))
    assert released == ["a", "b", "c"]


def test_a_watcher_is_released_once_at_the_next_move_unless_it_stopped_watching() -> None:
    purgatory, released = Purgatory(10), []
    gone = purgatory.watch(Named("gone", released))
    purgatory.watch(Named("here", released))
    purgatory.unwatch(gone)
    purgatory.release(Offset(1))
    purgatory.release(Offset(2))
    assert released == ["here"]


def test_a_full_purgatory_refuses_the_next_waiter() -> None:
    purgatory, released = Purgatory(2), []
    purgatory.park(Offset(1), Named("a", released))
    purgatory.watch(Named("b", released))
    with pytest.raises(PurgatoryFull):
        purgatory.park(Offset(2), Named("c", released))
    with pytest.raises(PurgatoryFull):
        purgatory.watch(Named("d", released))


def test_when_the_role_ends_every_waiter_is_released() -> None:
    purgatory, released = Purgatory(10), []
    purgatory.park(Offset(9), Named("produce", released))
    purgatory.watch(Named("fetch", released))
    purgatory.release_all()
    assert released == ["produce", "fetch"]
    assert len(purgatory) == 0
