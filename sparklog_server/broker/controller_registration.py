"""The registration of this node's controller, which tells the cluster its listeners and features (KIP-919).

new image ── without this incarnation ──► asked ── refused ──► asked again after 0.1 s to 2 min
    └────── with it ──► nothing is due          └─ granted ──► the next image has it
"""

from typing import Final

from sparklog.model import Instant, Micros, NodeId, Uuid
from sparklog.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from sparklog_server.broker.context import Context
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.features import METADATA_VERSION, SUPPORTED

_PAUSE_US: Final = 100_000
_PAUSE_US_MAX: Final = 120_000_000


class ControllerRegistration:
    """Invariant: at most one request waits for its answer."""

    def __init__(self, context: Context, incarnation_id: Uuid) -> None:
        self.deadline_us: Micros | None = None
        """When `tick` is wanted."""
        self._context = context
        self._request = _request_of(context.settings, incarnation_id)
        self._is_asked = False
        self._pause_us = _PAUSE_US

    def published(self, now: Instant) -> None:
        """There is a new image: register if it has a cluster, and not this incarnation."""
        is_begun = METADATA_VERSION in self._context.image.features
        if self._is_asked or self.deadline_us is not None or self.is_registered or not is_begun:
            return
        self._is_asked = True
        self._context.propose(self._request, ControllerRegistrationResponse, self._answered, now)

    def tick(self, now: Instant) -> None:
        """Repeat a refused registration."""
        if self.deadline_us is not None and self.deadline_us <= now.mono_us:
            self.deadline_us = None
            self.published(now)

    @property
    def is_registered(self) -> bool:
        """Whether the cluster knows this incarnation."""
        known = self._context.image.controllers.get(NodeId(self._request.controller_id))
        return known is not None and known.incarnation_id == self._request.incarnation_id

    def _answered(self, reply: ControllerRegistrationResponse, now: Instant) -> None:
        self._is_asked = False
        if reply.error_code:
            self.deadline_us = Micros(now.mono_us + self._pause_us)
            self._pause_us = min(2 * self._pause_us, _PAUSE_US_MAX)
        else:
            self._pause_us = _PAUSE_US


def _request_of(settings: BrokerSettings, incarnation_id: Uuid) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=settings.node_id,
        incarnation_id=incarnation_id,
        listeners=[
            Listener(one.name, one.host, one.port, one.protocol_number)
            for one in settings.advertised_listeners
            if one.name in settings.controller_listener_names
        ],
        features=[Feature(name, low, high) for name, (low, high) in SUPPORTED.items()],
    )
