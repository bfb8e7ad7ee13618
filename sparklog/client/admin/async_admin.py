"""Administration for asyncio: the calls of `Admin`, made in the loop's shared pool of threads.

Its calls are rare, so they are not worth a machine of their own in the loop: no thread belongs to the client,
and one call at a time uses it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, Unpack

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.topics import CreatedTopic, ListedOffset, NewPartitions, NewTopic, Topic
from sparklog.client.failures import ClientClosed
from sparklog.client.settings import AdminOptions, ClientSettings, IsolationLevel
from sparklog.client.transport.event_loop import AsyncClient
from sparklog.model import NodeId, Offset, TopicPartition

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
    from sparklog.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource, ResourceType
    from sparklog.client.admin.credentials import ScramDeletion, ScramMechanism, ScramUpsertion
    from sparklog.client.admin.groups import GroupDescription, GroupListing, GroupOffset
    from sparklog.client.admin.quotas import QuotaEntity, QuotaFilter
    from sparklog.client.admin.storage import ActiveProducer, LogDir
    from sparklog.client.admin.transactions import OpenTransaction, TransactionDescription, TransactionListing
    from sparklog.client.producer.transaction_states import ProducerIdentity

T = TypeVar("T")


class AsyncAdmin(AsyncClient):
    """An administration client for one event loop and any number of tasks. A cancelled call goes on in the
    background; the next one waits for its end.
    """

    def __init__(self, **settings: Unpack[AdminOptions]) -> None:
        self._settings = ClientSettings.for_role("admin", settings)
        self._admin: Admin | None = None
        self._turn = asyncio.Lock()
        self._calls: set[asyncio.Task[object]] = set()
        self._is_stopped = False

    async def start(self) -> None:
        """Nothing is connected before the first call."""
        self._check()

    async def stop(self) -> None:
        """Wait for the call under way, and close the connections; a second call has no effect."""
        self._is_stopped = True
        async with self._turn:
            admin, self._admin = self._admin, None
            if admin is not None:
                admin.close()

    # -- the calls -------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Mapping[str, int] | Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """See `Admin.create_topics`."""
        return await self._run(lambda admin: admin.create_topics(topics, validate_only=validate_only))

    async def delete_topics(self, names: Iterable[str]) -> None:
        """See `Admin.delete_topics`."""
        return await self._run(lambda admin: admin.delete_topics(names))

    async def create_partitions(
        self, counts: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> None:
        """See `Admin.create_partitions`."""
        return await self._run(lambda admin: admin.create_partitions(counts, validate_only=validate_only))

    async def list_topics(self, *, include_internal: bool = False) -> dict[str, Topic]:
        """See `Admin.list_topics`."""
        return await self._run(lambda admin: admin.list_topics(include_internal=include_internal))

    async def describe_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """See `Admin.describe_topics`."""
        return await self._run(lambda admin: admin.describe_topics(names))

    async def list_offsets(
        self, positions: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset]:
        """See `Admin.list_offsets`."""
        return await self._run(lambda admin: admin.list_offsets(positions, isolation_level=isolation_level))

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """See `Admin.delete_records`."""
        return await self._run(lambda admin: admin.delete_records(before))

    async def describe_configs(
        self, topics: Iterable[str] = (), *, brokers: Iterable[int] = ()
    ) -> "dict[str, dict[str, ConfigEntry]]":
        """See `Admin.describe_configs`."""
        return await self._run(lambda admin: admin.describe_configs(topics, brokers=brokers))

    async def describe_resources(
        self, resources: "Iterable[ConfigResource]", keys: Iterable[str] | None = None
    ) -> "dict[ConfigResource, dict[str, ConfigEntry]]":
        """See `Admin.describe_resources`."""
        return await self._run(lambda admin: admin.describe_resources(resources, keys))

    async def alter_configs(
        self, changes: "Mapping[ConfigResource, Sequence[ConfigChange]]", *, validate_only: bool = False
    ) -> None:
        """See `Admin.alter_configs`."""
        return await self._run(lambda admin: admin.alter_configs(changes, validate_only=validate_only))

    async def list_config_resources(self, types: "Iterable[ResourceType]" = ()) -> "list[ConfigResource]":
        """See `Admin.list_config_resources`."""
        return await self._run(lambda admin: admin.list_config_resources(types))

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> "list[GroupListing]":
        """See `Admin.list_groups`."""
        return await self._run(lambda admin: admin.list_groups(states=states, types=types))

    async def describe_groups(self, groups: Iterable[str]) -> "dict[str, GroupDescription]":
        """See `Admin.describe_groups`."""
        return await self._run(lambda admin: admin.describe_groups(groups))

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """See `Admin.delete_groups`."""
        return await self._run(lambda admin: admin.delete_groups(groups))

    async def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
    ) -> "dict[str, dict[TopicPartition, GroupOffset]]":
        """See `Admin.list_group_offsets`."""
        return await self._run(lambda admin: admin.list_group_offsets(groups, require_stable=require_stable))

    async def alter_group_offsets(
        self, group: str, offsets: "Mapping[TopicPartition, int | GroupOffset]"
    ) -> None:
        """See `Admin.alter_group_offsets`."""
        return await self._run(lambda admin: admin.alter_group_offsets(group, offsets))

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """See `Admin.delete_group_offsets`."""
        return await self._run(lambda admin: admin.delete_group_offsets(group, partitions))

    async def remove_group_members(
        self,
        group: str,
        members: Iterable[str] = (),
        *,
        instance_ids: Iterable[str] = (),
        reason: str = "removed by an administrator",
    ) -> None:
        """See `Admin.remove_group_members`."""
        return await self._run(
            lambda admin: admin.remove_group_members(group, members, instance_ids=instance_ids, reason=reason)
        )

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        prefix: str = "",
    ) -> "list[TransactionListing]":
        """See `Admin.list_transactions`."""
        return await self._run(
            lambda admin: admin.list_transactions(
                states=states,
                producer_ids=producer_ids,
                longer_than_ms=longer_than_ms,
                pattern=pattern,
                prefix=prefix,
            )
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> "dict[str, TransactionDescription]":
        """See `Admin.describe_transactions`."""
        return await self._run(lambda admin: admin.describe_transactions(transactional_ids))

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, transaction_timeout_ms: int | None = None
    ) -> "dict[str, ProducerIdentity]":
        """See `Admin.fence_producers`."""
        return await self._run(
            lambda admin: admin.fence_producers(
                transactional_ids, transaction_timeout_ms=transaction_timeout_ms
            )
        )

    async def end_transaction(self, identity: "ProducerIdentity", *, is_commit: bool) -> "ProducerIdentity":
        """See `Admin.end_transaction`."""
        return await self._run(lambda admin: admin.end_transaction(identity, is_commit=is_commit))

    async def end_transactions(
        self, identities: "Iterable[ProducerIdentity]", *, is_commit: bool
    ) -> "dict[str, ProducerIdentity]":
        """See `Admin.end_transactions`."""
        return await self._run(lambda admin: admin.end_transactions(identities, is_commit=is_commit))

    async def abort_transaction(
        self, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """See `Admin.abort_transaction`."""
        return await self._run(
            lambda admin: admin.abort_transaction(
                partition,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
            )
        )

    async def find_hanging_transactions(
        self,
        *,
        topics: Sequence[str] | None = None,
        partitions: Iterable[TopicPartition] = (),
        node: int | None = None,
        longer_than_ms: int = 900000,
    ) -> "list[OpenTransaction]":
        """See `Admin.find_hanging_transactions`."""
        return await self._run(
            lambda admin: admin.find_hanging_transactions(
                topics=topics, partitions=partitions, node=node, longer_than_ms=longer_than_ms
            )
        )

    async def describe_cluster(self, *, include_fenced: bool = False) -> "Cluster":
        """See `Admin.describe_cluster`."""
        return await self._run(lambda admin: admin.describe_cluster(include_fenced=include_fenced))

    async def describe_quorum(self) -> "Quorum":
        """See `Admin.describe_quorum`."""
        return await self._run(lambda admin: admin.describe_quorum())

    async def describe_features(self) -> "dict[str, Feature]":
        """See `Admin.describe_features`."""
        return await self._run(lambda admin: admin.describe_features())

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: "UpgradeType" = "upgrade",
        validate_only: bool = False,
    ) -> None:
        """See `Admin.update_features`."""
        return await self._run(
            lambda admin: admin.update_features(
                levels, upgrade_type=upgrade_type, validate_only=validate_only
            )
        )

    async def unregister_broker(self, node: int) -> None:
        """See `Admin.unregister_broker`."""
        return await self._run(lambda admin: admin.unregister_broker(node))

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, election: "ElectionType" = "preferred"
    ) -> dict[TopicPartition, bool]:
        """See `Admin.elect_leaders`."""
        return await self._run(lambda admin: admin.elect_leaders(partitions, election=election))

    async def alter_reassignments(
        self,
        moves: Mapping[TopicPartition, Sequence[int] | None],
        *,
        may_change_replication_factor: bool = True,
    ) -> None:
        """See `Admin.alter_reassignments`."""
        return await self._run(
            lambda admin: admin.alter_reassignments(
                moves, may_change_replication_factor=may_change_replication_factor
            )
        )

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> "dict[TopicPartition, Reassignment]":
        """See `Admin.list_reassignments`."""
        return await self._run(lambda admin: admin.list_reassignments(partitions))

    async def describe_log_dirs(
        self, nodes: Iterable[int] | None = None, *, partitions: Iterable[TopicPartition] | None = None
    ) -> "dict[NodeId, tuple[LogDir, ...]]":
        """See `Admin.describe_log_dirs`."""
        return await self._run(lambda admin: admin.describe_log_dirs(nodes, partitions=partitions))

    async def alter_replica_log_dirs(self, node: int, moves: Mapping[TopicPartition, str]) -> None:
        """See `Admin.alter_replica_log_dirs`."""
        return await self._run(lambda admin: admin.alter_replica_log_dirs(node, moves))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> "dict[TopicPartition, tuple[ActiveProducer, ...]]":
        """See `Admin.describe_producers`."""
        return await self._run(lambda admin: admin.describe_producers(partitions))

    async def describe_client_quotas(
        self, filters: "Iterable[QuotaFilter]" = (), *, is_strict: bool = False
    ) -> "dict[QuotaEntity, dict[str, float]]":
        """See `Admin.describe_client_quotas`."""
        return await self._run(lambda admin: admin.describe_client_quotas(filters, is_strict=is_strict))

    async def alter_client_quotas(
        self, changes: "Mapping[QuotaEntity, Mapping[str, float | None]]", *, validate_only: bool = False
    ) -> None:
        """See `Admin.alter_client_quotas`."""
        return await self._run(lambda admin: admin.alter_client_quotas(changes, validate_only=validate_only))

    async def create_acls(self, rules: "Iterable[AclRule]") -> None:
        """See `Admin.create_acls`."""
        return await self._run(lambda admin: admin.create_acls(rules))

    async def describe_acls(self, wanted: "AclFilter | None" = None) -> "list[AclRule]":
        """See `Admin.describe_acls`."""
        return await self._run(lambda admin: admin.describe_acls(wanted))

    async def delete_acls(self, filters: "Iterable[AclFilter]") -> "dict[AclFilter, list[AclRule]]":
        """See `Admin.delete_acls`."""
        return await self._run(lambda admin: admin.delete_acls(filters))

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> "dict[str, dict[ScramMechanism, int]]":
        """See `Admin.describe_user_scram_credentials`."""
        return await self._run(lambda admin: admin.describe_user_scram_credentials(users))

    async def alter_user_scram_credentials(self, changes: "Iterable[ScramUpsertion | ScramDeletion]") -> None:
        """See `Admin.alter_user_scram_credentials`."""
        return await self._run(lambda admin: admin.alter_user_scram_credentials(changes))

    # -- inside ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._is_stopped:
            raise ClientClosed("the client is stopped")

    async def _run(self, call: Callable[[Admin], T]) -> T:
        self._check()

        async def run() -> T:
            async with self._turn:
                self._check()
                admin = self._admin = self._admin or Admin.from_settings(self._settings)
                return await asyncio.get_running_loop().run_in_executor(None, call, admin)

        task = asyncio.create_task(run())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await asyncio.shield(task)
