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
        int, _int("transaction.max.timeout.ms", "The longest timeout a transaction may ask for.")
    ] = 900_000
    abort_interval_ms: Annotated[
        int,
        _int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "How often transactions that took too long are looked for.",
        ),
    ] = 10_000
    id_expiration_ms: Annotated[
        int,
        _int("transactional.id.expiration.ms", "How long the state of an unused transactional id is kept."),
    ] = 604_800_000
    sink_id_expiration_ms: Annotated[
        int,
        _int(
            "sparklog.transactional.sink.id.expiration.ms",
            "How long a finished transactional id that begins with `sl.` is kept: the exactly-once sink of "
            "Spark uses each but once.",
        ),
    ] = 3_600_000
    expiry_interval_ms: Annotated[
        int,
        _int(
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            "How often expired transactional ids are looked for.",
        ),
    ] = 3_600_000
    two_phase_commit_enable: Annotated[
        bool,
        Key(
            "transaction.two.phase.commit.enable",
            Kind.BOOLEAN,
            "Let transactions be prepared and committed by an outside coordinator; InitProducerId 6 "
            "(KIP-939) is served then.",
        ),
    ] = False
    partition_verification_enable: Annotated[
        bool,
        Key(
            "transaction.partition.verification.enable",
            Kind.BOOLEAN,
            "Ask the coordinator whether a partition belongs to the transaction before taking its records.",
            update=Update.CLUSTER_WIDE,
        ),
    ] = True
    add_retry_backoff_ms: Annotated[
        int,
        _int(
            "add.partitions.to.txn.retry.backoff.ms",
            "The pause before the broker tries again to add a partition to a transaction.",
        ),
    ] = 20
    add_retry_backoff_max_ms: Annotated[
        int,
        Key(
            "add.partitions.to.txn.retry.backoff.max.ms",
            Kind.INT,
            "The longest the broker itself keeps trying to add a partition to a transaction.",
            0,
        ),
    ] = 100
