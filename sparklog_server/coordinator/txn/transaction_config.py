"""The limits of transactions: Kafka's keys, resolved to plain values by the broker."""

import msgspec

RECORD_BYTES_MAX = 1_000_000
"""A transaction's record must fit a batch of the default `max.message.bytes` (1 048 588), with its key,
the batch's header and tags.
"""


class TransactionConfig(msgspec.Struct, frozen=True):
    """Times in milliseconds; the defaults are Kafka's, but for `resolved_expiration_ms`, which holds for
    ids that begin with `sl.`.
    """

    timeout_max_ms: int = 900_000
    abort_interval_ms: int = 10_000
    expiration_ms: int = 7 * 24 * 60 * 60_000
    resolved_expiration_ms: int = 60 * 60_000
    expiry_interval_ms: int = 60 * 60_000
    is_two_phase_enabled: bool = False
    record_bytes_max: int = RECORD_BYTES_MAX
