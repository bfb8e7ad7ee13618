"""The transaction coordinator of this broker: its shards over the partitions of `__transaction_state` that this node leads."""

from collections.abc import Sequence

from sparklog.errors import ErrorCode
from sparklog.model import Instant, TopicPartition
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from sparklog_server.coordinator.command import Command


class Transactions:
    """The coordinator of transactions."""

    def send(self, transactional_id: str, command: Command, token: object, now: Instant) -> ErrorCode:
        """Have the shard of a transactional id decide; NONE if it took the command up and `token` will be answered."""
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

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
