"""The features a node can use and the levels a new cluster begins with.

Only what is served is finalized: clients switch to newer requests on these levels. A node writes metadata records of one level only.
"""

METADATA_VERSION = "metadata.version"
METADATA_LEVEL = 30
"""Kafka 4.3 (4.3-IV0)."""

SUPPORTED: dict[str, tuple[int, int]] = {METADATA_VERSION: (METADATA_LEVEL, METADATA_LEVEL)}
"""(lowest, highest) level by feature, both included."""

INITIAL: dict[str, int] = {METADATA_VERSION: METADATA_LEVEL}
"""What a new cluster finalizes."""
