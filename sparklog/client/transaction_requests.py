"""Requests of a transactional producer for partitions and offsets, and their replies."""

from collections.abc import Iterable
from typing import Final

from sparklog.client.membership import Coordinator, GroupMetadata
from sparklog.client.membership_offsets import OffsetAndMetadata
from sparklog.client.transaction_states import Operation, ProducerIdentity
from sparklog.errors import ErrorCode, code_of
from sparklog.model import TopicPartition
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

OFFSETS_BEFORE_V2: Final = 4


def add_partitions(
    identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """The client's request (v3 at most) that adds partitions to its transaction."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, partition in sorted(partitions):
        topics.setdefault(name, AddPartitionsToTxnTopic(name, [])).partitions.append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=list(topics.values()),
    )


def partitions_told(reply: AddPartitionsToTxnResponse) -> dict[TopicPartition, ErrorCode]:
    """The result of each partition."""
    return {
        TopicPartition(topic.name, partition.partition_index): code_of(partition.partition_error_code)
        for topic in reply.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


class PendingOffsets:
    """Offsets to be committed in a transaction; `left` has those that are still to be sent."""

    __slots__ = ("group", "home", "is_added", "left", "operation")

    def __init__(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        operation: Operation,
        home: Coordinator,
    ) -> None:
        self.left = offsets
        self.group = group
        self.operation = operation
        self.home = home
        self.is_added = False
        """Whether the group was added to the transaction at the coordinator, which must come first below
        version 2.
        """

    def request(
        self, identity: ProducerIdentity, *, is_v2: bool
    ) -> tuple[TxnOffsetCommitRequest, int | None]:
        """The commit of the remaining offsets, and the newest version that may be used."""
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), position in self.left.items():
            told = TxnOffsetCommitRequestPartition(
                partition, position.offset, position.leader_epoch, position.metadata
            )
            topics.setdefault(name, TxnOffsetCommitRequestTopic(name, [])).partitions.append(told)
        request = TxnOffsetCommitRequest(
            transactional_id=identity.transactional_id,
            group_id=self.group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id=self.group.generation_id,
            member_id=self.group.member_id,
            group_instance_id=self.group.group_instance_id,
            topics=list(topics.values()),
        )
        return request, None if is_v2 else OFFSETS_BEFORE_V2

    def committed(self, reply: TxnOffsetCommitResponse) -> ErrorCode:
        """Process a reply. Returns NONE if everything is committed, else an error; one that is not retriable
        takes precedence.
        """
        codes = [ErrorCode.UNKNOWN_SERVER_ERROR] if not reply.topics else []
        for topic in reply.topics:
            for told in topic.partitions:
                code = code_of(told.error_code)
                if code is ErrorCode.NONE:
                    self.left.pop(TopicPartition(topic.name, told.partition_index), None)
                else:
                    codes.append(code)
        return min(codes, key=lambda code: code.is_retriable, default=ErrorCode.NONE)
