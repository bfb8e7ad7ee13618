"""Administration: topics, settings, groups, the cluster and its disks; blocking calls with typed results.

`Admin` has all calls. Each family of calls has its file, imported at the first use: `topics`, `configs`,
`groups`, `transactions`, `cluster`, `storage`, `quotas`, `acls`, `credentials`; `calls` sends the requests of
all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, Unpack

from sparklog.client.admin import families
from sparklog.client.admin.calls import Caller, ItemsFailed
from sparklog.client.admin.topics import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    CreatedTopic,
    ListedOffset,
    NewPartitions,
    NewTopic,
    Partition,
    Topic,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topics,
    list_offsets,
    list_topics,
)
from sparklog.client.settings import AdminOptions, ClientSettings, IsolationLevel
from sparklog.model import NodeId, Offset, TopicPartition, Uuid

if TYPE_CHECKING:
    from sparklog.client.admin.acls import AclFilter, AclRule
    from sparklog.client.admin.cluster import (
        Cluster,
        ElectionType,
        Feature,
        Quorum,
        Reassignment,
        UpgradeType,
    )
    from sparklog.client.admin.configs import (
        BrokerState,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )
    from sparklog.client.admin.credentials import ScramDeletion, ScramMechanism, ScramUpsertion
    from sparklog.client.admin.groups import GroupDescription, GroupListing, GroupOffset
    from sparklog.client.admin.quotas import QuotaEntity, QuotaFilter
    from sparklog.client.admin.storage import ActiveProducer, LogDir
    from sparklog.client.admin.transactions import OpenTransaction, TransactionDescription, TransactionListing
    from sparklog.client.producer.transaction_states import ProducerIdentity

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "CreatedTopic",
    "ItemsFailed",
    "ListedOffset",
    "NewPartitions",
    "NewTopic",
    "Partition",
    "Topic",
]


class Admin:
    """A blocking administration client. One call at a time; not safe for use from several threads.

    Every call returns or raises within `default_api_timeout_ms`: BrokerError (with `.code`),
    ConnectionFailed, RequestTimeout or UnknownTopic. A read is retried while its error is retriable. A
    change whose response is lost is sent again, as by Kafka's AdminClient: the error may then be that of the
    second request, as TOPIC_ALREADY_EXISTS for a topic that the first one created. Only a change on one named
    broker is sent once. A call for several items performs all that it can; if some fail it raises
    ItemsFailed, a BrokerError with `.errors` and `.results` by item.

    One class, because its user looks for every API of a cluster at one object, as at Kafka's Admin; a method
    only names the function of its family's file that does the work.
    """

    def __init__(self, **settings: Unpack[AdminOptions]) -> None:
        self._requests = Caller(ClientSettings.for_role("admin", settings))

    @classmethod
    def from_settings(cls, settings: ClientSettings, *, awaits_silent: bool = True) -> Self:
        """An Admin from settings already parsed; a survey goes on without silent brokers (see `Caller`)."""
        admin = cls.__new__(cls)
        admin._requests = Caller(settings, awaits_silent=awaits_silent)
        return admin

    @property
    def _caller(self) -> Caller:
        """Raises ClientClosed after `close`."""
        self._requests.network.check_open()
        return self._requests

    # -- topics ----------------------------------------------------------------------------------------------

    def create_topics(
        self, topics: Mapping[str, int] | Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Create topics and wait until their partitions have leaders. `{"name": partition_count}` is the
        short form.
        """
        return create_topics(self._caller, topics, validate_only=validate_only)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics by name; returns when the metadata is updated, files are removed later."""
        delete_topics(self._caller, list(names))

    def create_partitions(
        self, counts: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> None:
        """Raise the number of partitions of topics to these totals, and wait until the metadata has the new
        partitions.
        """
        create_partitions(self._caller, counts, validate_only=validate_only)

    def list_topics(self, *, include_internal: bool = False) -> dict[str, Topic]:
        """Every topic by name, in alphabetical order."""
        return list_topics(self._caller, include_internal=include_internal)

    def describe_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The named topics; raises UnknownTopic and never creates a topic. Requested page by page if the
        broker supports it (KIP-966).
        """
        return describe_topics(self._caller, list(names))

    def list_offsets(
        self, positions: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by EARLIEST, LATEST, MAX_TIMESTAMP, or the first at or after a timestamp in ms."""
        return list_offsets(self._caller, positions, isolation_level)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Delete the records below each offset, -1 for all committed ones; returns the new log start
        offsets.
        """
        return delete_records(self._caller, before)

    # -- settings --------------------------------------------------------------------------------------------

    def describe_configs(
        self, topics: Iterable[str] = (), *, brokers: Iterable[int] = ()
    ) -> "dict[str, dict[str, ConfigEntry]]":
        """The settings of topics by name or of brokers by node id; `describe_resources` returns those of
        every resource type.
        """
        return families.configs.describe_by_name(self._caller, topics, brokers)

    def describe_resources(
        self, resources: "Iterable[ConfigResource]", keys: Iterable[str] | None = None
    ) -> "dict[ConfigResource, dict[str, ConfigEntry]]":
        """Settings with value, source, default and documentation; with `keys`, only these, undocumented. A
        broker's own settings are requested from that broker, all others from any broker.
        """
        return families.configs.describe_configs(self._caller, resources, keys)

    def alter_configs(
        self, changes: "Mapping[ConfigResource, Sequence[ConfigChange]]", *, validate_only: bool = False
    ) -> None:
        """Change single settings and leave the others as they are (KIP-339). The changes of one resource are
        atomic.
        """
        families.configs.alter_configs(self._caller, changes, validate_only=validate_only)

    def list_config_resources(self, types: "Iterable[ResourceType]" = ()) -> "list[ConfigResource]":
        """The resources of these types, or of all types, that can have settings (KIP-1142)."""
        return families.configs.list_config_resources(self._caller, types)

    # -- groups ----------------------------------------------------------------------------------------------

    def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> "list[GroupListing]":
        """The groups of all brokers in alphabetical order, filtered by state (`Stable` …) and type
        (`consumer` …). ItemsFailed is by node id, and by `__consumer_offsets` if partitions have no leader.
        """
        return families.groups.list_groups(self._caller, states=states, types=types)

    def describe_groups(self, groups: Iterable[str]) -> "dict[str, GroupDescription]":
        """Groups of either protocol with their members; GROUP_ID_NOT_FOUND for one that does not exist."""
        return families.groups.describe_groups(self._caller, groups)

    def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete groups without members, with their committed offsets; NON_EMPTY_GROUP for others."""
        families.groups.delete_groups(self._caller, groups)

    def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
    ) -> "dict[str, dict[TopicPartition, GroupOffset]]":
        """The committed offsets of groups, for these partitions or all (None); partitions without a commit
        are left out.

        An unknown group has no commits. `require_stable` waits for pending transactions (KIP-447).
        """
        return families.groups.list_group_offsets(self._caller, groups, require_stable=require_stable)

    def alter_group_offsets(self, group: str, offsets: "Mapping[TopicPartition, int | GroupOffset]") -> None:
        """Commit for a group that has no members; UNKNOWN_MEMBER_ID if it has. ItemsFailed is by
        partition.
        """
        families.groups.alter_group_offsets(self._caller, group, offsets)

    def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the committed offsets of a group for partitions to which it is not subscribed.
        ItemsFailed is by partition.
        """
        families.groups.delete_group_offsets(self._caller, group, partitions)

    def remove_group_members(
        self,
        group: str,
        members: Iterable[str] = (),
        *,
        instance_ids: Iterable[str] = (),
        reason: str = "removed by an administrator",
    ) -> None:
        """Have members leave a classic group, by member id or by instance id (KIP-345). ItemsFailed is by
        either id.
        """
        families.groups.remove_members(self._caller, group, members, instance_ids, reason)

    # -- transactions ----------------------------------------------------------------------------------------

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        prefix: str = "",
    ) -> "list[TransactionListing]":
        """The transactional ids of all brokers in alphabetical order, filtered by state, producer id, age of
        the open transaction, or name.

        `pattern` is a regular expression (RE2) for the whole id, `prefix` its beginning; KIP-664, KIP-994,
        KIP-1152. ItemsFailed is as for `list_groups`, by `__transaction_state`.
        """
        return families.transactions.list_transactions(
            self._caller,
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=longer_than_ms,
            pattern=pattern,
            prefix=prefix,
        )

    def describe_transactions(self, transactional_ids: Iterable[str]) -> "dict[str, TransactionDescription]":
        """State, producer, time and partitions of transactions; TRANSACTIONAL_ID_NOT_FOUND for an unknown
        id.
        """
        return families.transactions.describe_transactions(self._caller, transactional_ids)

    def fence_producers(
        self, transactional_ids: Iterable[str], *, transaction_timeout_ms: int | None = None
    ) -> "dict[str, ProducerIdentity]":
        """Fence the producers that use these ids, and abort their open transactions (InitProducerId);
        returns the new producer ids and epochs.
        """
        return families.transactions.fence_producers(
            self._caller, transactional_ids, transaction_timeout_ms=transaction_timeout_ms
        )

    def end_transaction(self, identity: "ProducerIdentity", *, is_commit: bool) -> "ProducerIdentity":
        """Commit or abort a transaction that any process has begun and flushed; a repeated call has no
        further effect.

        Returns the identity for the next transaction. INVALID_TXN_STATE if it was ended the other way,
        PRODUCER_FENCED if its producer was fenced.
        """
        return families.transactions.end_transaction(self._caller, identity, is_commit=is_commit)

    def end_transactions(
        self, identities: "Iterable[ProducerIdentity]", *, is_commit: bool
    ) -> "dict[str, ProducerIdentity]":
        """As `end_transaction` for many, by transactional id, with several requests in flight to each
        coordinator; raises ItemsFailed.
        """
        return families.transactions.end_transactions(self._caller, identities, is_commit=is_commit)

    def abort_transaction(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """Write the abort marker of a hanging transaction to one partition; for transactions that no
        coordinator has (KIP-664).
        """
        families.transactions.abort_transaction(
            self._caller,
            partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )

    def find_hanging_transactions(
        self,
        *,
        topics: Sequence[str] | None = None,
        partitions: Iterable[TopicPartition] = (),
        node: int | None = None,
        longer_than_ms: int = 900_000,
    ) -> "list[OpenTransaction]":
        """Transactions that are open in a partition and that no coordinator will end: of these partitions,
        topics, or replicas of that broker.

        Only those are returned whose last write is older than `longer_than_ms`, which should be the brokers'
        transaction.max.timeout.ms.
        """
        return families.transactions.find_hanging_transactions(
            self._caller, topics=topics, partitions=partitions, node=node, longer_than_ms=longer_than_ms
        )

    # -- the cluster -----------------------------------------------------------------------------------------

    def describe_cluster(self, *, include_fenced: bool = False) -> "Cluster":
        """Cluster id, controller and brokers; fenced brokers only with `include_fenced` (KIP-1073)."""
        return families.cluster.describe_cluster(self._caller, include_fenced=include_fenced)

    def describe_quorum(self) -> "Quorum":
        """Leader, voters and observers of the metadata log (KIP-595)."""
        return families.cluster.describe_quorum(self._caller)

    def add_raft_voter(
        self,
        node: NodeId,
        directory_id: Uuid,
        endpoints: Sequence[tuple[str, str, int]],
        *,
        cluster_id: str | None = None,
    ) -> None:
        """Make a controller a voter of the metadata quorum, with the directory of its log (KIP-853), and wait
        for the commit. `endpoints` are its listeners for controllers, as (name, host, port).

        Raises BrokerError: DUPLICATE_VOTER for a node that is a voter, UNSUPPORTED_VERSION at kraft.version
        0, REQUEST_TIMED_OUT for a controller that does not run or lags, and while another change goes on.
        """
        families.cluster.add_raft_voter(self._caller, node, directory_id, endpoints, cluster_id=cluster_id)

    def remove_raft_voter(self, node: NodeId, directory_id: Uuid, *, cluster_id: str | None = None) -> None:
        """Remove a voter from the metadata quorum (KIP-853), and wait for the commit.

        Raises BrokerError: VOTER_NOT_FOUND, or as `add_raft_voter`.
        """
        families.cluster.remove_raft_voter(self._caller, node, directory_id, cluster_id=cluster_id)

    def describe_features(self) -> "dict[str, Feature]":
        """The features a broker supports and the levels that the cluster uses (KIP-584)."""
        return families.cluster.describe_features(self._caller)

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: "UpgradeType" = "upgrade",
        validate_only: bool = False,
    ) -> None:
        """Set the feature levels of the cluster; a downgrade must be allowed explicitly."""
        families.cluster.update_features(
            self._caller, levels, upgrade_type=upgrade_type, validate_only=validate_only
        )

    def unregister_broker(self, node: int) -> None:
        """Remove the registration of a broker that will not return."""
        families.cluster.unregister_broker(self._caller, node)

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, election: "ElectionType" = "preferred"
    ) -> dict[TopicPartition, bool]:
        """Elect leaders of these partitions or of all: True if a leader was elected, False if no election was
        needed.
        """
        return families.cluster.elect_leaders(self._caller, election, partitions)

    def alter_partition_reassignments(
        self,
        moves: Mapping[TopicPartition, Sequence[int] | None],
        *,
        may_change_replication_factor: bool = True,
    ) -> None:
        """Give partitions these replicas, the preferred leader first; None cancels a reassignment in progress
        (KIP-455). Returns once the controller has begun: `list_partition_reassignments` has what is not yet
        complete. ItemsFailed is by partition.
        """
        families.cluster.alter_reassignments(
            self._caller, moves, may_change_replication_factor=may_change_replication_factor
        )

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> "dict[TopicPartition, Reassignment]":
        """The reassignments in progress, of these partitions or of all."""
        return families.cluster.list_reassignments(self._caller, partitions)

    def alter_reassignments(
        self,
        moves: Mapping[TopicPartition, Sequence[int] | None],
        *,
        may_change_replication_factor: bool = True,
    ) -> None:
        """An earlier name of `alter_partition_reassignments`."""
        self.alter_partition_reassignments(moves, may_change_replication_factor=may_change_replication_factor)

    def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> "dict[TopicPartition, Reassignment]":
        """An earlier name of `list_partition_reassignments`."""
        return self.list_partition_reassignments(partitions)

    def broker_states(self, nodes: Iterable[int]) -> "dict[NodeId, BrokerState]":
        """The state that is asked of each of these brokers, dead ones too: see `set_broker_state`. Brokers of
        Kafka have none, and are left out.
        """
        return families.configs.broker_states(self._caller, nodes)

    def set_broker_state(self, node: int, state: "BrokerState") -> None:
        """Ask the cluster to give a broker no new replicas (`cordoned`), to move its leaderships away as well
        (`drained`), or all its replicas and to unregister it once it has stopped (`decommissioned`); `active`
        takes that back. The controller does the work; this only asks.
        """
        families.configs.set_broker_state(self._caller, node, state)

    # -- disks, producers, quotas ----------------------------------------------------------------------------

    def describe_log_dirs(
        self, nodes: Iterable[int] | None = None, *, partitions: Iterable[TopicPartition] | None = None
    ) -> "dict[NodeId, tuple[LogDir, ...]]":
        """The log directories of these brokers (None: of all) with the sizes of these partitions (None: of
        all). ItemsFailed is by node id.
        """
        return families.storage.describe_log_dirs(self._caller, nodes, partitions)

    def alter_replica_log_dirs(self, node: int, moves: Mapping[TopicPartition, str]) -> None:
        """Move replicas to another log directory of their broker, given by its absolute path; returns when
        the moves have begun.
        """
        families.storage.alter_replica_log_dirs(self._caller, node, moves)

    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> "dict[TopicPartition, tuple[ActiveProducer, ...]]":
        """The producers of partitions in the state of their leaders, to find a hanging transaction
        (KIP-664).
        """
        return families.storage.describe_producers(self._caller, partitions)

    def describe_client_quotas(
        self, filters: "Iterable[QuotaFilter]" = (), *, is_strict: bool = False
    ) -> "dict[QuotaEntity, dict[str, float]]":
        """The quotas of the entities that match every filter; with `is_strict`, only of those without other
        types (KIP-546).
        """
        return families.quotas.describe_quotas(self._caller, filters, is_strict=is_strict)

    def alter_client_quotas(
        self, changes: "Mapping[QuotaEntity, Mapping[str, float | None]]", *, validate_only: bool = False
    ) -> None:
        """Set quotas by key (`producer_byte_rate`, `consumer_byte_rate`, `request_percentage` …); None
        removes one.
        """
        families.quotas.alter_quotas(self._caller, changes, validate_only=validate_only)

    # -- security --------------------------------------------------------------------------------------------

    def create_acls(self, rules: "Iterable[AclRule]") -> None:
        """Add access rules that do not exist yet; SECURITY_DISABLED without an authorizer."""
        families.acls.create_acls(self._caller, list(rules))

    def describe_acls(self, wanted: "AclFilter | None" = None) -> "list[AclRule]":
        """The access rules that the filter selects, or all, in order."""
        return families.acls.describe_acls(self._caller, wanted)

    def delete_acls(self, filters: "Iterable[AclFilter]") -> "dict[AclFilter, list[AclRule]]":
        """Remove the access rules that the filters select; returns them by filter."""
        return families.acls.delete_acls(self._caller, list(filters))

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> "dict[str, dict[ScramMechanism, int]]":
        """The iterations of each mechanism of users, or of all; RESOURCE_NOT_FOUND for one without any."""
        return families.credentials.describe_credentials(self._caller, users)

    def alter_user_scram_credentials(self, changes: "Iterable[ScramUpsertion | ScramDeletion]") -> None:
        """Set and remove the passwords of users. ItemsFailed is by user and mechanism."""
        families.credentials.alter_credentials(self._caller, changes)

    def close(self) -> None:
        """Close the connections."""
        self._requests.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
