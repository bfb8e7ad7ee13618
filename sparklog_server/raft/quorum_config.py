"""The settings of a quorum."""

import msgspec


class QuorumConfig(msgspec.Struct, frozen=True):
    """The times of elections and fetches in microseconds, the sizes of fetches, with Kafka's defaults."""

    election_timeout_us: int = 1_000_000
    fetch_timeout_us: int = 2_000_000
    request_timeout_us: int = 2_000_000
    backoff_us_max: int = 1_000_000
    retry_us: int = 20_000
    fetch_bytes_max: int = 1 << 20
    snapshot_bytes_max: int = 1 << 20
    is_joining: bool = False
    """Whether this node, as an observer, asks to become a voter (KIP-1186)."""
