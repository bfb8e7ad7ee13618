"""The settings of transactions: each field is the definition of a broker key, as in `settings`, of which
this is a part.
"""

from typing import Annotated

import msgspec

from .keys import Key, Kind, Update


def _int(name: str, doc: str) -> Key:
    return Key(name, Kind.INT, doc, 1)


class TransactionDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of every transactional id of this broker. Durations in ms."""

    max_timeout_ms: Annotated[
        int,
        _int("transaction.max.timeout.ms", "The maximum transaction timeout that a producer can request."),
    ] = 900_000
    abort_interval_ms: Annotated[
        int,
        _int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "The interval between checks for transactions that have timed out.",
        ),
    ] = 10_000
    id_expiration_ms: Annotated[
        int,
        _int(
            "transactional.id.expiration.ms", "The time that the state of an unused transactional id is kept."
        ),
    ] = 604_800_000
    sink_id_expiration_ms: Annotated[
        int,
        _int(
            "sparklog.transactional.sink.id.expiration.ms",
            "The time that a finished transactional id with the prefix `sl.` is kept. The exactly-once "
            "sink of Spark uses each such id once.",
        ),
    ] = 3_600_000
    expiry_interval_ms: Annotated[
        int,
        _int(
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            "The interval between checks for expired transactional ids.",
        ),
    ] = 3_600_000
    two_phase_commit_enable: Annotated[
        bool,
        Key(
            "transaction.two.phase.commit.enable",
            Kind.BOOLEAN,
            "Enable two-phase commit by an external coordinator, with InitProducerId 6 (KIP-939).",
        ),
    ] = False
    partition_verification_enable: Annotated[
        bool,
        Key(
            "transaction.partition.verification.enable",
            Kind.BOOLEAN,
            "Verify with the transaction coordinator that a partition belongs to the transaction before "
            "records are appended.",
            update=Update.CLUSTER_WIDE,
        ),
    ] = True
    add_retry_backoff_ms: Annotated[
        int,
        _int(
            "add.partitions.to.txn.retry.backoff.ms",
            "The pause before the broker retries to add a partition to a transaction.",
        ),
    ] = 20
    add_retry_backoff_max_ms: Annotated[
        int,
        Key(
            "add.partitions.to.txn.retry.backoff.max.ms",
            Kind.INT,
            "The maximum time that the broker retries to add a partition to a transaction.",
            0,
        ),
    ] = 100
