"""The resolver of the exactly-once sink over links: it asks the brokers of its own cluster as a client does.

    verdict ─► SinkResolver ─► requests ─► links.ask ─► the broker that leads the decisions of the sink
                    ▲                                                                  │
                    └──────────────────── response, or its loss ◄──────────────────────┘

It begins at the inter-broker listener of this broker. Its modules are imported at the first question.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from sparklog.effects import Loss
from sparklog.model import Instant, Micros, NodeId
from sparklog.wire.schema import Message
from sparklog_server.agenda import Agenda
from sparklog_server.broker.cluster.links import CLIENT, Address, Links
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.config.listeners import joined
from sparklog_server.coordinator.txn.events import Answer

if TYPE_CHECKING:
    from sparklog_server.broker.coordinators.resolver import ResolverRequest, SinkResolver

_TIMEOUT_US: Final = 30_000_000
_IDLE_US: Final = 5_000_000
"""How often to check whether the records and the links can be dropped."""
_ANY_HOST: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (where to reach a listener of all interfaces)


class LinkedResolver:
    """Implements `broker.transaction_coordinator.Resolver`. `deadline_us` is None until the first question,
    and again a minute after the last one.
    """

    def __init__(
        self,
        live: DynamicBrokerConfig,
        links: Links,
        agenda: Agenda,
        *,
        entropy: Callable[[int], bytes],
        trace: Callable[..., None],
    ) -> None:
        self.deadline_us: Micros | None = None
        self._live = live
        self._links = links
        self._agenda = agenda
        self._entropy = entropy
        self._trace = trace
        self._resolver: SinkResolver | None = None
        self._used: dict[Address, None] = {}  # the links that may be open

    def verdict(self, transactional_id: str, producer_id: int, producer_epoch: int, now: Instant) -> Answer:
        """See `broker.transaction_coordinator.Resolver`."""
        if self._resolver is None:
            self._resolver = self._make()
        answer = self._resolver.verdict(transactional_id, producer_id, producer_epoch, now)
        self._send(self._resolver, now)
        return answer

    def tick(self, now: Instant) -> None:
        """Send what is due, or drop all state when no verdict has been requested for a while."""
        if self._resolver is not None and self.deadline_us is not None and self.deadline_us <= now.mono_us:
            self._send(self._resolver, now)

    def _make(self) -> "SinkResolver":
        from sparklog.client.settings import ClientSettings
        from sparklog_server.broker.coordinators.resolver import SinkResolver

        settings = self._live.settings
        name = settings.inter_broker_listener_name
        listener = next(one for one in settings.listeners if one.name == name)
        address = joined(_ANY_HOST.get(listener.host, listener.host), listener.port)
        client = ClientSettings.from_kafka({"bootstrap.servers": address, "client.id": "sparklog-resolver"})
        return SinkResolver(client, entropy=self._entropy, trace=self._trace)

    def _send(self, resolver: "SinkResolver", now: Instant) -> None:
        self._agenda.has_deadlines = True
        if resolver.forget(now.mono_us):
            for address in self._used:
                self._links.close(address, CLIENT)
            self._used.clear()
            self.deadline_us = None
            return
        for ask in resolver.asks(now.mono_us):
            self._ask(resolver, ask, now)
        due_us = resolver.deadline()
        idle_us = Micros(now.mono_us + _IDLE_US)
        self.deadline_us = idle_us if due_us is None else max(due_us, Micros(now.mono_us + 1_000))

    def _ask(self, resolver: "SinkResolver", ask: "ResolverRequest", now: Instant) -> None:
        cluster = resolver.cluster
        nodes = cluster.candidates() if ask.node is None else [ask.node]
        node = next((one for one in nodes if cluster.may_connect(one, now.mono_us)), None)
        broker = None if node is None else cluster.brokers.get(node)
        if node is None or broker is None:
            resolver.failed(ask, now.mono_us)
            return
        address = (broker.host, broker.port)
        self._used[address] = None
        self._links.ask(
            address,
            CLIENT,
            ask.message,
            partial(self._answered, ask, node),
            now,
            timeout_us=_TIMEOUT_US,
            version_max=ask.version_max,
        )

    def _answered(self, ask: "ResolverRequest", node: NodeId, answer: Message | Loss, now: Instant) -> None:
        resolver = self._resolver
        assert resolver is not None
        if isinstance(answer, Loss):
            resolver.cluster.connect_failed(node, now.mono_us)
            resolver.failed(ask, now.mono_us)
        else:
            resolver.cluster.connected(node)
            resolver.replied(ask, answer, now.mono_us)
        self._send(resolver, now)
