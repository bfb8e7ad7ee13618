"""Kafka's default partitioner: a key goes to murmur2(key) modulo the number of partitions, as with Kafka's
Java client.

librdkafka's own default is CRC32 (`consistent_random`); set `partitioner=murmur2_random` there to agree
with this.
"""

from sparklog.kernels import columns


def murmur2(key: bytes | bytearray | memoryview) -> int:
    """The 32-bit Murmur2 hash with Kafka's seed, as a signed integer."""
    return columns.murmur2(key)


def partition_for(key: bytes | bytearray | memoryview, partition_count: int) -> int:
    """The partition in `[0, partition_count)` of a key."""
    return (columns.murmur2(key) & 0x7FFFFFFF) % partition_count
