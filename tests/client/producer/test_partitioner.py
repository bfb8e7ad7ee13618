"""The partitioner agrees with Kafka's Java client about every key."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.producer.intake import partition_for
from sparklog.kernels import columns


def test_a_negative_hash_gives_a_partition_all_the_same() -> None:
    assert columns.murmur2(b"21") < 0
    assert partition_for(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_a_key_goes_to_a_partition_that_exists(key: bytes, partition_count: int) -> None:
    assert 0 <= partition_for(key, partition_count) < partition_count
