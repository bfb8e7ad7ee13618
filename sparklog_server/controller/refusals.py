"""The reply that refuses a whole command with one error: no node leads, the command timed out, or the
metadata log cannot be written.
"""

from sparklog.errors import ErrorCode
from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from sparklog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from sparklog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
)
from sparklog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from sparklog.wire.messages.alter_configs import AlterConfigsResourceResponse as Replaced
from sparklog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from sparklog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from sparklog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from sparklog.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from sparklog.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from sparklog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from sparklog.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from sparklog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from sparklog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest
from sparklog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from sparklog.wire.messages.incremental_alter_configs import AlterConfigsResourceResponse as Altered
from sparklog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from sparklog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from sparklog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from sparklog.wire.schema import Message

from .elect_leaders import election_refusal
from .tokens import refusal_of_token


def refusal_of(command: Message, code: ErrorCode, message: str | None) -> Message:
    """The reply to `command` in which every part of it has this error."""
    match command:
        case CreateTopicsRequest():
            topics = [
                CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
                for topic in command.topics
            ]
            return CreateTopicsResponse(topics=topics)
        case CreatePartitionsRequest():
            results = [
                CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
                for topic in command.topics
            ]
            return CreatePartitionsResponse(results=results)
        case DeleteTopicsRequest():
            named = [
                DeletableTopicResult(name=name, error_code=code, error_message=message)
                for name in command.topic_names
            ]
            listed = [
                DeletableTopicResult(
                    name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
                )
                for topic in command.topics
            ]
            return DeleteTopicsResponse(responses=named + listed)
        case IncrementalAlterConfigsRequest():
            altered = [
                Altered(code, message, resource.resource_type, resource.resource_name)
                for resource in command.resources
            ]
            return IncrementalAlterConfigsResponse(responses=altered)
        case AlterConfigsRequest():
            replaced = [
                Replaced(code, message, resource.resource_type, resource.resource_name)
                for resource in command.resources
            ]
            return AlterConfigsResponse(responses=replaced)
        case BrokerRegistrationRequest():
            return BrokerRegistrationResponse(error_code=code)
        case BrokerHeartbeatRequest():
            return BrokerHeartbeatResponse(error_code=code)
        case ControllerRegistrationRequest():
            return ControllerRegistrationResponse(error_code=code, error_message=message)
        case AllocateProducerIdsRequest():
            return AllocateProducerIdsResponse(error_code=code)
        case AlterPartitionRequest():
            return AlterPartitionResponse(error_code=code)
        case AssignReplicasToDirsRequest():
            return AssignReplicasToDirsResponse(error_code=code)
        case ElectLeadersRequest():
            return election_refusal(command, code, message)
        case AlterPartitionReassignmentsRequest():
            reassigned = [
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(part.partition_index, code, message)
                        for part in topic.partitions
                    ],
                )
                for topic in command.topics
            ]
            return AlterPartitionReassignmentsResponse(
                error_code=code, error_message=message, responses=reassigned
            )
        case UpdateFeaturesRequest():
            return UpdateFeaturesResponse(error_code=code, error_message=message)
        case DescribeQuorumRequest():
            return DescribeQuorumResponse(error_code=code, error_message=message)
        case AddRaftVoterRequest():
            return AddRaftVoterResponse(error_code=code, error_message=message)
        case RemoveRaftVoterRequest():
            return RemoveRaftVoterResponse(error_code=code, error_message=message)
        case UnregisterBrokerRequest():
            return UnregisterBrokerResponse(error_code=code, error_message=message)
        case CreateAclsRequest():
            return CreateAclsResponse(results=[AclCreationResult(code, message) for _ in command.creations])
        case DeleteAclsRequest():
            return DeleteAclsResponse(
                filter_results=[DeleteAclsFilterResult(code, message) for _ in command.filters]
            )
        case AlterUserScramCredentialsRequest():
            users = dict.fromkeys(
                [one.name for one in command.deletions] + [one.name for one in command.upsertions]
            )
            return AlterUserScramCredentialsResponse(
                results=[AlterUserScramCredentialsResult(user, code, message) for user in users]
            )
        case AlterClientQuotasRequest():
            entries = [
                AlterClientQuotasResponseEntryData(
                    error_code=code,
                    error_message=message,
                    entity=[EntityData(part.entity_type, part.entity_name) for part in entry.entity],
                )
                for entry in command.entries
            ]
            return AlterClientQuotasResponse(entries=entries)
        case CreateDelegationTokenRequest() | RenewDelegationTokenRequest() | ExpireDelegationTokenRequest():
            return refusal_of_token(command, code, "")
    raise AssertionError(f"no refusal for {type(command).__name__}")
