"""Formatting: a node's directories get the id of their cluster, and its metadata log the first voters.

    --standalone             this node is the only voter          ─┐ a snapshot at offset 0 has the voters
    --initial-controllers    each of these nodes is a voter       ─┘ and kraft.version 1 (KIP-853)
    --no-initial-controllers the node learns the voters from the cluster that it joins

The snapshot is written first and meta.properties of the metadata log's directory last, so that a crash in
between leaves directories that are refused, never a node without its voters.
"""

from collections.abc import Callable, Sequence

from sparklog.errors import SettingsError
from sparklog.model import Millis, NodeId, Uuid
from sparklog.record.control import KRaftVersion, KRaftVersionFeature, KRaftVoters, QuorumVoter, VoterEndpoint
from sparklog.wire.schema import Message
from sparklog_server.config.quorum_settings import VOTERS_KEY, address_of
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.door import Disk
from sparklog_server.log.directory.first_start import METADATA_DIRECTORY, refuse_what_was_lost
from sparklog_server.log.directory.identity import (
    META_FILE,
    DirectoryRefused,
    decode_uuid,
    new_uuid,
    read_meta,
    write_meta,
)
from sparklog_server.metadata.features import INITIAL
from sparklog_server.metadata.records import FeatureLevelRecord, batch_of
from sparklog_server.raft.snapshots import write_bootstrap, write_bootstrap_metadata

KRAFT_VERSION = 1
_FORM = "an initial controller is written ID@HOST:PORT:DIRECTORY-ID"


def initial_controllers(settings: BrokerSettings, text: str) -> tuple[QuorumVoter, ...]:
    """The voters of `ID@HOST:PORT:DIRECTORY-ID,…`, the form of `kafka-storage format`. Raises
    SettingsError.
    """
    voters = tuple(_voter(settings, entry.strip()) for entry in text.split(","))
    if len({voter.voter_id for voter in voters}) != len(voters):
        raise SettingsError(f"--initial-controllers {text}: a node id appears twice")
    if len({voter.voter_directory_id for voter in voters}) != len(voters):
        raise SettingsError(f"--initial-controllers {text}: a directory id appears twice")
    if "controller" not in settings.process_roles and settings.node_id in [v.voter_id for v in voters]:
        raise SettingsError(
            f"node {settings.node_id} is an initial controller and has only the role broker: set "
            f"process.roles=broker,controller"
        )
    return voters


def standalone(settings: BrokerSettings, entropy: Callable[[int], bytes]) -> tuple[QuorumVoter, ...]:
    """This node as the only voter, at its first controller listener. Raises SettingsError."""
    if "controller" not in settings.process_roles:
        raise SettingsError("--standalone needs a controller: set process.roles=broker,controller")
    for listener in settings.advertised_listeners:
        if listener.name in settings.controller_listener_names:
            if listener.port == 0:
                raise SettingsError(f"{listener}: a voter needs a port that stays the same, not port 0")
            endpoint = VoterEndpoint(listener.name, listener.host or "localhost", listener.port)
            return (_quorum_voter(settings.node_id, new_uuid(entropy), endpoint),)
    raise SettingsError(
        "--standalone needs a listener for other nodes: set controller.listener.names=CONTROLLER and add "
        "CONTROLLER://127.0.0.1:9093 to listeners"
    )


def format_node(
    settings: BrokerSettings,
    disk: Disk,
    *,
    cluster_id: str,
    voters: Sequence[QuorumVoter],
    entropy: Callable[[int], bytes],
    wall_ms: Millis,
    credentials: Sequence[Message] = (),
    ignores_formatted: bool = False,
) -> dict[str, Uuid]:
    """Format the directories of a node; returns the ids of those that were not formatted before, which must
    be all unless it `ignores_formatted`: the others must be of the same cluster and node.
    No voters: the node joins a quorum that exists, or has static voters. A new cluster begins with the
    credentials, if this node is its first leader.

    Raises SettingsError, DirectoryRefused, DirectoryInUse, StorageError.
    """
    if settings.quorum.voters_given and voters:
        raise SettingsError(
            f"{VOTERS_KEY} is set, which defines a static quorum: remove it and set "
            f"controller.quorum.bootstrap.servers, or format without --standalone and --initial-controllers"
        )
    own = next((voter for voter in voters if voter.voter_id == settings.node_id), None)
    paths = [path for path in settings.log_dirs if path != settings.metadata_log_dir]
    paths.append(settings.metadata_log_dir)
    locked: list[str] = []
    new: list[str] = []
    try:
        for path in paths:
            disk.make_directory(path)
            disk.lock(path)
            locked.append(path)
            if META_FILE not in disk.list(path):
                refuse_what_was_lost(disk, path)
                new.append(path)
            elif ignores_formatted:
                node_id = NodeId(settings.node_id)
                read_meta(disk, path, node_id=node_id, cluster_id=cluster_id, entropy=entropy)
            else:
                raise DirectoryRefused(
                    path,
                    "the directory is already formatted; name an empty directory, or leave it as it is with "
                    "--ignore-formatted",
                )
        if settings.metadata_log_dir not in new:
            voters, credentials = (), ()
        elif voters and len(new) < len(paths):
            raise DirectoryRefused(
                settings.metadata_log_dir,
                "no new cluster is begun beside directories that are formatted: join theirs with "
                "--no-initial-controllers",
            )
        if voters:
            log = f"{settings.metadata_log_dir}/{METADATA_DIRECTORY}"
            disk.make_directory(log)
            version = KRaftVersion(k_raft_version=KRAFT_VERSION)
            write_bootstrap(disk, log, (version, KRaftVoters(voters=list(voters))), wall_ms=wall_ms)
        if credentials:
            levels = [
                FeatureLevelRecord(name=name, feature_level=level) for name, level in sorted(INITIAL.items())
            ]
            batch = batch_of([*levels, *credentials], wall_ms)
            write_bootstrap_metadata(disk, settings.metadata_log_dir, batch, wall_ms=wall_ms)
        ids: dict[str, Uuid] = {}
        for path in new:
            is_own = own is not None and path == settings.metadata_log_dir
            ids[path] = Uuid(own.voter_directory_id) if is_own and own is not None else new_uuid(entropy)
            node_id = NodeId(settings.node_id)
            write_meta(disk, path, node_id=node_id, cluster_id=cluster_id, directory_id=ids[path])
        return ids
    finally:
        for path in locked:
            disk.unlock(path)


def _voter(settings: BrokerSettings, text: str) -> QuorumVoter:
    node_id, at, rest = text.partition("@")
    address, _, directory = rest.rpartition(":")
    if not at or not (node_id.isascii() and node_id.isdecimal()):
        raise SettingsError(f"--initial-controllers {text}: {_FORM}")
    host, port = address_of("--initial-controllers", address, _FORM)
    try:
        directory_id = decode_uuid(directory)
    except ValueError as error:
        raise SettingsError(f"--initial-controllers {text}: {error}; {_FORM}") from error
    name = next(iter(settings.controller_listener_names), "CONTROLLER")
    return _quorum_voter(int(node_id), directory_id, VoterEndpoint(name, host, port))


def _quorum_voter(node_id: int, directory_id: Uuid, endpoint: VoterEndpoint) -> QuorumVoter:
    return QuorumVoter(node_id, directory_id, [endpoint], KRaftVersionFeature(0, KRAFT_VERSION))
