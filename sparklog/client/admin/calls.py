"""The calls of administration: the choice of the broker, deadlines, retries, and the errors of single
items.

    any broker      `ask` (reads: another broker is asked too if the first is silent), `call`
    all brokers     `admin_fan_out.of_brokers`: at once, an answer or an error by node id
    coordinators    `of_coordinators`: each about its groups or transactional ids
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from sparklog.client.clock import now_us
from sparklog.client.cluster import NO_NODE
from sparklog.client.failures import BrokerGone
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.connection import UnsupportedByBroker, api_of
from sparklog.client.transport.network import Network
from sparklog.errors import (
    BrokerError,
    ConnectionFailed,
    ErrorCode,
    RequestTimeout,
    code_of,
)
from sparklog.model import Micros, NodeId
from sparklog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.schema import Message

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Message)

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
_ANOTHER_US: Final = 1_000_000
"""A read that any broker answers is sent to another one after this time without a reply: one may hang."""
CONNECT_US: Final = 2_000_000
"""A broker that opens no connection for this long, or for twice the time in which all others have answered,
is silent.
"""
AGAIN_US: Final = 250_000
"""The patience with a broker that was silent before."""
_TO_BE_TOLD: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that Kafka's table calls retriable, because metadata may be late; an administrator should see them
at once.
"""


class ItemsFailed(BrokerError):
    """Some of the items of a call failed. `errors` and `results` are by item, as the caller named it;
    `code` is that of the first error.
    """

    # Any: the type of an item is that of the caller's argument.
    def __init__(self, errors: Mapping[Any, BrokerError], results: Mapping[Any, Any]) -> None:
        first = next(iter(errors.values()))
        super().__init__(first.code)
        more = len(errors) - 1
        self.args = (str(first) + (f" (and {more} more failed)" if more else ""),)
        self.errors = dict(errors)
        self.results = dict(results)


def settle(results: Mapping[K, V], errors: Mapping[Any, BrokerError]) -> dict[K, V]:
    """The results if no item failed; raises ItemsFailed otherwise."""
    if errors:
        raise ItemsFailed(errors, results)
    return dict(results)


def refusal(code: int, what: str, message: str | None = None) -> BrokerError | None:
    """The error of one item, with its name and the broker's message, if any; None for success."""
    if not code:
        return None
    if message:
        what = message if what.lower() in message.lower() else f"{what}: {message}"
    return BrokerError(code_of(code), what)


def raise_for(code: int, what: str, message: str | None = None) -> None:
    """Raise the error of a whole response, if it has one."""
    error = refusal(code, what, message)
    if error is not None:
        raise error


def is_passing(code: ErrorCode) -> bool:
    """Whether the error is retriable, and none of those that the caller must see."""
    return code.is_retriable and code not in _TO_BE_TOLD


