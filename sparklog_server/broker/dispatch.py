"""The table from API key to handler and request; the broker serves and advertises exactly its entries."""

from collections.abc import Callable
from typing import Any

from sparklog.model import Instant
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from sparklog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from sparklog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from sparklog.wire.messages.alter_configs import AlterConfigsRequest
from sparklog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from sparklog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from sparklog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from sparklog.wire.messages.api_versions import ApiVersionsRequest
from sparklog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from sparklog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from sparklog.wire.messages.create_acls import CreateAclsRequest
from sparklog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from sparklog.wire.messages.create_partitions import CreatePartitionsRequest
from sparklog.wire.messages.create_topics import CreateTopicsRequest
from sparklog.wire.messages.delete_acls import DeleteAclsRequest
from sparklog.wire.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.messages.delete_records import DeleteRecordsRequest
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest
from sparklog.wire.messages.describe_acls import DescribeAclsRequest
from sparklog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from sparklog.wire.messages.describe_cluster import DescribeClusterRequest
from sparklog.wire.messages.describe_configs import DescribeConfigsRequest
from sparklog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from sparklog.wire.messages.describe_groups import DescribeGroupsRequest
from sparklog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from sparklog.wire.messages.describe_producers import DescribeProducersRequest
from sparklog.wire.messages.describe_quorum import DescribeQuorumRequest
from sparklog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from sparklog.wire.messages.describe_transactions import DescribeTransactionsRequest
from sparklog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest
from sparklog.wire.messages.end_txn import EndTxnRequest
from sparklog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.messages.heartbeat import HeartbeatRequest
from sparklog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.messages.join_group import JoinGroupRequest
from sparklog.wire.messages.leave_group import LeaveGroupRequest
from sparklog.wire.messages.list_config_resources import ListConfigResourcesRequest
from sparklog.wire.messages.list_groups import ListGroupsRequest
from sparklog.wire.messages.list_offsets import ListOffsetsRequest
from sparklog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from sparklog.wire.messages.list_transactions import ListTransactionsRequest
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.messages.offset_commit import OffsetCommitRequest
from sparklog.wire.messages.offset_delete import OffsetDeleteRequest
from sparklog.wire.messages.offset_fetch import OffsetFetchRequest
from sparklog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from sparklog.wire.messages.produce import ProduceRequest
from sparklog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest
from sparklog.wire.messages.sync_group import SyncGroupRequest
from sparklog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.messages.update_features import UpdateFeaturesRequest
from sparklog.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.context import Context
from sparklog_server.broker.handlers.acls import create_acls, delete_acls, describe_acls
from sparklog_server.broker.handlers.alter_configs import alter_configs, incremental_alter_configs
from sparklog_server.broker.handlers.api_versions import api_versions
from sparklog_server.broker.handlers.cluster import (
    describe_cluster,
    describe_quorum,
    unregister_broker,
    update_features,
)
from sparklog_server.broker.handlers.configs import describe_configs, list_config_resources
from sparklog_server.broker.handlers.coordinators import find_coordinator
from sparklog_server.broker.handlers.credentials import (
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from sparklog_server.broker.handlers.delegation_tokens import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from sparklog_server.broker.handlers.delete_records import delete_records
from sparklog_server.broker.handlers.describe_producers import describe_producers
from sparklog_server.broker.handlers.describe_topics import describe_topic_partitions
from sparklog_server.broker.handlers.elections import elect_leaders
from sparklog_server.broker.handlers.epochs import offset_for_leader_epoch
from sparklog_server.broker.handlers.fetch import fetch
from sparklog_server.broker.handlers.group_offsets import offset_commit, offset_delete, offset_fetch
from sparklog_server.broker.handlers.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from sparklog_server.broker.handlers.log_dirs import alter_replica_log_dirs, describe_log_dirs
from sparklog_server.broker.handlers.markers import write_txn_markers
from sparklog_server.broker.handlers.metadata import metadata
from sparklog_server.broker.handlers.offsets import list_offsets
from sparklog_server.broker.handlers.produce import produce
from sparklog_server.broker.handlers.producers import init_producer_id
from sparklog_server.broker.handlers.quotas import alter_client_quotas, describe_client_quotas
from sparklog_server.broker.handlers.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from sparklog_server.broker.handlers.sasl import sasl_authenticate, sasl_handshake
from sparklog_server.broker.handlers.topics import create_partitions, create_topics, delete_topics
from sparklog_server.broker.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
)
from sparklog_server.broker.handlers.txn_offsets import txn_offset_commit
from sparklog_server.broker.session import Call, Parked
from sparklog_server.config.settings import BrokerSettings

