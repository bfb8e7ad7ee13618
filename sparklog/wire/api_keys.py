"""The one table of Kafka's APIs and their version ranges, at the level of Kafka 4.3.

Kafka has retired keys 4 to 7. Keys 76 to 79 and 83 to 92 belong to share groups and streams groups, which
sparklog does not have. The broker serves part of this table (`broker/dispatch.py`). A module under `messages`
loads when one of its classes is first used.
"""

import importlib
import re
from typing import NamedTuple

from sparklog.wire.schema import NEVER, Message

API_VERSIONS = 18
"""The key with exceptions in its headers."""
ENVELOPE = 58
"""The key of a request that holds another one."""

CONTROLLER_ONLY = frozenset((52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82))
"""APIs that only the listeners of controllers serve (`listeners` in Kafka's message definitions)."""
ON_CONTROLLERS = CONTROLLER_ONLY | frozenset(
    (1, 17, 18, 19, 20, *range(29, 34), *range(36, 42), 43, 44, 45, 46, 49, 50, 51, 55, 57, 60, 64, 80, 81)
)
"""APIs that listeners of controllers serve; those of brokers serve all but `CONTROLLER_ONLY`."""
FORWARDABLE = frozenset((19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 67, 80, 81))
"""APIs whose requests a broker may forward to the controller in an Envelope."""


class Api(NamedTuple):
    """An API with its versions `since` to `until` (both included), flexible from `flexible` on; `until` + 1
    may be `unreleased`.
    """

    key: int
    name: str
    since: int
    until: int
    flexible: int = NEVER
    unreleased: int | None = None

    @property
    def latest(self) -> int:
        """The newest version."""
        return self.until

    @property
    def module(self) -> str:
        """The name of the module under `messages` that has the classes of the API: the API's name in snake
        case.
        """
        return re.sub(r"(?<!^)([A-Z])", r"_\1", self.name).lower()

    def request(self) -> type[Message]:
        """The request class of the API."""
        return self._message("Request")

    def reply(self) -> type[Message]:
        """The reply class of the API."""
        return self._message("Response")

    def _message(self, kind: str) -> type[Message]:
        module = importlib.import_module(f"sparklog.wire.messages.{self.module}")
        cls: type[Message] = getattr(module, self.name + kind)
        return cls


# InitProducerId v6 (KIP-939) is not stable in Kafka 4.3: a broker serves it only if a setting enables it.
_TABLE = (
    Api(0, "Produce", 3, 13, 9),
    Api(1, "Fetch", 4, 18, 12),
    Api(2, "ListOffsets", 1, 11, 6),
    Api(3, "Metadata", 0, 13, 9),
    Api(8, "OffsetCommit", 2, 10, 8),
    Api(9, "OffsetFetch", 1, 10, 6),
    Api(10, "FindCoordinator", 0, 6, 3),
    Api(11, "JoinGroup", 0, 9, 6),
    Api(12, "Heartbeat", 0, 4, 4),
    Api(13, "LeaveGroup", 0, 5, 4),
    Api(14, "SyncGroup", 0, 5, 4),
    Api(15, "DescribeGroups", 0, 6, 5),
    Api(16, "ListGroups", 0, 5, 3),
    Api(17, "SaslHandshake", 0, 1),
    Api(18, "ApiVersions", 0, 4, 3),
    Api(19, "CreateTopics", 2, 7, 5),
    Api(20, "DeleteTopics", 1, 6, 4),
    Api(21, "DeleteRecords", 0, 2, 2),
    Api(22, "InitProducerId", 0, 5, 2, unreleased=6),
    Api(23, "OffsetForLeaderEpoch", 2, 4, 4),
    Api(24, "AddPartitionsToTxn", 0, 5, 3),
    Api(25, "AddOffsetsToTxn", 0, 4, 3),
    Api(26, "EndTxn", 0, 5, 3),
    Api(27, "WriteTxnMarkers", 1, 2, 1),
    Api(28, "TxnOffsetCommit", 0, 5, 3),
    Api(29, "DescribeAcls", 1, 3, 2),
    Api(30, "CreateAcls", 1, 3, 2),
    Api(31, "DeleteAcls", 1, 3, 2),
    Api(32, "DescribeConfigs", 1, 4, 4),
    Api(33, "AlterConfigs", 0, 2, 2),
    Api(34, "AlterReplicaLogDirs", 1, 2, 2),
    Api(35, "DescribeLogDirs", 1, 5, 2),
    Api(36, "SaslAuthenticate", 0, 2, 2),
    Api(37, "CreatePartitions", 0, 3, 2),
    Api(38, "CreateDelegationToken", 1, 3, 2),
    Api(39, "RenewDelegationToken", 1, 2, 2),
    Api(40, "ExpireDelegationToken", 1, 2, 2),
    Api(41, "DescribeDelegationToken", 1, 3, 2),
    Api(42, "DeleteGroups", 0, 2, 2),
    Api(43, "ElectLeaders", 0, 2, 2),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1),
    Api(45, "AlterPartitionReassignments", 0, 1, 0),
    Api(46, "ListPartitionReassignments", 0, 0, 0),
    Api(47, "OffsetDelete", 0, 0),
    Api(48, "DescribeClientQuotas", 0, 1, 1),
    Api(49, "AlterClientQuotas", 0, 1, 1),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0),
    Api(51, "AlterUserScramCredentials", 0, 0, 0),
    Api(52, "Vote", 0, 2, 0),
    Api(53, "BeginQuorumEpoch", 0, 1, 1),
    Api(54, "EndQuorumEpoch", 0, 1, 1),
    Api(55, "DescribeQuorum", 0, 2, 0),
    Api(56, "AlterPartition", 2, 3, 0),
    Api(57, "UpdateFeatures", 0, 2, 0),
    Api(58, "Envelope", 0, 0, 0),
    Api(59, "FetchSnapshot", 0, 1, 0),
    Api(60, "DescribeCluster", 0, 2, 0),
    Api(61, "DescribeProducers", 0, 0, 0),
    Api(62, "BrokerRegistration", 0, 4, 0),
    Api(63, "BrokerHeartbeat", 0, 2, 0),
    Api(64, "UnregisterBroker", 0, 0, 0),
    Api(65, "DescribeTransactions", 0, 0, 0),
    Api(66, "ListTransactions", 0, 2, 0),
    Api(67, "AllocateProducerIds", 0, 0, 0),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 0),
    Api(69, "ConsumerGroupDescribe", 0, 1, 0),
    Api(70, "ControllerRegistration", 0, 0, 0),
    Api(71, "GetTelemetrySubscriptions", 0, 0, 0),
    Api(72, "PushTelemetry", 0, 0, 0),
    Api(73, "AssignReplicasToDirs", 0, 0, 0),
    Api(74, "ListConfigResources", 0, 1, 0),
    Api(75, "DescribeTopicPartitions", 0, 0, 0),
    Api(80, "AddRaftVoter", 0, 1, 0),
    Api(81, "RemoveRaftVoter", 0, 0, 0),
    Api(82, "UpdateRaftVoter", 0, 0, 0),
)

API_BY_KEY = {api.key: api for api in _TABLE}
