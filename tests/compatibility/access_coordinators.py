"""Requests about one group, or one transactional id, for the matrix of access."""

from typing import NamedTuple

from sparklog.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_heartbeat,
    end_txn,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    sync_group,
    txn_offset_commit,
)
from sparklog.wire.schema import Message


class Asked(NamedTuple):
    request: Message
    reply: type[Message]
    version: int | None = None


TOPICS = ("seen", "hidden")


def of_group(group: str) -> dict[str, Asked]:
    return {
        "OffsetCommit": Asked(
            offset_commit.OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                topics=[
                    offset_commit.OffsetCommitRequestTopic(
                        name=one,
                        partitions=[offset_commit.OffsetCommitRequestPartition(0, committed_offset=0)],
                    )
                    for one in TOPICS
                ],
            ),
            offset_commit.OffsetCommitResponse,
            8,
        ),
        "OffsetDelete": Asked(
            offset_delete.OffsetDeleteRequest(
                group,
                [
                    offset_delete.OffsetDeleteRequestTopic(
                        one, [offset_delete.OffsetDeleteRequestPartition(0)]
                    )
                    for one in TOPICS
                ],
            ),
            offset_delete.OffsetDeleteResponse,
        ),
        "JoinGroup": Asked(
            join_group.JoinGroupRequest(group, 10_000, 10_000, "unknown", None, "consumer", []),
            join_group.JoinGroupResponse,
            4,
        ),
        "SyncGroup": Asked(sync_group.SyncGroupRequest(group, 1, "unknown"), sync_group.SyncGroupResponse, 3),
        "Heartbeat": Asked(heartbeat.HeartbeatRequest(group, 1, "unknown"), heartbeat.HeartbeatResponse, 3),
        "LeaveGroup": Asked(
            leave_group.LeaveGroupRequest(
                group_id=group, members=[leave_group.MemberIdentity(member_id="unknown")]
            ),
            leave_group.LeaveGroupResponse,
            4,
        ),
        "ConsumerGroupHeartbeat": Asked(
            consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
                group, "unknown", 5, subscribed_topic_names=list(TOPICS)
            ),
            consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
        ),
    }


def of_transaction(transactional_id: str) -> dict[str, Asked]:
    return {
        "AddPartitionsToTxn": Asked(
            add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=10**6,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[
                    add_partitions_to_txn.AddPartitionsToTxnTopic(one, [0]) for one in TOPICS
                ],
            ),
            add_partitions_to_txn.AddPartitionsToTxnResponse,
            3,
        ),
        "AddOffsetsToTxn": Asked(
            add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id, 10**6, 0, "hidden"),
            add_offsets_to_txn.AddOffsetsToTxnResponse,
            3,
        ),
        "EndTxn": Asked(end_txn.EndTxnRequest(transactional_id, 10**6, 0, True), end_txn.EndTxnResponse, 3),
        "TxnOffsetCommit": Asked(
            txn_offset_commit.TxnOffsetCommitRequest(
                transactional_id=transactional_id,
                group_id="seen",
                producer_id=10**6,
                producer_epoch=0,
                topics=[
                    txn_offset_commit.TxnOffsetCommitRequestTopic(
                        one, [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 0)]
                    )
                    for one in TOPICS
                ],
            ),
            txn_offset_commit.TxnOffsetCommitResponse,
            3,
        ),
        "InitTransactions": Asked(
            init_producer_id.InitProducerIdRequest(
                transactional_id=f"{transactional_id}-new", transaction_timeout_ms=1000
            ),
            init_producer_id.InitProducerIdResponse,
            4,
        ),
    }
