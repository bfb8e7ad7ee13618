"""`sparklog cluster`: the brokers, the metadata quorum and the features."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from sparklog.client.admin.admin import Admin
from sparklog.errors import SparklogError
from sparklog_server.cli.admin import admin
from sparklog_server.cli.cluster_states import activate, cordon, decommission, drain
from sparklog_server.cli.cluster_status import status
from sparklog_server.cli.factors import grow
from sparklog_server.cli.main import OnDemand, Place
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, print_line, print_table
from sparklog_server.cli.watching import can_watch

if TYPE_CHECKING:
    from sparklog.client.admin.cluster import Cluster


class _Cluster(OnDemand):
    """`start` needs the broker, `restart` the supervisor's socket, the others the client."""

    places: Mapping[str, Place] = MappingProxyType(
        {
            "start": Place(
                "cluster_start",
                "start",
                "Run a cluster of several nodes on this machine until SIGTERM, SIGHUP or Ctrl-C.",
            ),
            "restart": Place(
                "cluster_restart",
                "restart",
                "Restart the nodes of `sparklog cluster start` one after the other.",
            ),
        }
    )


@click.group(cls=_Cluster)
def cluster() -> None:
    """Start a cluster on this machine; show its state; grow it, drain and decommission nodes."""


for command in (status, grow, cordon, drain, decommission, activate):
    cluster.add_command(command)


@cluster.command()
@click.option("--fenced", is_flag=True, help="Include brokers that are registered and not in service.")
@reaches_cluster
@as_json
@can_watch
def describe(fenced: bool, is_json: bool) -> None:
    """Show the brokers, the controller, and the cluster id."""
    with admin() as asked:
        described = asked.describe_cluster(include_fenced=fenced)
        controller = _active_controller(asked, described)
    if is_json:
        nodes = [
            {
                "node": n.node_id,
                "host": n.host,
                "port": n.port,
                "rack": n.rack,
                "is_controller": n.node_id == controller,
            }
            | {"is_fenced": n.is_fenced}
            for n in described.nodes
        ]
        print_json({"cluster_id": described.cluster_id, "controller": controller, "brokers": nodes})
        return
    print_line(
        "cluster", f"id={described.cluster_id}", f"controller={controller}", f"brokers={len(described.nodes)}"
    )
    rows = [
        [
            n.node_id,
            f"{n.host}:{n.port}",
            n.rack,
            "fenced" if n.is_fenced else "controller" if n.node_id == controller else "broker",
        ]
        for n in described.nodes
    ]
    print_table(["node", "address", "rack", "role"], rows)


def _active_controller(asked: Admin, described: "Cluster") -> int:
    """The leader of the quorum. DescribeCluster names any broker, since each forwards what a controller does;
    before KRaft, it names the controller.
    """
    try:
        return asked.describe_quorum().leader
    except SparklogError:
        return described.controller_id


@cluster.command()
@reaches_cluster
@as_json
@can_watch
def quorum(is_json: bool) -> None:
    """Show the leader, voters and observers of the metadata log, and the lag of each."""
    with admin() as asked:
        described = asked.describe_quorum()
    end = max(
        (replica.log_end_offset for replica in described.voters if replica.node_id == described.leader),
        default=described.high_watermark,
    )
    replicas = [("leader" if r.node_id == described.leader else "voter", r) for r in described.voters] + [
        ("observer", r) for r in described.observers
    ]
    if is_json:
        print_json(
            {
                "leader": described.leader,
                "leader_epoch": described.leader_epoch,
                "high_watermark": described.high_watermark,
            }
            | {
                "replicas": [
                    {
                        "node": r.node_id,
                        "role": role,
                        "log_end_offset": r.log_end_offset,
                        "lag": max(0, end - r.log_end_offset),
                    }
                    | {"last_fetch_ms": r.last_fetch_ms, "last_caught_up_ms": r.last_caught_up_ms}
                    for role, r in replicas
                ]
            }
        )
        return
    print_line(
        "quorum",
        f"leader={described.leader}",
        f"epoch={described.leader_epoch}",
        f"high-watermark={described.high_watermark}",
    )
    rows = [[r.node_id, role, r.log_end_offset, max(0, end - r.log_end_offset)] for role, r in replicas]
    print_table(["node", "role", "log end", "lag"], rows)


@cluster.command()
@reaches_cluster
@as_json
def features(is_json: bool) -> None:
    """Show the levels of each feature that a broker supports, and the level that the cluster uses."""
    with admin() as asked:
        described = asked.describe_features()
    if is_json:
        print_json(
            [
                {
                    "feature": f.name,
                    "min_level": f.min_level,
                    "max_level": f.max_level,
                    "finalized_level": f.finalized_level,
                }
                for f in described.values()
            ]
        )
        return
    print_table(
        ["feature", "from", "to", "in use"],
        [[f.name, f.min_level, f.max_level, f.finalized_level] for f in described.values()],
    )