class Caller:
    """Requests of an administration client: one call at a time, each with a deadline.

    `silent` has the brokers that did not answer lately. A survey, which does not await them until the
    deadline, names them after CONNECT_US, from then on after AGAIN_US, and goes on with the others.
    """

    __slots__ = ("awaits_silent", "network", "settings", "silent")

    def __init__(self, settings: ClientSettings, *, awaits_silent: bool = True) -> None:
        self.settings = settings
        self.awaits_silent = awaits_silent
        self.silent: dict[NodeId, None] = {}
        self.network = Network(settings)
        self.network.allow_auto_create = False  # a request for a deleted topic must not create it again

    def deadline(self) -> Micros:
        """The deadline of a call that begins now."""
        return Micros(now_us() + self.settings.default_api_timeout_ms * 1000)

    def pause(self, deadline: Micros) -> None:
        """Wait for the retry back-off; raises RequestTimeout at the deadline."""
        if now_us() >= deadline:
            raise RequestTimeout("the cluster did not come to the state asked for in time")
        self.network.rest(self.settings.retry_backoff_ms * 1000)

    def call(
        self,
        request: Message,
        reply: type[R],
        deadline: Micros,
        *,
        node: NodeId | None = None,
        version_max: int | None = None,
    ) -> R:
        """Send one request; to any broker, unless `node` is given, until there is a response.

        Raises UnsupportedByBroker also if no version of the broker can express it.
        """
        if node is not None:
            self._require_voice(node, deadline)
        while True:
            try:
                answer = self.network.call(
                    request, reply, node=node, deadline=deadline, version_max=version_max
                )
            except UnicodeEncodeError:
                raise  # a name with a lone surrogate, which no version can encode
            except ValueError:
                raise UnsupportedByBroker(api_of(type(request))) from None
            except (ConnectionFailed, RequestTimeout):
                if node is not None or now_us() >= deadline:
                    raise
            else:
                if node is not None:
                    self.silent.pop(node, None)
                return answer
            self.pause(deadline)

    def ask(
        self,
        request: Message,
        reply: type[R],
        deadline: Micros,
        codes: Callable[[R], Iterable[int]],
        *,
        node: NodeId | None = None,
    ) -> R:
        """Repeat a read-only request until the response has no retriable error. Raises BrokerError for the
        first other error.
        """
        while True:
            try:
                if node is None:
                    answer = self._of_any(request, reply, deadline)
                else:
                    answer = self.call(request, reply, deadline, node=node)
            except BrokerGone:
                raise
            except (ConnectionFailed, RequestTimeout):
                if now_us() >= deadline:
                    raise
            else:
                errors = [code_of(code) for code in codes(answer) if code]
                if not errors or not all(map(is_passing, errors)) or now_us() >= deadline:
                    for code in errors:
                        raise BrokerError(code)
                    return answer
            self.pause(deadline)

    def _of_any(self, request: Message, reply: type[R], deadline: Micros) -> R:
        """The reply of any broker: each second without one, one more is asked. Raises as `Network.call`."""
        network = self.network
        asked: dict[NodeId, tuple[object] | None] = {}  # None: the request has failed
        asked_us = Micros(0)
        while True:
            network.raise_refusal()
            now = now_us()
            is_late = now >= asked_us + _ANOTHER_US
            target = self._next_of_any(asked, is_late=is_late)
            if target != NO_NODE:
                asked[target], asked_us = (token := (object(),)), now
                wait_us = min(deadline - now, self.settings.request_timeout_ms * 1000)
                try:
                    network.send(target, request, token, timeout_us=max(0, wait_us))
                except UnicodeEncodeError:
                    raise  # a name with a lone surrogate, which no version can encode
                except ValueError:
                    raise UnsupportedByBroker(api_of(type(request))) from None
            elif now >= deadline:
                raise network.not_in_time("broker that answers")
            is_fresh = bool(asked) and (target != NO_NODE or not is_late)
            until = min(deadline, Micros(asked_us + _ANOTHER_US)) if is_fresh else deadline
            for answer in network.poll(until):
                node = next((node for node, token in asked.items() if token is answer.token), None)
                if node is None:
                    continue  # of an earlier call
                if answer.error is None:
                    self.silent.pop(node, None)
                    assert isinstance(answer.message, reply)
                    return answer.message
                asked[node] = None
                if not any(asked.values()):
                    raise answer.error

    def _next_of_any(self, asked: Mapping[NodeId, object], *, is_late: bool) -> NodeId:
        """The broker to ask now; NO_NODE if none is ready, or needed."""
        network = self.network
        if not asked:
            target = network.anyone()
            return target if target != NO_NODE and network.is_ready(target) else NO_NODE
        if not is_late:
            return NO_NODE
        others = (node for node in network.cluster.candidates() if node not in asked)
        return next((node for node in others if network.is_ready(node)), NO_NODE)

    def know_brokers(self, deadline: Micros) -> None:
        """Fetch the addresses of all brokers, beyond the bootstrap addresses."""
        if not self.network.cluster.answers:
            self.metadata(deadline)

    def metadata(self, deadline: Micros, topics: Iterable[str] = ()) -> MetadataResponse:
        """The brokers, which the network knows from now on, and these topics if they exist."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        reply = self.ask(request, MetadataResponse, deadline, lambda _: ())
        self.network.cluster.replied(reply, now_us())
        return reply

    def brokers(self, deadline: Micros) -> list[NodeId]:
        """The ids of all brokers, in order, by a new Metadata request: brokers leave and come back."""
        self.metadata(deadline)
        return sorted(self.network.cluster.brokers)

    def name_of(self, node: NodeId) -> str:
        """The broker with its address, for messages."""
        broker = self.network.cluster.brokers.get(node)
        return f"broker {node}" if broker is None else f"broker {node} at {broker.host}:{broker.port}"

    def _require_voice(self, node: NodeId, deadline: Micros) -> None:
        """Raise RequestTimeout soon for a broker that was silent before and opens no connection now."""
        if not self._is_given_up(node):
            return
        until = min(deadline, Micros(now_us() + AGAIN_US))
        while not self.network.is_ready(node) and not self.network.is_connected(node):
            if now_us() >= until or self.network.cluster.has_left(node):
                raise RequestTimeout(f"{self.name_of(node)} does not answer")
            self.network.poll(until)

    def _as_they_connect(self, nodes: Iterable[NodeId], deadline: Micros) -> Iterator[NodeId]:
        """Each of the brokers, those first that open a connection: one that hangs keeps no other waiting."""
        network, left = self.network, list(nodes)
        has_left = network.cluster.has_left
        until = min(deadline, Micros(now_us() + CONNECT_US))
        while left:
            is_over = now_us() >= until or all(map(self._is_given_up, left))
            is_last = len(left) == 1 and self.awaits_silent
            for node in left[:]:
                is_open = network.is_ready(node) or network.is_connected(node) or has_left(node)
                if is_over and not is_open:
                    self.silent[node] = None
                if is_open or is_over or is_last:
                    left.remove(node)
                    yield node
            if left:
                network.poll(until)

    def _is_given_up(self, node: NodeId) -> bool:
        """Whether the answer of a silent broker is not waited for."""
        return node in self.silent and not self.awaits_silent

    def require(self, node: int, deadline: Micros) -> NodeId:
        """That broker, if the cluster has it; raises BrokerError (BROKER_NOT_AVAILABLE) with the ids of the
        existing brokers.
        """
        known = self.brokers(deadline)
        if node not in known:
            raise BrokerError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"there is no broker {node}; there are {', '.join(map(str, known))}",
            )
        return NodeId(node)

    # -- groups and transactions -----------------------------------------------------------------------------

    def of_coordinators(
        self,
        groups: Iterable[str],
        ask: Callable[[NodeId, list[str]], Mapping[str, V | BrokerError]],
        deadline: Micros,
        *,
        key_type: int = GROUP_KEY,
    ) -> dict[str, V]:
        """Send one request to each coordinator for its groups (or transactional ids, by `key_type`), again if
        it is no longer the coordinator or its response is lost. Raises ItemsFailed by group.
        """
        self.know_brokers(deadline)
        results: dict[str, V] = {}
        errors: dict[str, BrokerError] = {}
        wanted = list(dict.fromkeys(groups))
        while left := [group for group in wanted if group not in results and group not in errors]:
            try:
                homes, strays = self._coordinators(left, deadline, key_type)
            except (ConnectionFailed, RequestTimeout):
                if now_us() >= deadline:
                    raise
                self.pause(deadline)
                continue
            outcomes: dict[str, V | BrokerError] = {**strays}
            for node in self._as_they_connect(homes, deadline):
                try:
                    outcomes |= ask(node, homes[node])
                except BrokerGone:
                    continue  # nothing was sent
                except (ConnectionFailed, RequestTimeout):
                    is_given_up = self._is_given_up(node)
                    if not is_given_up and now_us() < deadline:
                        continue
                    if not is_given_up and not results and not outcomes:
                        raise
                    for group in homes[node]:
                        errors[group] = BrokerError(
                            ErrorCode.REQUEST_TIMED_OUT,
                            f"{self.name_of(node)}, the coordinator of {group!r}, does not answer",
                        )
            is_late = now_us() >= deadline
            for group, answer in outcomes.items():
                if not isinstance(answer, BrokerError):
                    results[group] = answer
                elif is_late or not is_passing(answer.code):
                    errors[group] = answer
            if len(results) + len(errors) < len(wanted):
                self.pause(deadline)
        return settle(
            {group: results[group] for group in wanted if group in results},
            {group: errors[group] for group in wanted if group in errors},
        )

    def _coordinators(
        self, groups: list[str], deadline: Micros, key_type: int
    ) -> tuple[dict[NodeId, list[str]], dict[str, BrokerError]]:
        """The groups by coordinator, and the groups without one."""
        try:
            asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=groups)
            found = self.call(asked, FindCoordinatorResponse, deadline).coordinators
        except UnsupportedByBroker:
            # Before v4 a request names one group.
            found = []
            for group in groups:
                one = self.call(
                    FindCoordinatorRequest(key=group, key_type=key_type),
                    FindCoordinatorResponse,
                    deadline,
                    version_max=3,
                )
                found.append(
                    Coordinator(group, one.node_id, one.host, one.port, one.error_code, one.error_message)
                )
        homes: dict[NodeId, list[str]] = {}
        errors: dict[str, BrokerError] = {}
        what = "group" if key_type == GROUP_KEY else "transactional id"
        for home in found:
            error = refusal(home.error_code, f"{what} {home.key!r}", home.error_message)
            if error is None and home.node_id not in self.network.cluster.brokers:
                self.network.cluster.refresh_soon()
                error = BrokerError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"broker {home.node_id}, the coordinator of {home.key!r}, is away",
                )
            if error is None:
                homes.setdefault(NodeId(home.node_id), []).append(home.key)
            else:
                errors[home.key] = error
        return homes, errors
