"""The calls of administration: the choice of the broker, deadlines, retries, and the errors of single
items.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from sparklog.client.clock import now_us
from sparklog.client.connection import UnsupportedByBroker, api_of
from sparklog.client.failures import BrokerGone
from sparklog.client.settings import ClientSettings
from sparklog.client.transport import Network
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, RequestTimeout, code_of
from sparklog.model import Micros, NodeId
from sparklog.wire.schema import Message

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Message)

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
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


def settle(results: Mapping[K, V], errors: Mapping[K, BrokerError]) -> dict[K, V]:
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
    """Requests of an administration client: one at a time, each with a deadline."""

    __slots__ = ("network", "settings")

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
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
        while True:
            try:
                return self.network.call(
                    request, reply, node=node, deadline=deadline, version_max=version_max
                )
            except UnicodeEncodeError:
                raise  # a name with a lone surrogate, which no version can encode
            except ValueError:
                raise UnsupportedByBroker(api_of(type(request))) from None
            except (ConnectionFailed, RequestTimeout):
                if node is not None or now_us() >= deadline:
                    raise
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

    def know_brokers(self, deadline: Micros) -> None:
        """Fetch the addresses of all brokers, beyond the bootstrap addresses."""
        while not self.network.cluster.answers:
            if now_us() >= deadline:
                raise RequestTimeout("no broker told of the others in time")
            self.network.poll(deadline)
            self.network.raise_refusal()

    def brokers(self, deadline: Micros) -> list[NodeId]:
        """The ids of all brokers, in order, by a new Metadata request: brokers leave and come back."""
        cluster = self.network.cluster
        told = cluster.answers
        if told:
            cluster.refresh_now()
        while cluster.answers == told:
            if now_us() >= deadline:
                raise RequestTimeout("no broker told of the others in time")
            self.network.poll(deadline)
            self.network.raise_refusal()
        return sorted(cluster.brokers)

    def of_brokers(self, ask: Callable[[NodeId], V], deadline: Micros) -> dict[NodeId, V]:
        """The answers of all brokers, in order of ids; one that leaves the cluster meanwhile is left out."""
        told: dict[NodeId, V] = {}
        for node in self.brokers(deadline):
            try:
                told[node] = ask(node)
            except BrokerGone:
                continue
        return told

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
            told: dict[str, V | BrokerError] = {**strays}
            for node, members in homes.items():
                try:
                    told |= ask(node, members)
                except BrokerGone:
                    continue  # nothing was sent
                except (ConnectionFailed, RequestTimeout):
                    if now_us() >= deadline:
                        raise
            is_late = now_us() >= deadline
            for group, answer in told.items():
                if not isinstance(answer, BrokerError):
                    results[group] = answer
                elif is_late or not is_passing(answer.code):
                    errors[group] = answer
            if len(results) + len(errors) < len(wanted):
                self.pause(deadline)
        return settle({group: results[group] for group in wanted if group in results}, errors)

    def _coordinators(
        self, groups: list[str], deadline: Micros, key_type: int
    ) -> tuple[dict[NodeId, list[str]], dict[str, BrokerError]]:
        """The groups by coordinator, and the groups without one."""
        from sparklog.wire.messages.find_coordinator import (
            Coordinator,
            FindCoordinatorRequest,
            FindCoordinatorResponse,
        )

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
