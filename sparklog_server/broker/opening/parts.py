"""Opens the parts of a broker that its directories contain: the quorum, the logs and the coordinators."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from sparklog.model import Instant, NodeId, Uuid
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest
from sparklog_server.agenda import Agenda
from sparklog_server.broker.access.authorization import Authorization
from sparklog_server.broker.cluster.links import Address, Links, address_in
from sparklog_server.broker.cluster.quorum import Quorum
from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards
from sparklog_server.broker.coordinators.group_coordinator_service import open_groups
from sparklog_server.broker.coordinators.marker_channels import MarkerChannels
from sparklog_server.broker.coordinators.resolver_links import LinkedResolver
from sparklog_server.broker.coordinators.transaction_coordinator_service import TransactionCoordinator
from sparklog_server.broker.dynamic_config import CertificatesRefusal, DynamicBrokerConfig
from sparklog_server.broker.opening.directories import open_log_dirs, registration
from sparklog_server.broker.opening.local_partitions import open_partitions
from sparklog_server.broker.session import Wakeable
from sparklog_server.config.sasl_settings import uses_sasl
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import Disk
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.replica.directory import Trace
from sparklog_server.replica.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from sparklog_server.broker.access.authentication import LinkLogins
    from sparklog_server.broker.cluster.controller_link import ControllerLink
    from sparklog_server.broker.coordinators.transaction_peers import TransactionPeers
    from sparklog_server.broker.opening.log_recovery import LogRecovery


class Parts(NamedTuple):
    """The parts of one broker, which share the table of continuations, the agenda and `woken`: the waiters
    that continue in this turn.

    `failed_directories` has the directories whose failure has not been reported to the controller.
    """

    live: DynamicBrokerConfig
    continuations: Continuations
    agenda: Agenda
    woken: dict[Wakeable, None]
    cluster_id: str
    partitions: ReplicaManager
    authorization: Authorization
    links: Links
    quorum: Quorum
    controllers: "ControllerLink | None"
    """The way to the active controller; None where this node is the only voter and decides itself."""
    address_of: Callable[[NodeId], Address | None]
    """The inter-broker listener of a broker that is not fenced."""
    transaction_peers: "Callable[[], TransactionPeers]"
    """The other brokers, as transactions use them."""
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
    certificates_refusal: CertificatesRefusal,
) -> Parts:
    """Open the directories and the metadata log, and the data logs of a node that is alone. Blocks. Raises
    StorageError, DirectoryRefused or SettingsError.
    """
    live = DynamicBrokerConfig(settings, trace, certificates_refusal)
    continuations, agenda, woken = Continuations(), Agenda(), dict[Wakeable, None]()
    failed_directories: list[Uuid] = []
    is_alone = settings.stays_alone
    log_dirs = open_log_dirs(settings, disk, entropy, trace, now, is_alone=is_alone)
    cluster_id, metadata_directory_id = log_dirs[0].cluster_id, log_dirs[0].directory_id
    metadata_dir = None if settings.metadata_log_dir in settings.log_dirs else log_dirs.pop(0)
    partitions = open_partitions(
        live, disk, log_dirs, continuations, agenda, failed=failed_directories, entropy=entropy, trace=trace
    )
    logins = _open_logins(live, entropy, trace)
    links = Links(continuations.effects, f"broker-{settings.node_id}", logins)
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
    controllers = _open_controllers(settings, quorum, links, trace)

    def address_of(node: NodeId) -> Address | None:
        return address_in(quorum.image, node, live.settings.inter_broker_listener_name)

    @cache
    def transaction_peers() -> "TransactionPeers":
        # At its only use: a broker alone has no peers.
        from sparklog_server.broker.coordinators.transaction_peers import TransactionPeers

        return TransactionPeers(links, address_of)

    resolver = LinkedResolver(live, links, agenda, entropy=entropy, trace=trace)
    groups = open_groups(live, authorization, continuations, agenda, entropy=entropy, trace=trace)
    markers = MarkerChannels(
        NodeId(settings.node_id), lambda: quorum.image, partitions, groups, woken, transaction_peers
    )
    coordinators = transactions(
        live, continuations, agenda, resolver, markers.write, entropy=entropy, trace=trace
    )
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
        woken,
        cluster_id,
        partitions,
        authorization,
        links,
        quorum,
        controllers,
        address_of,
        transaction_peers,
        groups,
        coordinators,
        incarnation_id,
        request,
        failed_directories,
        metadata_dir,
        recovery,
        entropy,
    )


def _open_logins(
    live: DynamicBrokerConfig, entropy: Callable[[int], bytes], trace: Trace
) -> "LinkLogins | None":
    """The logins of this node on others; None without SASL. Raises SettingsError."""
    if not uses_sasl(live.settings):
        return None
    from sparklog_server.broker.access.authentication import LinkLogins  # imports machines

    return LinkLogins(live, entropy, trace)


def _open_controllers(
    settings: BrokerSettings, quorum: Quorum, links: Links, trace: Trace
) -> "ControllerLink | None":
    if settings.stays_alone and quorum.is_alone:
        return None
    from sparklog_server.broker.cluster.controller_link import ControllerLink  # a node alone needs none

    return ControllerLink(quorum, links, trace, heartbeat_us=settings.broker_session_timeout_ms * 1000)


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
