"""`sparklog start --join`: a broker that joins a cluster which its first start asks for.

    DescribeCluster, DescribeQuorum ─► cluster id, controllers, ids in use ─► format the directories ─► start

The node is a broker and an observer of the quorum, never a voter. Every start asks the cluster where its
controllers are; a directory that was formatted keeps its node id.
"""

import os
import time
from collections.abc import Mapping, Sequence

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.cluster import Cluster, Quorum
from sparklog.client.settings import ClientSettings
from sparklog.errors import SettingsError
from sparklog.model import Millis
from sparklog_server.broker.opening.formatting import format_node
from sparklog_server.config.listeners import joined
from sparklog_server.config.load import Loaded, load
from sparklog_server.config.quorum_settings import BOOTSTRAP_KEY
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_properties
from sparklog_server.disk.door import Disk
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.directory.identity import META_FILE, DirectoryRefused

JOINED_KEYS = ("process.roles", "controller.listener.names", BOOTSTRAP_KEY, "node.id")
"""The settings that come from the cluster, or are chosen."""


def join(
    servers: str,
    client: Mapping[str, str],
    config: str | None,
    given: Sequence[str],
    *,
    is_insecure_allowed: bool,
) -> Loaded:
    """The settings of a broker of that cluster, which is asked with these client settings; its directories
    are formatted. Raises SparklogError, DirectoryRefused, StorageError.
    """
    settings = ClientSettings.from_kafka({**client, "bootstrap.servers": servers})
    with Admin.from_settings(settings) as admin:
        cluster, quorum = admin.describe_cluster(include_fenced=True), admin.describe_quorum()
    return prepare(OsDisk(), servers, cluster, quorum, config, given, is_insecure_allowed=is_insecure_allowed)


def prepare(
    disk: Disk,
    servers: str,
    cluster: Cluster,
    quorum: Quorum,
    config: str | None,
    given: Sequence[str],
    *,
    is_insecure_allowed: bool = False,
) -> Loaded:
    """As `join`, from what the cluster answered."""
    assignments = [*given, *_quorum_of(servers, cluster, quorum)]
    loaded = load(config, assignments, is_insecure_allowed=is_insecure_allowed)
    path = loaded.settings.metadata_log_dir
    kept = _kept(disk, path)
    if kept is not None and kept.get("cluster.id") != cluster.cluster_id:
        raise DirectoryRefused(
            path,
            f"belongs to cluster {kept.get('cluster.id')}, but {servers} is cluster {cluster.cluster_id}: "
            f"name another --data-dir, or the brokers of that cluster",
        )
    if "node.id" not in loaded.settings.given:
        chosen = free_node_id(cluster, quorum) if kept is None else kept.get("node.id", "")
        loaded = load(config, [*assignments, f"node.id={chosen}"], is_insecure_allowed=is_insecure_allowed)
    node_id = loaded.settings.node_id
    if node_id in [voter.node_id for voter in quorum.voters]:
        raise SettingsError(
            f"node {node_id} is a voter of cluster {cluster.cluster_id}: start it with its own settings, or "
            f"choose another --node-id"
        )
    if kept is None:
        if node_id in [node.node_id for node in cluster.nodes]:
            raise SettingsError(
                f"node id {node_id} is in use in cluster {cluster.cluster_id}: choose another --node-id, or "
                f"none"
            )
        format_node(
            loaded.settings,
            disk,
            cluster_id=cluster.cluster_id,
            voters=(),
            entropy=os.urandom,
            wall_ms=Millis(time.time_ns() // 1_000_000),
        )
    return loaded


def free_node_id(cluster: Cluster, quorum: Quorum) -> int:
    """An id above all that are in use: the id of a broker that was removed may stand in its partitions."""
    used = [node.node_id for node in cluster.nodes]
    used += [replica.node_id for replica in (*quorum.voters, *quorum.observers)]
    return max(used, default=0) + 1


def _quorum_of(servers: str, cluster: Cluster, quorum: Quorum) -> list[str]:
    """The settings by which a broker reaches the controllers. Raises SettingsError."""
    clients = {(node.host, node.port) for node in cluster.nodes}
    controllers = [one for one in quorum.endpoints if (one.host, one.port) not in clients]
    if not controllers:
        raise SettingsError(
            f"the controllers of {servers} have no listener for other nodes: add "
            f"CONTROLLER://127.0.0.1:9093 to their `listeners`, set controller.listener.names=CONTROLLER, "
            f"and start them again"
        )
    return [
        "process.roles=broker",
        f"controller.listener.names={controllers[0].listener}",
        f"{BOOTSTRAP_KEY}={','.join(joined(one.host, one.port) for one in controllers)}",
    ]


def _kept(disk: Disk, path: str) -> dict[str, str] | None:
    """The identity of a directory that was formatted before. Raises DirectoryRefused, StorageError."""
    content = disk.read(f"{path}/{META_FILE}")
    if content is None:
        return None
    try:
        return parse_properties(content)
    except CheckpointCorrupt as error:
        raise DirectoryRefused(path, f"{error}; restore the file from a copy") from error
