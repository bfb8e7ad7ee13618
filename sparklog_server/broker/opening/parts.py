"""Opens the parts of a broker that its directories contain: the quorum, the logs and the coordinators."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from sparklog.model import Instant, Uuid
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest
from sparklog_server.agenda import Agenda
from sparklog_server.broker.access.authorization import Authorization
from sparklog_server.broker.cluster.links import Links
from sparklog_server.broker.cluster.quorum import Quorum
from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards
from sparklog_server.broker.coordinators.group_coordinator_service import open_groups
from sparklog_server.broker.coordinators.resolver_links import LinkedResolver
from sparklog_server.broker.coordinators.transaction_coordinator_service import TransactionCoordinator
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.broker.opening.directories import open_log_dirs, registration
from sparklog_server.broker.opening.local_partitions import open_partitions
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import Disk
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.replica.directory import Trace
from sparklog_server.replica.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from sparklog_server.broker.opening.log_recovery import LogRecovery


class Parts(NamedTuple):
    """The parts of one broker, which share the table of continuations and the agenda.

    `failed_directories` has the directories whose failure has not been reported to the controller.
    """

    live: DynamicBrokerConfig
    continuations: Continuations
    agenda: Agenda
    cluster_id: str
    partitions: ReplicaManager
    quorum: Quorum
    links: Links
    groups: CoordinatorShards
    transactions: TransactionCoordinator
    incarnation_id: Uuid
    """Of this process, as a controller; as a broker it may continue an incarnation (`registration`)."""
    registration: BrokerRegistrationRequest
    failed_directories: list[Uuid]
    metadata_dir: LogDir | None
    """The directory of the metadata log, if it is not a data directory."""
    recovery: "LogRecovery | None"
    """Recovers the data logs after the start of the broker; None where they are open."""
    entropy: Callable[[int], bytes]


def nothing_readable(url: str) -> bytes:
    """The reader of URLs of a node that has none."""
    raise OSError(f"{url} cannot be read here")


def open_parts(
    settings: BrokerSettings,
    disk: Disk,
    *,
    transactions: type[TransactionCoordinator],
    authorization: Authorization,
    entropy: Callable[[int], bytes],
    trace: Trace,
    now: Instant,
) -> Parts:
    """Open the directories and the metadata log, and the data logs of a node that is alone. Blocks. Raises
    StorageError or DirectoryRefused.
    """
    live, continuations, agenda = DynamicBrokerConfig(settings, trace), Continuations(), Agenda()
    failed_directories: list[Uuid] = []
    is_alone = settings.stays_alone
    log_dirs = open_log_dirs(settings, disk, entropy, trace, now, is_alone=is_alone)
    cluster_id, metadata_directory_id = log_dirs[0].cluster_id, log_dirs[0].directory_id
    metadata_dir = None if settings.metadata_log_dir in settings.log_dirs else log_dirs.pop(0)
    partitions = open_partitions(
        live, disk, log_dirs, continuations, agenda, failed=failed_directories, entropy=entropy, trace=trace
    )
    links = Links(continuations.effects, f"broker-{settings.node_id}")
    quorum = _open_quorum(
        settings,
        disk,
        metadata_directory_id,
        cluster_id,
        continuations,
        None if is_alone else links,
        entropy,
        trace,
        now,
    )
    resolver = LinkedResolver(live, links, agenda, entropy=entropy, trace=trace)
    groups = open_groups(live, authorization, continuations, agenda, entropy=entropy, trace=trace)
    coordinators = transactions(live, continuations, agenda, resolver, entropy=entropy, trace=trace)
    incarnation_id = Uuid(entropy(16))
    request = registration(settings, log_dirs, cluster_id, incarnation_id=incarnation_id)
    recovery = None
    if not is_alone:
        from sparklog_server.broker.opening.log_recovery import (
            LogRecovery,  # a node alone imports none of this
        )

        recovery = LogRecovery(settings, disk, partitions, continuations, trace, Uuid(request.incarnation_id))
    return Parts(
        live,
        continuations,
        agenda,
        cluster_id,
        partitions,
        quorum,
        links,
        groups,
        coordinators,
        incarnation_id,
        request,
        failed_directories,
        metadata_dir,
        recovery,
        entropy,
    )


def _open_quorum(
    settings: BrokerSettings,
    disk: Disk,
    directory_id: Uuid,
    cluster_id: str,
    continuations: Continuations,
    links: Links | None,
    entropy: Callable[[int], bytes],
    trace: Trace,
    now: Instant,
) -> Quorum:
    setup = None
    if links is not None:
        from sparklog_server.broker.cluster.raft_links import quorum_setup

        setup = quorum_setup(settings, directory_id, links)
    quorum = Quorum.open(
        disk,
        settings,
        directory_id,
        cluster_id,
        continuations,
        entropy=entropy,
        trace=trace,
        now=now,
        setup=setup,
    )
    if setup is not None:
        setup.port.serve(quorum)
    return quorum
