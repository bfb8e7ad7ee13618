"""The transaction coordinator of this broker: its shards over the partitions of `__transaction_state` that this node leads."""

from collections.abc import Callable, Sequence

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Ticket, TopicPartition
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from sparklog_server.broker.internal_topics import TRANSACTIONS_TOPIC
from sparklog_server.broker.live_settings import LiveSettings
from sparklog_server.broker.producer_ids import ProducerIds
from sparklog_server.broker.shards import Shards, compacted_topic
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.group.shard import GroupShard
from sparklog_server.coordinator.shard import Answer
from sparklog_server.replica.directory import Trace


class Transactions:
    """The coordinator of transactions."""

    def __init__(
        self,
        live: LiveSettings,
        *,
        tickets: Callable[[], Ticket],
        entropy: Callable[[int], bytes],
        trace: Trace,
    ) -> None:
        settings = live.settings
        topic = compacted_topic(
            TRANSACTIONS_TOPIC,
            partition_count=settings.transaction_state_log_num_partitions,
            replication_factor=settings.transaction_state_log_replication_factor,
            configs={"segment.bytes": str(settings.transaction_state_log_segment_bytes)},
        )
        self.producer_ids = ProducerIds()
        self.shards = Shards(topic, self._make_shard, node_id=settings.node_id, tickets=tickets, entropy=entropy, trace=trace)

    def _make_shard(self) -> GroupShard:
        raise NotImplementedError

    def told(self, answers: list[Answer], refused: list[tuple[object, ErrorCode]]) -> tuple[list[Answer], list[tuple[object, ErrorCode]]]:
        """Take up what is due, and leave what clients wait for."""
        return answers, refused

    def send(self, transactional_id: str, command: Command, token: object, now: Instant) -> ErrorCode:
        """Have the shard of a transactional id decide; NONE if it took the command up and `token` will be answered."""
        return self.shards.send(transactional_id, command, token, now)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        now: Instant,
        token: object,
    ) -> ErrorCode:
        """Ask whether partitions belong to the producer's transaction, as AddPartitionsToTxn 4+ does with `verify_only` (TV1, KIP-890).

        NONE if `token` (a `coordinated.Token`) will be answered with an AddPartitionsToTxnResponse whose one result of
        `results_by_transaction` has an error code for each partition; another code is for all of them, at once.
        """
        return self._ask(transactional_id, producer_id, producer_epoch, partitions, now, token, verify_only=True)

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        now: Instant,
        token: object,
    ) -> ErrorCode:
        """Make partitions part of the producer's transaction, which begins by that if need be (TV2, KIP-890); answered as `verify` is."""
        return self._ask(transactional_id, producer_id, producer_epoch, partitions, now, token, verify_only=False)

    def _ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        now: Instant,
        token: object,
        *,
        verify_only: bool,
    ) -> ErrorCode:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        named = [AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()]
        asked = AddPartitionsToTxnTransaction(transactional_id, producer_id, producer_epoch, verify_only, named)
        return self.send(transactional_id, Command(AddPartitionsToTxnRequest(transactions=[asked]), _BROKERS_VERSION), token, now)


_BROKERS_VERSION = 5
"""The version of AddPartitionsToTxn that brokers speak among each other."""
