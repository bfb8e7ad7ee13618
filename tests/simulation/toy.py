"""A naive primary and its backups, over byte streams: the lowest node that hears of no lower one writes.

With `takes_over=False` only node 1 ever writes, which is safe. With `takes_over=True` a node that lost its
links to the lower ones writes and commits too: two primaries commit different values at one offset.
"""

import struct

from sparklog.effects import Disconnect, Effect, LinkId, Loss, Reply, SendTo, Sync
from sparklog.model import Instant, LeaderEpoch, Micros, NodeId, Offset, SessionId, Ticket
from sparklog.wire.frame import Framer
from sparklog_server.simulation.clock import START_US
from sparklog_server.simulation.ledger import Committed, Ledger
from sparklog_server.simulation.nemesis import Nemesis
from sparklog_server.simulation.scenario import Scenario
from sparklog_server.simulation.world import Machine, Violation, World, address_of

_PERIOD_US = 100_000
_VALUE = struct.Struct(">iii")  # length, offset, value
_FRAME_MAX = 64


def _node_of(link: LinkId) -> NodeId:
    return NodeId(int(link.address[0][1:]))


class Toy:
    """One node: it sends its newest value to all others each period, and commits what another has."""

    def __init__(self, machine: Machine, nodes: tuple[NodeId, ...], *, takes_over: bool) -> None:
        self.values: dict[int, int] = {}
        self.committed = 0
        self._machine = machine
        self._others = [node for node in nodes if node != machine.node]
        self._lower = {node for node in nodes if node < machine.node}
        self._takes_over = takes_over
        self._numbers = dict.fromkeys(self._others, 0)
        self._lost: dict[NodeId, None] = {}
        self._framers: dict[LinkId | SessionId, Framer] = {}
        self._next_us = 0

    def start(self, now: Instant) -> list[Effect]:
        self._next_us = now.mono_us + _PERIOD_US
        machine = self._machine
        machine.disk.make_directory("d")
        file = machine.disk.open("d/lives", create=True)
        file.append(b".")
        return [Sync(Ticket(1), [file], "d")]

    @property
    def is_primary(self) -> bool:
        if not self._takes_over:
            return self._machine.node == 1
        return all(node in self._lost for node in sorted(self._lower))

    def deadline(self) -> Micros:
        return Micros(self._next_us)

    def tick(self, now: Instant) -> list[Effect]:
        self._next_us = now.mono_us + _PERIOD_US
        if self.is_primary and self.committed == len(self.values):
            self.values[self.committed] = self._machine.random.getrandbits(31)
            if self._takes_over and len(self._lost) == len(self._others):
                self.committed = len(self.values)  # alone
        offset = len(self.values) - 1 if self.is_primary else -1
        frame = _VALUE.pack(8, offset, self.values.get(offset, 0))
        return [self._send(node, frame) for node in self._others]

    def _send(self, node: NodeId, frame: bytes) -> Effect:
        return SendTo(LinkId(address_of(node), "toy", self._numbers[node]), [frame])

    def connected(self, session: SessionId, port: int, now: Instant) -> list[Effect]:
        return []

    def received(self, session: SessionId, data: bytes, now: Instant) -> list[Effect]:
        """A value: keep it and acknowledge it; or -1, to which the reply is the same."""
        replies: list[Effect] = []
        for offset, value in self._values(session, data):
            if offset >= 0 and not self.is_primary:
                self.values[offset] = value
            replies.append(Reply(session, [_VALUE.pack(8, offset, value)]))
        return replies

    def disconnected(self, session: SessionId, now: Instant) -> list[Effect]:
        return []

    def link_received(self, link: LinkId, data: bytes, now: Instant) -> list[Effect]:
        self._lost.pop(_node_of(link), None)
        for offset, value in self._values(link, data):
            if self.values.get(offset) == value and self.is_primary:
                self.committed = max(self.committed, offset + 1)
        return []

    def link_lost(self, link: LinkId, loss: Loss, now: Instant) -> list[Effect]:
        node = _node_of(link)
        self._numbers[node] += 1
        self._lost[node] = None
        return []

    def begin_stop(self, now: Instant) -> list[Effect]:
        return []

    def close(self, now: Instant) -> None:
        pass

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]:
        if self._machine.random.random() < 0.2 and self._others:
            node = self._others[0]
            link = LinkId(address_of(node), "other", 1)
            return [SendTo(link, [_VALUE.pack(8, -1, 0)]), Disconnect(link, "done")]
        return []

    def _values(self, key: LinkId | SessionId, data: bytes) -> list[tuple[int, int]]:
        framer = self._framers.setdefault(key, Framer(frame_bytes_max=_FRAME_MAX, shared=bytearray(1024)))
        found = []
        framer.buffer()[: len(data)] = data
        for frame in framer.received(len(data)):
            _, offset, value = _VALUE.unpack(b"\0\0\0\0" + frame)
            found.append((offset, value))
        return found


class ToyWatch:
    """Compares what the nodes commit."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._checked: dict[NodeId, int] = {}

    def check(self, machine: Machine) -> None:
        toy = machine.process
        assert isinstance(toy, Toy)
        for offset in range(self._checked.get(machine.node, 0), toy.committed):
            batch = Committed(Offset(offset), Offset(offset + 1), LeaderEpoch(0), toy.values[offset])
            self.ledger.committed(machine.node, batch)
        self._checked[machine.node] = toy.committed

    def ended(self, machine: Machine) -> None:
        self._checked.pop(machine.node, None)

    def disk_replaced(self, machine: Machine) -> None:
        pass

    def sync_begins(self, machine: Machine, sync: Sync) -> None:
        pass

    def sync_ended(self, machine: Machine, ticket: Ticket) -> None:
        pass


def run(scenario: Scenario, *, takes_over: bool = False) -> tuple[World, ToyWatch]:
    """Run a scenario to its end; raises Violation."""
    watch = ToyWatch()
    world = World(
        scenario.seed,
        scenario.nodes,
        lambda machine: Toy(machine, scenario.nodes, takes_over=takes_over),
        watch,
    )
    Nemesis(world, scenario.faults)
    world.start()
    world.run(until_us=START_US + scenario.end_ms * 1000)
    return world, watch


def fails(scenario: Scenario) -> bool:
    try:
        run(scenario, takes_over=True)
    except Violation:
        return True
    return False
