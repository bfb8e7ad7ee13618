"""The simulated network: streams arrive in order, and each way to lose a connection has its kind."""

import pytest

from sparklog.effects import LinkId, Loss
from sparklog.model import NodeId, SessionId
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.network import End, Network
from sparklog_server.simulation.randomness import random_for

A, B = NodeId(1), NodeId(2)


class Computer:
    """A machine that notes what it gets."""

    def __init__(self, node: NodeId, clock: VirtualClock) -> None:
        self.node = node
        self.is_up = True
        self.is_listening = True
        self.ends: list[End] = []
        self.got: list[tuple[int, bytes]] = []  # number of the connection, and bytes
        self.losses: list[Loss] = []
        self.lost_at_us = 0
        self._clock = clock

    def accepted(self, end: End) -> None:
        self.ends.append(end)
        end.key = SessionId(len(self.ends))

    def arrived(self, end: End, data: bytes) -> None:
        number = end.key.number if isinstance(end.key, LinkId) else end.key
        assert number is not None
        self.got.append((number, data))

    def lost(self, end: End, loss: Loss) -> None:
        self.losses.append(loss)
        self.lost_at_us = self._clock.us

    def bytes_of(self, number: int) -> bytes:
        return b"".join(data for of, data in self.got if of == number)


class Two:
    """Two machines, and connections of the first to the second."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = VirtualClock()
        self.network = Network(self.clock, seed, [A, B])
        self.a, self.b = Computer(A, self.clock), Computer(B, self.clock)
        self.network.attach(self.a)
        self.network.attach(self.b)
        self.there, self.back = self.network.paths[A, B], self.network.paths[B, A]

    def open(self, number: int = 1) -> End:
        return self.network.open(self.a, B, LinkId(("n2", 9092), "test", number))

    def wait(self, ms: int = 1_000) -> None:
        self.clock.run(until_us=self.clock.us + ms * 1000)


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_in_order_in_both_directions_whatever_the_pieces(seed: int) -> None:
    two, random = Two(seed), random_for(seed, "test")
    end, sent, answered = two.open(), b"", b""
    for _ in range(100):
        if random.random() < 0.5:
            two.clock.run(until_us=two.clock.us + random.randrange(400_000))
        data = random.randbytes(random.randint(1, 50))
        two.network.send(end, data)
        sent += data
        if two.b.ends:
            two.network.send(two.b.ends[0], data)
            answered += data
        two.there.cuts = int(random.random() < 0.1)
        two.back.cuts = int(random.random() < 0.1)
    two.there.cuts = two.back.cuts = 0
    two.wait(10_000)
    assert two.b.bytes_of(1) == sent
    assert two.a.bytes_of(1) == answered
    assert two.a.losses == two.b.losses == []


def test_a_machine_on_which_no_process_listens_refuses() -> None:
    two = Two()
    two.b.is_listening = False
    two.network.send(two.open(), b"x")
    two.wait()
    assert (two.a.losses, two.b.ends) == ([Loss.REFUSED], [])


def test_a_refused_path_refuses_new_connections_and_leaves_others() -> None:
    two = Two()
    first = two.open()
    two.wait()
    two.there.refusals = 1
    two.open(2)
    two.wait()
    two.network.send(first, b"x")
    two.wait()
    assert (two.a.losses, two.b.got) == ([Loss.REFUSED], [(1, b"x")])


def test_a_machine_without_power_is_unreachable() -> None:
    two = Two()
    two.b.is_up = False
    two.open()
    two.wait(10_000)
    assert two.a.losses == [Loss.UNREACHABLE]


@pytest.mark.parametrize("direction", ["there", "back"])
def test_a_connect_over_a_path_that_is_cut_in_one_direction_times_out(direction: str) -> None:
    two = Two()
    (two.there if direction == "there" else two.back).cuts = 1
    two.open()
    two.wait(10_000)
    assert (two.a.losses, two.b.ends) == ([Loss.TIMED_OUT], [])


def test_bytes_arrive_over_a_path_whose_way_back_is_cut_and_their_sender_times_out() -> None:
    two = Two()
    end = two.open()
    two.wait()
    two.back.cuts = 1
    two.network.send(end, b"x")
    two.wait(1_000)
    assert two.b.got == [(1, b"x")]
    two.wait(10_000)
    assert (two.a.losses, two.b.losses) == ([Loss.TIMED_OUT], []), "the other side is half-open"


def test_a_stalled_stream_goes_on_when_the_path_is_healed() -> None:
    two = Two()
    end = two.open()
    two.wait()
    two.there.cuts = 1
    two.network.send(end, b"x")
    two.wait(500)
    assert two.b.got == []
    two.there.cuts = 0
    two.network.send(end, b"y")
    two.wait(2_000)
    assert (two.b.bytes_of(1), two.a.losses) == (b"xy", [])


def test_a_half_open_connection_is_reset_at_the_first_bytes_after_the_machine_is_back() -> None:
    two = Two()
    end = two.open()
    two.wait()
    two.b.is_up = False
    two.network.vanish(two.b.ends[0])
    two.wait(60_000)
    assert two.a.losses == []
    two.b.is_up = True
    two.network.send(end, b"x")
    two.wait()
    assert two.a.losses == [Loss.RESET]


def test_bytes_to_a_machine_without_power_are_retransmitted_until_it_resets_them() -> None:
    two = Two()
    end = two.open()
    two.wait()
    two.b.is_up = False
    two.network.vanish(two.b.ends[0])
    two.network.send(end, b"x")
    two.wait(1_000)
    two.b.is_up = True
    two.wait(3_000)
    assert two.a.losses == [Loss.RESET]


def test_bytes_of_a_closed_connection_may_arrive_after_those_of_its_successor() -> None:
    for seed in range(300):
        two = Two(seed)
        first = two.open(1)
        two.wait()
        two.network.send(first, b"first")
        two.network.close(first)
        second = two.open(2)
        two.network.send(second, b"second")
        two.wait()
        assert (two.b.bytes_of(1), two.b.bytes_of(2)) == (b"first", b"second")
        assert two.b.losses == [Loss.ENDED]
        if two.b.got[0][0] == 2:
            return
    raise AssertionError("no seed delivers late bytes")
