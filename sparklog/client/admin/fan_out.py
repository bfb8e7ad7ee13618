"""One question to all brokers at the same time: what answers is told apart from what does not.

A broker that leads nothing answers that it has nothing. One that has no answer is an error by its node id,
never an empty answer: it is refused, hangs, or cannot be reached. One that leaves the cluster meanwhile has
no error; what it had may have moved to a broker that answered before.
"""

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from sparklog.client.admin.calls import AGAIN_US, CONNECT_US, Caller, is_passing
from sparklog.client.clock import now_us
from sparklog.client.transport.connection import UnsupportedByBroker, api_of
from sparklog.errors import (
    BrokerError,
    ConnectionFailed,
    ErrorCode,
    RequestTimeout,
    SparklogError,
    code_of,
)
from sparklog.model import Micros, NodeId
from sparklog.wire.schema import Message

R = TypeVar("R", bound=Message)

_LOOK_AGAIN_US = 1_000_000
"""How often the list of brokers is read again while one is waited for: a broker that hangs is fenced."""


class Answers(NamedTuple, Generic[R]):
    """The replies and the errors by node id, in order, and the brokers that have left meanwhile."""

    replies: dict[NodeId, R]
    errors: dict[NodeId, BrokerError]
    left: frozenset[NodeId]


def of_brokers(
    caller: Caller,
    nodes: Iterable[NodeId],
    request: Message,
    reply: type[R],
    deadline: Micros,
    codes: Callable[[R], Iterable[int]],
    *,
    otherwise: Message | None = None,
) -> Answers[R]:
    """Ask brokers a read-only question, again until the deadline while its error is retriable. Ask
    `otherwise` instead if a broker has no version that can express the request.

    Raises the error of the first broker if none has answered.
    """
    survey = _Survey(caller, nodes, request, deadline, otherwise)
    replies: dict[NodeId, R] = {}
    while survey.is_open:
        for node, answer in survey.turn():
            assert isinstance(answer, reply)
            errors_of_node = [code_of(code) for code in codes(answer) if code]
            if errors_of_node and all(map(is_passing, errors_of_node)) and survey.repeat(node):
                continue
            if errors_of_node:
                survey.fail(node, BrokerError(errors_of_node[0], f"broker {node}"))
            else:
                replies[node] = answer
    errors = survey.errors
    if errors and not replies:
        raise errors[min(errors)]
    return Answers(
        {node: replies[node] for node in sorted(replies)},
        {node: _as_broker_error(errors[node]) for node in sorted(errors)},
        frozenset(survey.left),
    )


def of_coordinating_brokers(
    caller: Caller,
    topic: str,
    request: Message,
    reply: type[R],
    codes: Callable[[R], Iterable[int]],
    *,
    otherwise: Message | None = None,
) -> tuple[dict[NodeId, R], dict[NodeId | str, BrokerError]]:
    """As `of_brokers`, for what the leaders of an internal topic coordinate: all brokers are asked again if
    one leaves meanwhile. The error of partitions without a leader is by the name of the topic.
    """
    deadline = caller.deadline()
    while True:
        metadata = caller.metadata(deadline, [topic])
        brokers = sorted(caller.network.cluster.brokers)
        replies, errors, left = of_brokers(
            caller, brokers, request, reply, deadline, codes, otherwise=otherwise
        )
        if not left:
            break
        caller.pause(deadline)
    partitions = [one for t in metadata.topics if t.name == topic for one in t.partitions]
    offline = sum(one.leader_id < 0 for one in partitions)
    named: dict[NodeId | str, BrokerError] = dict(errors.items())
    if offline:
        words = f"{offline} of {len(partitions)} partitions of {topic} have no leader, and list nothing"
        named[topic] = BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, words)
    return replies, named


def _as_broker_error(error: SparklogError) -> BrokerError:
    return error if isinstance(error, BrokerError) else BrokerError(ErrorCode.REQUEST_TIMED_OUT, str(error))


