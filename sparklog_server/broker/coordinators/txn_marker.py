"""The end of one transaction in some partitions, and what became of it in each."""

from collections.abc import Callable, Mapping

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant, TopicPartition

Outcomes = Mapping[TopicPartition, ErrorCode]


Done = Callable[[Outcomes, Instant], None]
"""Told once, within a turn, when the fate of the marker is known in every partition; it may be told before
`write` returns.
"""


class TxnMarker(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one transaction. `transaction_version` 2 and above says that the epoch is one above the
    transaction's (KIP-890).
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]
