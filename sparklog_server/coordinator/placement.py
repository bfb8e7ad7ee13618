"""The internal topics, and the partition of one that a group id or transactional id belongs to.

Clients may read internal topics, and write and truncate them only through the requests of their coordinators.
Brokers alone write the audit log.
"""

from functools import lru_cache

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
AUDIT_TOPIC = "__sparklog_audit"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state", AUDIT_TOPIC})


def partition_for(key: str, partition_count: int) -> int:
    """Kafka's choice: Java's `String.hashCode` without its sign, modulo the number of partitions."""
    # Longer names are not cached: 16 384 names of 32 KB would take half a gigabyte.
    return (
        _kept_partition_for(key, partition_count) if len(key) <= 256 else _partition_for(key, partition_count)
    )


def _partition_for(key: str, partition_count: int) -> int:
    number = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) & 0xFFFFFFFF
    if number >= 1 << 31:
        number = (1 << 32) - number
    return 0 if number == 1 << 31 else number % partition_count


_kept_partition_for = lru_cache(maxsize=16_384)(_partition_for)
