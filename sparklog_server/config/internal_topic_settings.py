"""A part of `settings`: each field is the definition of a broker key."""

from typing import Annotated

import msgspec

from .kinds import integer as _int
from .kinds import short as _short


class InternalTopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How `__consumer_offsets` and `__transaction_state` are created."""

    offsets_topic_num_partitions: Annotated[
        int,
        _int(
            "offsets.topic.num.partitions",
            "The number of partitions of `__consumer_offsets`. Do not change it after the first start.",
            1,
        ),
    ] = 50
    offsets_topic_replication_factor: Annotated[
        int,
        _short(
            "offsets.topic.replication.factor",
            "The replication factor of `__consumer_offsets`. Kafka's default is 3.",
            1,
        ),
    ] = 1
    offsets_topic_segment_bytes: Annotated[
        int, _int("offsets.topic.segment.bytes", "The segment size of `__consumer_offsets`.", 1)
    ] = 104_857_600
    transaction_state_log_num_partitions: Annotated[
        int,
        _int(
            "transaction.state.log.num.partitions",
            "The number of partitions of `__transaction_state`. Do not change it after the first start.",
            1,
        ),
    ] = 50
    transaction_state_log_replication_factor: Annotated[
        int,
        _short(
            "transaction.state.log.replication.factor",
            "The replication factor of `__transaction_state`. Kafka's default is 3.",
            1,
        ),
    ] = 1
    transaction_state_log_min_isr: Annotated[
        int,
        _int(
            "transaction.state.log.min.isr",
            "The minimum number of in-sync replicas of `__transaction_state`. Kafka's default is 2.",
            1,
        ),
    ] = 1
    transaction_state_log_segment_bytes: Annotated[
        int, _int("transaction.state.log.segment.bytes", "The segment size of `__transaction_state`.", 1)
    ] = 104_857_600
