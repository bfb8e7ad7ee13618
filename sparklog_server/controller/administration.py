"""The commands of clients and of other controllers: the controller imports them with the first one."""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest
from sparklog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from sparklog.wire.messages.alter_configs import AlterConfigsRequest
from sparklog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from sparklog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from sparklog.wire.messages.create_acls import CreateAclsRequest
from sparklog.wire.messages.create_partitions import CreatePartitionsRequest
from sparklog.wire.messages.create_topics import CreateTopicsRequest
from sparklog.wire.messages.delete_acls import DeleteAclsRequest
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest
from sparklog.wire.messages.describe_quorum import DescribeQuorumRequest
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest
from sparklog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from sparklog.wire.messages.update_features import UpdateFeaturesRequest
from sparklog.wire.schema import Message
from sparklog_server.config.layers import Layers
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.outcome import Outcome

from .acls import KnownRules, create_acls, delete_acls
from .alterations import alter_configs, incremental_alter_configs
from .client_quotas import alter_client_quotas
from .credentials import alter_user_scram_credentials
from .elect_leaders import elect_leaders
from .elections import SettingsFor
from .features import update_features
from .quorum_port import QuorumPort
from .reassignments import alter_partition_reassignments
from .refusals import refusal_of
from .topics import DecisionInputs, create_partitions, create_topics, delete_topics


def administer(
    pending: MetadataImage,
    command: Message,
    inputs: DecisionInputs,
    layers: Layers,
    settings_for: SettingsFor,
    quorum: QuorumPort,
    known: KnownRules,
    now: Instant,
) -> Outcome[Message, Message]:
    """The records and the reply for such a command."""
    match command:
        case CreateTopicsRequest():
            return create_topics(pending, command, inputs)
        case DeleteTopicsRequest():
            return delete_topics(pending, command)
        case CreatePartitionsRequest():
            return create_partitions(pending, command, inputs)
        case IncrementalAlterConfigsRequest():
            return incremental_alter_configs(pending, command, layers)
        case AlterConfigsRequest():
            return alter_configs(pending, command, layers)
        case ElectLeadersRequest():
            return elect_leaders(pending, command, settings_for)
        case AlterPartitionReassignmentsRequest():
            return alter_partition_reassignments(pending, command, settings_for)
        case AlterClientQuotasRequest():
            return alter_client_quotas(pending, command)
        case AlterUserScramCredentialsRequest():
            return alter_user_scram_credentials(pending, command, inputs.entropy)
        case CreateAclsRequest():
            return create_acls(pending, command, known, inputs.entropy)
        case DeleteAclsRequest():
            return delete_acls(pending, command)
        case UpdateFeaturesRequest():
            return update_features(pending, command, layers.static, quorum, now)
        case AddRaftVoterRequest() | RemoveRaftVoterRequest():
            text = "This node has become the leader of the metadata quorum: ask again."
            return Outcome((), refusal_of(command, ErrorCode.REQUEST_TIMED_OUT, text))
        case DescribeQuorumRequest():
            # Of a node that has become the leader since a client asked it: the client asks again.
            return Outcome((), refusal_of(command, ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
    raise AssertionError(f"the controller does not decide on {type(command).__name__}")
