"""The features a node can use and the levels a new cluster begins with.

Only what is served is finalized: clients switch to newer requests on these levels. A node writes metadata
records of one level only.
"""

from collections.abc import Mapping

METADATA_VERSION = "metadata.version"
METADATA_LEVEL = 30
"""Kafka 4.3 (4.3-IV0)."""

TRANSACTION_VERSION = "transaction.version"
TRANSACTION_LEVEL = 2
"""Epochs are bumped by every end of a transaction, and its partitions join by being written to (KIP-890)."""

GROUP_VERSION = "group.version"
GROUP_LEVEL = 1
"""The groups of KIP-848, which are served at either level; a cluster that a real Kafka made has them
switched on.
"""

SUPPORTED: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_LEVEL, METADATA_LEVEL),
    TRANSACTION_VERSION: (0, TRANSACTION_LEVEL),
    GROUP_VERSION: (0, GROUP_LEVEL),
}
"""(lowest, highest) level by feature, both included."""

INITIAL: dict[str, int] = {METADATA_VERSION: METADATA_LEVEL, TRANSACTION_VERSION: TRANSACTION_LEVEL}
"""What a new cluster finalizes."""


def unsupported(finalized: Mapping[str, int]) -> str:
    """The finalized levels that this node cannot serve, and the remedy; empty if it can serve them all."""
    reasons = []
    for name, level in sorted(finalized.items()):
        lowest, highest = SUPPORTED.get(name, (0, 0))
        if not lowest <= level <= highest:
            reach = (
                "does not know that feature" if name not in SUPPORTED else f"supports {lowest} to {highest}"
            )
            way = "upgrade" if level < lowest else "downgrade"
            remedy = f"`kafka-features.sh --bootstrap-server HOST:PORT {way} --feature {name}={min(max(level, lowest), highest)}`"  # noqa: E501
            reasons.append(f"{name} is finalized at level {level}, and this broker {reach}: run {remedy}")
    if not reasons:
        return ""
    return (
        "; ".join(reasons) + " on the Kafka that wrote this data directory, or begin with another directory"
    )
