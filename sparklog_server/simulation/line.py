"""A client driven by a generator, which yields a request and receives the response, or None without one.

    steps ── SimulatedRequest ──► delay ──► the broker ──► delay ──► response ──► steps

The first delay may exceed the client's timeout: the request still arrives, after later ones.
"""

from collections.abc import Generator
from functools import partial
from random import Random
from typing import NamedTuple

from sparklog.wire.schema import Message
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.cluster import SimulatedConnection, SimulatedNode

_DELAY_US = (50, 1_500)
_LATE_US = (200_000, 1_500_000)
_PATIENCE_US = 400_000
_LATE, _UNANSWERED = 0.06, 0.02  # of all requests


class SimulatedRequest(NamedTuple):
    """A request, its version, and the class of its response."""

    request: Message
    version: int
    reply: type[Message]


Steps = Generator[SimulatedRequest | int, Message | None, None]
"""A step of a client: a request, or a pause in microseconds."""


class Line:
    """One client and its connection. Invariant: it waits for one response at a time, and closes the
    connection if it gives up waiting.
    """

    def __init__(
        self, clock: VirtualClock, random: Random, node: SimulatedNode, name: str, steps: Steps
    ) -> None:
        self.is_done = False
        self._clock = clock
        self._random = random
        self._node = node
        self._name = name
        self._steps = steps
        self._connection: SimulatedConnection | None = None
        self._number = 0
        clock.after(random.randint(*_DELAY_US), partial(self._go_on, None, 0))

    def _go_on(self, told: Message | None, number: int) -> None:
        if number != self._number:
            return  # the client no longer waits for this response
        self._number += 1
        try:
            step = self._steps.send(told)
        except StopIteration:
            self.is_done = True
            return
        if isinstance(step, int):
            self._clock.after(step, partial(self._go_on, None, self._number))
        else:
            self._ask(step, self._number)

    def _ask(self, ask: SimulatedRequest, number: int) -> None:
        random, clock = self._random, self._clock
        clock.after(_PATIENCE_US, partial(self._give_up, number))
        if self._connection is None or self._connection.is_closed:
            if self._node.broker is None:
                return
            self._connection = self._node.connect(self._name)
        connection = self._connection
        delay_us = random.randint(*(_LATE_US if random.random() < _LATE else _DELAY_US))
        is_answered = random.random() >= _UNANSWERED
        connection.heard = partial(self._heard, connection, number, is_answered=is_answered)
        clock.after(delay_us, lambda: None if connection.is_closed else connection.send(*ask))

    def _heard(self, connection: SimulatedConnection, number: int, *, is_answered: bool) -> None:
        reply = connection.replies.pop()
        if is_answered:
            self._clock.after(self._random.randint(*_DELAY_US), partial(self._go_on, reply, number))

    def _give_up(self, number: int) -> None:
        if number == self._number:
            self._connection = None  # requests in flight on it still arrive
            self._go_on(None, number)
