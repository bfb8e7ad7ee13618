"""Fetch sessions (KIP-227), as far as those of followers and of consumers are the same: ids, epochs, and the
keys of partitions.
"""

from collections.abc import Callable, Container
from typing import Final, Protocol

from sparklog.errors import ErrorCode
from sparklog.model import Uuid
from sparklog.wire.schema import INT32_MAX

FULL_FETCH: Final = 0
"""The epoch of a request that names every partition, and asks for a new session."""
NO_SESSION: Final = -1
"""The epoch of a request that names every partition, and wants no session."""
FIRST_EPOCH: Final = 1
"""The epoch of the second request of a session."""
UNUSED_US: Final = 120_000_000
"""A session that is unused for longer gives way to a new one (Kafka: a constant of BrokerServer)."""
PartKey = tuple[Uuid | str, int]
"""(topic id, or name before version 13; partition)."""


class FetchSession(Protocol):
    """A session whose next request must have `epoch`."""

    epoch: int
    uses_topic_ids: bool


def refusal_of(session: FetchSession, epoch: int, *, uses_topic_ids: bool) -> ErrorCode | None:
    """Why a request cannot be the next one of a session; None if it can."""
    if session.epoch != epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if session.uses_topic_ids != uses_topic_ids:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    return None


def epoch_after(epoch: int) -> int:
    """The epoch that follows; after the greatest, the first one."""
    return FIRST_EPOCH if epoch == INT32_MAX else epoch + 1


def new_id(entropy: Callable[[int], bytes], taken: Container[int]) -> int:
    """A random positive id that is not taken."""
    session_id = 0
    while session_id == 0 or session_id in taken:
        session_id = int.from_bytes(entropy(4), "big") & INT32_MAX
    return session_id


def key_of(name: str, topic_id: bytes, index: int, *, uses_topic_ids: bool) -> PartKey:
    """The key of a partition that a request names."""
    return (Uuid(topic_id) if uses_topic_ids else name), index
