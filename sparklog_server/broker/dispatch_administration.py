"""The handlers of administrative APIs, which the broker imports when a client first sends one of them."""

from sparklog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from sparklog.wire.messages.alter_configs import AlterConfigsRequest
from sparklog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from sparklog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from sparklog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from sparklog.wire.messages.create_acls import CreateAclsRequest
from sparklog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from sparklog.wire.messages.create_partitions import CreatePartitionsRequest
from sparklog.wire.messages.delete_acls import DeleteAclsRequest
from sparklog.wire.messages.delete_records import DeleteRecordsRequest
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest
from sparklog.wire.messages.describe_acls import DescribeAclsRequest
from sparklog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from sparklog.wire.messages.describe_cluster import DescribeClusterRequest
from sparklog.wire.messages.describe_configs import DescribeConfigsRequest
from sparklog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from sparklog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from sparklog.wire.messages.describe_quorum import DescribeQuorumRequest
from sparklog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from sparklog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest
from sparklog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from sparklog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from sparklog.wire.messages.list_config_resources import ListConfigResourcesRequest
from sparklog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from sparklog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from sparklog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.messages.update_features import UpdateFeaturesRequest
from sparklog_server.broker.context import Handlers
from sparklog_server.broker.handlers.acls import create_acls, delete_acls, describe_acls
from sparklog_server.broker.handlers.alter_configs import alter_configs, incremental_alter_configs
from sparklog_server.broker.handlers.cluster import (
    describe_cluster,
    unregister_broker,
    update_features,
)
from sparklog_server.broker.handlers.configs import describe_configs, list_config_resources
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
from sparklog_server.broker.handlers.describe_topics import describe_topic_partitions
from sparklog_server.broker.handlers.elections import elect_leaders
from sparklog_server.broker.handlers.epochs import offset_for_leader_epoch
from sparklog_server.broker.handlers.log_dirs import alter_replica_log_dirs, describe_log_dirs
from sparklog_server.broker.handlers.quotas import alter_client_quotas, describe_client_quotas
from sparklog_server.broker.handlers.raft import describe_quorum
from sparklog_server.broker.handlers.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from sparklog_server.broker.handlers.sasl import sasl_authenticate, sasl_handshake
from sparklog_server.broker.handlers.topics import create_partitions, delete_topics

ADMINISTRATION: Handlers = {
    17: (sasl_handshake, SaslHandshakeRequest),
    20: (delete_topics, DeleteTopicsRequest),
    21: (delete_records, DeleteRecordsRequest),
    23: (offset_for_leader_epoch, OffsetForLeaderEpochRequest),
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
    44: (incremental_alter_configs, IncrementalAlterConfigsRequest),
    43: (elect_leaders, ElectLeadersRequest),
    45: (alter_partition_reassignments, AlterPartitionReassignmentsRequest),
    46: (list_partition_reassignments, ListPartitionReassignmentsRequest),
    48: (describe_client_quotas, DescribeClientQuotasRequest),
    49: (alter_client_quotas, AlterClientQuotasRequest),
    50: (describe_user_scram_credentials, DescribeUserScramCredentialsRequest),
    51: (alter_user_scram_credentials, AlterUserScramCredentialsRequest),
    55: (describe_quorum, DescribeQuorumRequest),
    57: (update_features, UpdateFeaturesRequest),
    60: (describe_cluster, DescribeClusterRequest),
    64: (unregister_broker, UnregisterBrokerRequest),
    75: (describe_topic_partitions, DescribeTopicPartitionsRequest),
    74: (list_config_resources, ListConfigResourcesRequest),
}
