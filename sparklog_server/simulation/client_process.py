"""A client as a process of a simulated machine: steps that ask one node after the other, over the network
with its faults.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple

from sparklog.effects import Disconnect, Effect, LinkId, Loss, SendTo
from sparklog.model import Instant, Micros, NodeId, SessionId, Ticket
from sparklog.wire.frame import Framer
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.schema import Message
from sparklog_server.simulation.world import Machine

_FRAME_BYTES_MAX = 4 << 20
_PORT = 9092
_PATIENCE_US = 6_000_000
"""After so long without a response a client tries another connection."""


class Ask(NamedTuple):
    """A request to a node, its version, and the class of its response."""

    node: NodeId
    request: Message
    version: int
    reply: type[Message]


Steps = Generator[Ask | int, Message | None, None]
"""Each step yields a request, and gets the response, or None if it is lost; or a wait in microseconds."""


class ClientProcess:
    """Invariant: one request is outstanding at most."""

    def __init__(self, machine: Machine, steps: Callable[[], Steps]) -> None:
        self._machine = machine
        self._begin = steps
        self._steps: Steps
        self._links: dict[NodeId, tuple[LinkId, Framer]] = {}
        self._link_count = 0
        self._correlation = 0
        self._asked: Ask | None = None
        self._due_us: Micros | None = None

    def start(self, now: Instant) -> list[Effect]:
        """Take the first step."""
        self._steps = self._begin()
        return self._go_on(None, now)

    def link_received(self, link: LinkId, data: bytes, now: Instant) -> list[Effect]:
        """Bytes of a response."""
        node = self._node_of(link)
        framer = self._links[node][1] if node is not None else None
        effects: list[Effect] = []
        position = 0
        while framer is not None and position < len(data):
            room = framer.buffer()
            size = min(len(room), len(data) - position)
            room[:size] = data[position : position + size]
            position += size
            for frame in framer.received(size):
                asked = self._asked
                assert asked is not None, "a response without a request"
                assert asked.node == node
                correlation, response = decode_reply(asked.reply, asked.version, bytes(frame))
                assert correlation == self._correlation
                effects += self._go_on(response, now)
        return effects

    def link_lost(self, link: LinkId, loss: Loss, now: Instant) -> list[Effect]:
        """A connection is lost, and the request on it."""
        node = self._node_of(link)
        if node is None:
            return []
        del self._links[node]
        return self._go_on(None, now) if self._asked is not None and self._asked.node == node else []

    def tick(self, now: Instant) -> list[Effect]:
        """A wait is over, or a request has got no response."""
        if self._due_us is None or self._due_us > now.mono_us:
            return []
        effects: list[Effect] = []
        if self._asked is not None:
            link, _ = self._links.pop(self._asked.node)
            effects.append(Disconnect(link, "no response", is_at_once=True))
        return effects + self._go_on(None, now)

    def deadline(self) -> Micros | None:
        """The end of a wait."""
        return self._due_us

    def _go_on(self, response: Message | None, now: Instant) -> list[Effect]:
        self._asked = self._due_us = None
        try:
            step = self._steps.send(response)
        except StopIteration:
            return []
        if isinstance(step, int):
            self._due_us = Micros(now.mono_us + step)
            return []
        if step.node not in self._links:
            self._link_count += 1
            link = LinkId((f"n{step.node}", _PORT), "client", self._link_count)
            framer = Framer(frame_bytes_max=_FRAME_BYTES_MAX, shared=bytearray(1 << 16))
            self._links[step.node] = (link, framer)
        link, _ = self._links[step.node]
        self._asked = step
        self._due_us = Micros(now.mono_us + _PATIENCE_US)
        self._correlation += 1
        chunks = encode_request(step.request, step.version, self._correlation, "simulated")
        return [SendTo(link, chunks)]

    def _node_of(self, link: LinkId) -> NodeId | None:
        return next((node for node, (own, _) in self._links.items() if own == link), None)

    # -- calls that a client does not get

    def connected(self, session: SessionId, port: int, now: Instant) -> list[Effect]:
        """No process connects to a client."""
        raise AssertionError("a connection to a client")

    def received(self, session: SessionId, data: bytes, now: Instant) -> list[Effect]:
        """There is no session."""
        raise AssertionError("bytes for a client")

    def disconnected(self, session: SessionId, now: Instant) -> list[Effect]:
        """There is no session."""
        raise AssertionError("a session of a client")

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]:
        """A client has no disk."""
        raise AssertionError("a job of a client")

    def begin_stop(self, now: Instant) -> list[Effect]:
        """A client ends with its run."""
        return []

    def close(self, now: Instant) -> None:
        """A client ends with its run."""