class _Survey:
    """One question: the brokers that are still to answer, those that have an error, and those that left."""

    def __init__(
        self,
        caller: Caller,
        nodes: Iterable[NodeId],
        request: Message,
        deadline: Micros,
        otherwise: Message | None,
    ) -> None:
        self.errors: dict[NodeId, SparklogError] = {}
        self.left: dict[NodeId, None] = {}
        self._caller = caller
        self._network = caller.network
        self._request = request
        self._otherwise = otherwise
        self._begun = self._heard = self._looked = now_us()
        self._deadline = deadline
        self._open = dict.fromkeys(nodes)
        self._tokens: dict[NodeId, tuple[object]] = {}
        self._not_before: dict[NodeId, Micros] = {}

    @property
    def is_open(self) -> bool:
        """Whether a broker has still to answer."""
        return bool(self._open)

    def turn(self) -> list[tuple[NodeId, Message]]:
        """Ask the brokers that are ready, and wait for the next event; the answers since."""
        self._network.raise_refusal()
        now = now_us()
        for node in list(self._open):
            if self._network.cluster.has_left(node):
                self.left[node] = None
                self._close(node)
            elif node not in self._tokens and now >= self._not_before.get(node, now):
                self._ask(node, now)
        until = self._until()
        if now >= until:
            self._give_up(now)
        if not self._open:
            return []
        if now >= self._looked + _LOOK_AGAIN_US:
            self._looked = now
            self._network.cluster.refresh_soon()
        answered: list[tuple[NodeId, Message]] = []
        events = (*self._not_before.values(), Micros(self._looked + _LOOK_AGAIN_US))
        for answer in self._network.poll(min(until, *events)):
            asked = next((one for one, token in self._tokens.items() if token is answer.token), None)
            if asked is None:
                continue  # of an earlier call
            if answer.message is not None:
                self._close(asked)
                self._caller.silent.pop(asked, None)
                self._heard = now_us()
                answered.append((asked, answer.message))
            elif isinstance(answer.error, ConnectionFailed | RequestTimeout):
                self._wait(asked)
            else:
                assert answer.error is not None
                self.fail(asked, answer.error)
        return answered

    def repeat(self, node: NodeId) -> bool:
        """Ask a broker again after the back-off; False if there is no time for it."""
        if now_us() >= self._deadline:
            return False
        self._open[node] = None
        self._wait(node)
        return True

    def fail(self, node: NodeId, error: SparklogError) -> None:
        """A broker has no answer."""
        self._close(node)
        self.errors[node] = error

    def _close(self, node: NodeId) -> None:
        for kept in (self._open, self._tokens, self._not_before):
            kept.pop(node, None)

    def _wait(self, node: NodeId) -> None:
        self._tokens.pop(node, None)
        self._not_before[node] = Micros(now_us() + self._caller.settings.retry_backoff_ms * 1000)

    def _ask(self, node: NodeId, now: Micros) -> None:
        self._not_before.pop(node, None)
        if not self._network.is_ready(node):
            return
        wait_us = max(0, min(self._deadline - now, self._caller.settings.request_timeout_ms * 1000))
        token = (object(),)
        try:
            self._send(node, self._request, token, wait_us)
        except UnsupportedByBroker as error:
            if self._otherwise is None:
                self.fail(node, error)
                return
            self._send(node, self._otherwise, token, wait_us)
        self._tokens[node] = token

    def _send(self, node: NodeId, request: Message, token: tuple[object], wait_us: int) -> None:
        try:
            self._network.send(node, request, token, timeout_us=wait_us)
        except UnicodeEncodeError:
            raise  # a name with a lone surrogate, which no version can encode
        except ValueError:
            raise UnsupportedByBroker(api_of(type(request))) from None

    def _until(self) -> Micros:
        """When the brokers that have not answered are given up: at the deadline, or soon if they are all that
        is missing and open no connection.
        """
        if self._caller.awaits_silent or not all(map(self._is_mute, self._open)):
            return self._deadline
        is_known = all(node in self._caller.silent for node in self._open)
        patience_us = AGAIN_US if is_known else max(CONNECT_US, 2 * (self._heard - self._begun))
        return min(self._deadline, Micros(self._begun + patience_us))

    def _is_mute(self, node: NodeId) -> bool:
        return node not in self._not_before and not self._network.is_connected(node)

    def _give_up(self, now: Micros) -> None:
        waited_s = (now - self._begun) / 1e6
        for node in list(self._open):
            self._caller.silent[node] = None
            text = f"{self._caller.name_of(node)} did not answer within {waited_s:.1f} s"
            self.fail(node, RequestTimeout(text))