# Any: each handler takes the request class of its own API, which the type of the table cannot express.
Handler = Callable[[Context, Call, Any, Instant], Message | Parked]

HANDLERS: dict[int, tuple[Handler, type[Message]]] = {
    0: (produce, ProduceRequest),
    1: (fetch, FetchRequest),
    2: (list_offsets, ListOffsetsRequest),
    3: (metadata, MetadataRequest),
    8: (offset_commit, OffsetCommitRequest),
    9: (offset_fetch, OffsetFetchRequest),
    10: (find_coordinator, FindCoordinatorRequest),
    11: (join_group, JoinGroupRequest),
    12: (heartbeat, HeartbeatRequest),
    13: (leave_group, LeaveGroupRequest),
    14: (sync_group, SyncGroupRequest),
    15: (describe_groups, DescribeGroupsRequest),
    16: (list_groups, ListGroupsRequest),
    17: (sasl_handshake, SaslHandshakeRequest),
    18: (api_versions, ApiVersionsRequest),
    19: (create_topics, CreateTopicsRequest),
    20: (delete_topics, DeleteTopicsRequest),
    21: (delete_records, DeleteRecordsRequest),
    22: (init_producer_id, InitProducerIdRequest),
    23: (offset_for_leader_epoch, OffsetForLeaderEpochRequest),
    24: (add_partitions_to_txn, AddPartitionsToTxnRequest),
    25: (add_offsets_to_txn, AddOffsetsToTxnRequest),
    26: (end_txn, EndTxnRequest),
    27: (write_txn_markers, WriteTxnMarkersRequest),
    28: (txn_offset_commit, TxnOffsetCommitRequest),
    29: (describe_acls, DescribeAclsRequest),
    30: (create_acls, CreateAclsRequest),
    31: (delete_acls, DeleteAclsRequest),
    32: (describe_configs, DescribeConfigsRequest),
    33: (alter_configs, AlterConfigsRequest),
    34: (alter_replica_log_dirs, AlterReplicaLogDirsRequest),
    35: (describe_log_dirs, DescribeLogDirsRequest),
    36: (sasl_authenticate, SaslAuthenticateRequest),
    37: (create_partitions, CreatePartitionsRequest),
    38: (create_delegation_token, CreateDelegationTokenRequest),
    39: (renew_delegation_token, RenewDelegationTokenRequest),
    40: (expire_delegation_token, ExpireDelegationTokenRequest),
    41: (describe_delegation_token, DescribeDelegationTokenRequest),
    42: (delete_groups, DeleteGroupsRequest),
    44: (incremental_alter_configs, IncrementalAlterConfigsRequest),
    43: (elect_leaders, ElectLeadersRequest),
    45: (alter_partition_reassignments, AlterPartitionReassignmentsRequest),
    46: (list_partition_reassignments, ListPartitionReassignmentsRequest),
    47: (offset_delete, OffsetDeleteRequest),
    48: (describe_client_quotas, DescribeClientQuotasRequest),
    49: (alter_client_quotas, AlterClientQuotasRequest),
    50: (describe_user_scram_credentials, DescribeUserScramCredentialsRequest),
    51: (alter_user_scram_credentials, AlterUserScramCredentialsRequest),
    55: (describe_quorum, DescribeQuorumRequest),
    57: (update_features, UpdateFeaturesRequest),
    60: (describe_cluster, DescribeClusterRequest),
    61: (describe_producers, DescribeProducersRequest),
    64: (unregister_broker, UnregisterBrokerRequest),
    65: (describe_transactions, DescribeTransactionsRequest),
    66: (list_transactions, ListTransactionsRequest),
    68: (consumer_group_heartbeat, ConsumerGroupHeartbeatRequest),
    69: (consumer_group_describe, ConsumerGroupDescribeRequest),
    75: (describe_topic_partitions, DescribeTopicPartitionsRequest),
    74: (list_config_resources, ListConfigResourcesRequest),
}
SERVED = tuple(HANDLERS)
_INIT_PRODUCER_ID = 22


def newest_served(settings: BrokerSettings) -> dict[int, int]:
    """The newest version of each API that a broker with these settings serves."""
    newest = {key: API_BY_KEY[key].until for key in SERVED}
    unreleased = API_BY_KEY[_INIT_PRODUCER_ID].unreleased
    if settings.transactions.two_phase_commit_enable and unreleased is not None:
        newest[_INIT_PRODUCER_ID] = unreleased
    return newest
