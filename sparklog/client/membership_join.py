"""The JoinGroup request of a classic member, and the time limits of its requests."""

from collections.abc import Mapping
from typing import Final

from sparklog.client.membership import US_PER_MS
from sparklog.client.settings import ClientSettings
from sparklog.wire.messages.consumer_protocol import PROTOCOL_TYPE
from sparklog.wire.messages.heartbeat import HeartbeatRequest
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from sparklog.wire.schema import Message

_JOIN_MARGIN_US: Final = 5_000 * US_PER_MS
"""A JoinGroup is answered when the rebalance timeout is over at the latest; the request waits that much
longer, as in Kafka's consumer.
"""


def join_request(
    settings: ClientSettings, group_id: str, member_id: str, subscriptions: Mapping[str, bytes]
) -> JoinGroupRequest:
    """A JoinGroup with the encoded subscription for each assignor, the preferred one first."""
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
        member_id=member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name, encoded) for name, encoded in subscriptions.items()],
    )


def timeout_us(request: Message, settings: ClientSettings) -> int:
    """The time that the request may wait for its reply."""
    given_us = settings.request_timeout_ms * US_PER_MS
    if isinstance(request, JoinGroupRequest):
        return max(given_us, settings.max_poll_interval_ms * US_PER_MS + _JOIN_MARGIN_US)
    if isinstance(request, HeartbeatRequest):
        return min(given_us, settings.session_timeout_ms * US_PER_MS)
    return given_us
