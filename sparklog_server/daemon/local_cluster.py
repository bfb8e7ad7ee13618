"""The directory of a cluster whose nodes all run on this machine.

    DIR/cluster.properties     cluster.id, and the initial controllers with their ports and directory ids
    DIR/node-1, DIR/node-2 …   the data directory of each node

The voters' addresses are in the metadata log, so the ports of the controller listeners stay as they were at
the first start; those of clients may change. cluster.properties is written last: where it is missing, no
node has served.
"""

import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sparklog.errors import SettingsError
from sparklog.model import Millis
from sparklog_server.broker.opening.formatting import format_node, initial_controllers
from sparklog_server.config.http_settings import of_node
from sparklog_server.config.load import Loaded, load
from sparklog_server.config.quorum_settings import BOOTSTRAP_KEY
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_properties, render_properties
from sparklog_server.disk.door import Disk
from sparklog_server.log.directory.identity import DirectoryRefused, encode_uuid, new_uuid

CLUSTER_FILE: Final = "cluster.properties"
NODES_MAX: Final = 16
_HOST: Final = "127.0.0.1"
REPLICAS: Final = 3

Reserve = Callable[[int], int]
"""Reserves a port of this machine, or a free one for 0, and returns it."""


class LocalCluster(NamedTuple):
    """A cluster with formatted directories, and the settings of its nodes in order of their ids."""

    cluster_id: str
    nodes: tuple[Loaded, ...]
    remedies: Mapping[int, str]
    """By node id, what to do where a node lost its disk."""
    options: Mapping[int, tuple[str, ...]]
    """By node id, the options with which `sparklog start` runs the node."""


def remedy_of(cluster_id: str, *options: str) -> str:
    """The remedy for a node that lost its disk: `sparklog format` with these options."""
    command = shlex.join(["sparklog", "format", *options, "--cluster-id", cluster_id])
    return f"if its disk is lost, run `{command}`; the next start fetches what the other nodes have"


def check_base_port(base_port: int, count: int) -> None:
    """Raises SettingsError unless there are so many ports from this one on; 0 takes free ones."""
    if base_port and not 0 < base_port <= 65_536 - count:
        raise SettingsError(f"--base-port {base_port}: {count} ports from it on must be below 65536")


def open_cluster(
    disk: Disk,
    directory: str,
    *,
    count: int,
    base_port: int,
    assignments: Sequence[str],
    reserve: Reserve,
) -> LocalCluster:
    """Open the cluster in `directory`, or format one of `count` nodes. Clients reach node n at
    `base_port` + n - 1; the controllers listen on the ports behind. 0 takes free ports. The port of an HTTP
    listener in `assignments` goes up from node to node.

    Raises SettingsError, DirectoryRefused, StorageError, and what `reserve` raises.
    """
    if not 1 <= count <= NODES_MAX:
        raise SettingsError(f"--nodes {count}: a cluster on one machine has 1 to {NODES_MAX} nodes")
    check_base_port(base_port, 2 * count)
    disk.make_directory(directory)
    kept = _kept(disk, directory)
    ports = [reserve(base_port and base_port + index) for index in range(count)]
    if kept is None:
        at = [reserve(base_port and base_port + count + index) for index in range(count)]
        ids = [encode_uuid(new_uuid(os.urandom)) for _ in range(count)]
        controllers = ",".join(f"{index + 1}@{_HOST}:{at[index]}:{ids[index]}" for index in range(count))
        cluster_id = encode_uuid(new_uuid(os.urandom))
    else:
        cluster_id, controllers = kept["cluster.id"], kept["controllers"]
        at = [int(entry.split(":")[1]) for entry in controllers.split(",")]
        if len(at) != count:
            raise SettingsError(
                f"{directory} holds a cluster of {len(at)} nodes: start it with --nodes {len(at)}, or name "
                f"another --data-dir"
            )
        for port in at:
            reserve(port)
    given = [
        [
            *replication_defaults(count),
            *assignments,
            *of_node(assignments, index, reserve),
            *_assignments(directory, index + 1, ports[index], at),
        ]
        for index in range(count)
    ]
    nodes = tuple(load(None, one) for one in given)
    if kept is None:
        _format(disk, directory, cluster_id, controllers, nodes)
    # A voter with an empty directory has forgotten its votes: it returns as an observer, with a new directory
    # id, where the others are a majority. With one or two voters, none of them can be missing.
    quorum = ("--no-initial-controllers",) if count >= REPLICAS else ("--initial-controllers", controllers)
    remedies = {
        index + 1: remedy_of(
            cluster_id,
            *("--data-dir", str(Path(_data_directory(directory, index + 1)).absolute())),
            *("--node-id", str(index + 1)),
            *quorum,
        )
        for index in range(count)
    }
    options = {
        node: (*as_options(own), "--remedy", remedies[node]) for node, own in enumerate(given, start=1)
    }
    return LocalCluster(cluster_id, nodes, remedies, options)


def as_options(assignments: Iterable[str]) -> list[str]:
    """These settings as options."""
    return [word for one in assignments for word in ("--set", one)]


def _kept(disk: Disk, directory: str) -> Mapping[str, str] | None:
    """The properties of a cluster that was formatted; None where there is none."""
    content = disk.read(f"{directory}/{CLUSTER_FILE}")
    if content is None:
        return None
    try:
        found = parse_properties(content)
    except CheckpointCorrupt as error:
        raise DirectoryRefused(
            directory, f"{error}; restore the file from a copy", file=CLUSTER_FILE
        ) from error
    for key in ("cluster.id", "controllers"):
        if not found.get(key):
            raise DirectoryRefused(
                directory, f"{key} is missing; restore the file from a copy", file=CLUSTER_FILE
            )
    return found


def replication_defaults(count: int) -> list[str]:
    """The settings that the caller may change: with three nodes or more, every record is on three of them,
    and one may fail without an interruption.
    """
    if count < REPLICAS:
        return []
    return [
        f"default.replication.factor={REPLICAS}",
        "min.insync.replicas=2",
        f"offsets.topic.replication.factor={REPLICAS}",
        f"transaction.state.log.replication.factor={REPLICAS}",
        "transaction.state.log.min.isr=2",
    ]


def _assignments(directory: str, node_id: int, port: int, controller_ports: Sequence[int]) -> list[str]:
    """The settings of one node."""
    own = controller_ports[node_id - 1]
    others = ",".join(f"{_HOST}:{port}" for port in controller_ports)
    return [
        f"node.id={node_id}",
        "process.roles=broker,controller",
        f"log.dirs={_data_directory(directory, node_id)}",
        f"listeners=PLAINTEXT://{_HOST}:{port},CONTROLLER://{_HOST}:{own}",
        "controller.listener.names=CONTROLLER",
        f"{BOOTSTRAP_KEY}={others}",
    ]


def _data_directory(directory: str, node_id: int) -> str:
    return f"{directory}/node-{node_id}"


def _format(disk: Disk, directory: str, cluster_id: str, controllers: str, nodes: Sequence[Loaded]) -> None:
    for loaded in nodes:
        format_node(
            loaded.settings,
            disk,
            cluster_id=cluster_id,
            voters=initial_controllers(loaded.settings, controllers),
            entropy=os.urandom,
            wall_ms=Millis(time.time_ns() // 1_000_000),
        )
    kept = {"cluster.id": cluster_id, "controllers": controllers}
    disk.write(f"{directory}/{CLUSTER_FILE}", render_properties(kept))
