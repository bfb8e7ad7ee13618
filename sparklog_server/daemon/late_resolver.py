"""A resolver that imports its modules and creates its objects at the first call."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparklog.model import Instant
from sparklog_server.config.listeners import joined
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.coordinator.txn.events import Answer
from sparklog_server.daemon.jobs import Done, Job
from sparklog_server.daemon.reactor import Reactor

if TYPE_CHECKING:
    from sparklog_server.broker.resolver import SinkResolver
    from sparklog_server.daemon.resolving import Resolving

_ANY_HOST = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (where to reach a listener of all interfaces)


class LateResolver:
    """Implements `broker.transaction_coordinator.Resolver`; it connects to the cluster through this broker's
    inter-broker listener.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        reactor: Reactor,
        *,
        after: Callable[[float, Callable[[], None]], None],
        run: Callable[[Job, Done], None],
        entropy: Callable[[int], bytes],
        trace: Callable[..., None],
    ) -> None:
        self._settings = settings
        self._reactor = reactor
        self._after = after
        self._run = run
        self._entropy = entropy
        self._trace = trace
        self._made: tuple[SinkResolver, Resolving] | None = None

    def verdict(self, transactional_id: str, producer_id: int, producer_epoch: int, now: Instant) -> Answer:
        """See `broker.transaction_coordinator.Resolver`."""
        if self._made is None:
            self._made = self._make()
        resolver, resolving = self._made
        answer = resolver.verdict(transactional_id, producer_id, producer_epoch, now)
        if resolver.is_at_work:
            resolving.call_soon()
        return answer

    def _make(self) -> "tuple[SinkResolver, Resolving]":
        from sparklog.client.settings import ClientSettings
        from sparklog_server.broker.resolver import SinkResolver
        from sparklog_server.daemon.resolving import CLIENT_ID, Resolving

        listener = next(
            one for one in self._settings.listeners if one.name == self._settings.inter_broker_listener_name
        )
        address = joined(_ANY_HOST.get(listener.host, listener.host), listener.port)
        settings = ClientSettings.from_kafka({"bootstrap.servers": address, "client.id": CLIENT_ID})
        resolver = SinkResolver(settings, entropy=self._entropy, trace=self._trace)
        return resolver, Resolving(resolver, self._reactor, after=self._after, run=self._run)
