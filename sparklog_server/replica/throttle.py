"""The hooks of replication quotas (KIP-73), which no quota fills yet.

A leader sends no records of a throttled partition to a replica outside the ISR; a follower leaves the
partition out of its fetches. The leader asks again with each response, the follower after
`replica.fetch.backoff.ms`.
"""

from collections.abc import Callable

from sparklog.model import TopicPartition

Throttled = Callable[[TopicPartition], bool]
"""Whether the quota of a throttled partition is used up for now."""
