"""Calls of other threads to a reactor, and the receiver of an event."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog_server.daemon.reactor import RECEIVED_PER_TURN, SERVED_PER_TURN, Reactor


def test_threads_that_end_their_work_while_the_reactor_closes_write_to_no_descriptor_that_is_not_its_own() -> (  # noqa: E501
    None
):
    def work(reactor: Reactor) -> None:
        for _ in range(300):
            reactor.post(lambda: None)

    with ThreadPoolExecutor(4) as threads:
        for _ in range(50):
            reactor = Reactor()
            working = [threads.submit(work, reactor) for _ in range(4)]
            reactor.turn(0.01)
            reactor.close()
            for one in working:
                one.result()


def test_an_event_of_a_closed_descriptor_does_not_reach_the_connection_that_has_its_number_within_the_turn() -> (  # noqa: E501
    None
):
    reactor, (accepted, client) = Reactor(), socket.socketpair()
    pairs = [socket.socketpair() for _ in range(2)]
    numbers = [ours.detach() for ours, _ in pairs]
    told: list[str] = []

    def heard(number: int, other: int) -> None:
        told.append("old")
        for one in (number, other):
            reactor.forget(one)
        os.dup2(accepted.fileno(), other)  # closes it first
        reactor.watch(other, lambda _: told.append("new"))

    reactor.watch(numbers[0], lambda _: heard(*numbers))
    reactor.watch(numbers[1], lambda _: heard(*reversed(numbers)))
    for _, theirs in pairs:
        theirs.close()
    reactor.turn(0)
    assert told == ["old"]
    client.send(b"x")
    reactor.turn(0)
    assert told == ["old", "new"]
    for number in numbers:
        os.close(number)
    accepted.close()
    client.close()
    reactor.close()


def test_descriptors_that_are_always_ready_take_turns_and_posted_calls_are_made() -> None:
    reactor, called = Reactor(), set[int]()
    pairs = [socket.socketpair() for _ in range(4 * SERVED_PER_TURN - 10)]
    for number, (ours, theirs) in enumerate(pairs):
        reactor.watch(ours.fileno(), lambda _, number=number: called.add(number))
        theirs.send(b"x")
    reactor.turn(0)
    assert len(called) == SERVED_PER_TURN
    reactor.post(lambda: called.add(-1))
    for _ in range(4):
        reactor.turn(0)
    assert called == {-1, *range(len(pairs))}
    reactor.close()
    for pair in pairs:
        for one in pair:
            one.close()


def test_after_many_received_bytes_the_others_come_in_the_next_turn() -> None:
    reactor, called = Reactor(), list[int]()
    pairs = [socket.socketpair() for _ in range(3)]

    def receive(number: int) -> None:
        called.append(number)
        reactor.received_bytes += RECEIVED_PER_TURN // 2

    for number, (ours, theirs) in enumerate(pairs):
        reactor.watch(ours.fileno(), lambda _, number=number: receive(number))
        theirs.send(b"x")
    reactor.turn(0)
    first = [*called]
    assert len(first) == 2
    reactor.turn(0)
    assert set(called) == {0, 1, 2}
    assert called[2] not in first  # the one that has waited precedes them
    reactor.close()
    for pair in pairs:
        for one in pair:
            one.close()


def test_a_wait_for_a_posted_call_does_not_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    reactor, (ours, theirs) = Reactor(), socket.socketpair()
    yields: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(None))
    reactor.watch(ours.fileno(), lambda _: None)
    theirs.send(b"x")
    for _ in range(3):
        reactor.turn(1)  # waits that end at once: the next ones poll
    ours.recv(1)
    yields.clear()
    reactor.sleep_next()
    reactor.turn(0.001)
    assert yields == []
    for one in (ours, theirs):
        one.close()
    reactor.close()
