"""The features a node can use and the levels a new cluster begins with.

Only what is served is finalized: clients switch to newer requests on these levels. A node writes metadata records of one level only.
"""

METADATA_VERSION = "metadata.version"
METADATA_LEVEL = 30
"""Kafka 4.3 (4.3-IV0)."""

TRANSACTION_VERSION = "transaction.version"
TRANSACTION_LEVEL = 2
"""Epochs are bumped by every end of a transaction, and its partitions join by being written to (KIP-890)."""

SUPPORTED: dict[str, tuple[int, int]] = {METADATA_VERSION: (METADATA_LEVEL, METADATA_LEVEL), TRANSACTION_VERSION: (0, TRANSACTION_LEVEL)}
"""(lowest, highest) level by feature, both included."""

INITIAL: dict[str, int] = {METADATA_VERSION: METADATA_LEVEL, TRANSACTION_VERSION: TRANSACTION_LEVEL}
"""What a new cluster finalizes."""
