"""The features that a node supports, and the levels of a new cluster.

Only implemented features are finalized: clients switch to newer requests on these levels. A node writes
metadata records of one level only.
"""

from collections.abc import Mapping

METADATA_VERSION = "metadata.version"
METADATA_LEVEL = 30
"""Kafka 4.3 (4.3-IV0)."""

TRANSACTION_VERSION = "transaction.version"
TRANSACTION_LEVEL = 2
"""Every end of a transaction bumps the producer epoch, and a Produce adds its partition to the transaction
(KIP-890).
"""

GROUP_VERSION = "group.version"
GROUP_LEVEL = 1
"""The groups of KIP-848, which the broker serves at either level; a cluster that a Kafka controller formatted
has them enabled.
"""

KRAFT_VERSION = "kraft.version"
KRAFT_LEVEL = 1
"""The voters are records of the metadata log (KIP-853). The level is a control record of raft, never a
FeatureLevelRecord.
"""

ELR_VERSION = "eligible.leader.replicas.version"
ELR_LEVEL = 1
"""The controller elects leaders among eligible leader replicas (KIP-966)."""

SUPPORTED: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_LEVEL, METADATA_LEVEL),
    TRANSACTION_VERSION: (0, TRANSACTION_LEVEL),
    GROUP_VERSION: (0, GROUP_LEVEL),
    KRAFT_VERSION: (0, KRAFT_LEVEL),
    ELR_VERSION: (0, ELR_LEVEL),
}
"""(lowest, highest) level by feature, both included."""

INITIAL: dict[str, int] = {
    METADATA_VERSION: METADATA_LEVEL,
    TRANSACTION_VERSION: TRANSACTION_LEVEL,
    ELR_VERSION: ELR_LEVEL,
}
"""The finalized levels of a new cluster."""


def unsupported(finalized: Mapping[str, int]) -> str:
    """The finalized levels that this node does not support, and the remedy; empty if it supports all."""
    reasons = []
    for name, level in sorted(finalized.items()):
        lowest, highest = SUPPORTED.get(name, (0, 0))
        if not lowest <= level <= highest:
            reach = f"supports {lowest} to {highest}" if name in SUPPORTED else "does not know that feature"
            way = "upgrade" if level < lowest else "downgrade"
            remedy = (
                f"`kafka-features.sh --bootstrap-server HOST:PORT {way} --feature "
                f"{name}={min(max(level, lowest), highest)}`"
            )
            reasons.append(f"{name} is finalized at level {level}, and this broker {reach}: run {remedy}")
    if not reasons:
        return ""
    return (
        "; ".join(reasons) + " on the Kafka that wrote this data directory, or begin with another directory"
    )
