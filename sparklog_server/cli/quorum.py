"""`sparklog quorum`: the voters of the metadata quorum, and their changes (KIP-853)."""

import click

from sparklog.client.admin.cluster import Quorum, QuorumReplica
from sparklog.errors import SparklogError
from sparklog.model import ZERO_UUID, NodeId, Uuid
from sparklog_server.cli.admin import admin
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, print_line, print_table
from sparklog_server.log.directory.identity import decode_uuid, encode_uuid


@click.group()
def quorum() -> None:
    """Show the voters of the metadata quorum, add and remove them."""


class _Directory(click.ParamType[Uuid]):
    """A directory id as Kafka writes it: 22 characters of base64."""

    name = "ID"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Uuid:
        """The 16 bytes."""
        try:
            return decode_uuid(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a directory id", param, ctx)


_OPTION = click.option(
    "--directory-id",
    type=_Directory(),
    help="The directory of its metadata log; by default the one that the quorum knows.",
)


@quorum.command()
@reaches_cluster
@as_json
def status(is_json: bool) -> None:
    """Show voters and observers with their directory ids and addresses, and the lag of each."""
    with admin() as asked:
        described = asked.describe_quorum()
    end = max((one.log_end_offset for one in described.voters), default=described.high_watermark)
    replicas = [("leader" if one.node_id == described.leader else "voter", one) for one in described.voters]
    replicas += [("observer", one) for one in described.observers]
    rows = [
        {
            "node": one.node_id,
            "role": role,
            "directory_id": encode_uuid(one.directory_id) if one.directory_id != ZERO_UUID else None,
            "address": _address(described, one.node_id) if role != "observer" else None,
            "log_end_offset": one.log_end_offset,
            "lag": max(0, end - one.log_end_offset),
        }
        for role, one in replicas
    ]
    if is_json:
        print_json({"leader": described.leader, "leader_epoch": described.leader_epoch, "replicas": rows})
        return
    print_line("quorum", f"leader={described.leader}", f"epoch={described.leader_epoch}")
    print_table(
        ["node", "role", "directory", "address", "log end", "lag"], [list(row.values()) for row in rows]
    )


@quorum.command("add-voter")
@click.argument("node", type=click.IntRange(min=0))
@click.argument("address", metavar="HOST:PORT")
@_OPTION
@reaches_cluster
def add_voter(node: int, address: str, directory_id: Uuid | None) -> None:
    """Make controller NODE a voter; it listens for controllers at HOST:PORT.

    It runs as an observer and has caught up with the metadata log. One change is made at a time.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise click.BadParameter("an address is written HOST:PORT", param_hint="HOST:PORT")
    with admin() as asked:
        described = asked.describe_quorum()
        found = directory_id or _directory(described.observers, node, "an observer")
        listener = next((one.listener for one in described.endpoints), "CONTROLLER")
        asked.add_raft_voter(NodeId(node), found, [(listener, host.strip("[]"), int(port))])
    print_line("added", f"voter={node}", f"directory={encode_uuid(found)}")


@quorum.command("remove-voter")
@click.argument("node", type=click.IntRange(min=0))
@_OPTION
@reaches_cluster
def remove_voter(node: int, directory_id: Uuid | None) -> None:
    """Remove voter NODE from the quorum.

    The node may be down, or run without the directory. The only voter is not removed. Stop a node with
    controller.quorum.auto.join.enable=true first, or it joins again.
    """
    with admin() as asked:
        described = asked.describe_quorum()
        found = directory_id or _directory(described.voters, node, "a voter")
        asked.remove_raft_voter(NodeId(node), found)
    print_line("removed", f"voter={node}", f"directory={encode_uuid(found)}")


def _directory(replicas: tuple[QuorumReplica, ...], node: int, what: str) -> Uuid:
    """The directory of a node: that of the latest fetch, since a lost one is told for minutes. Raises
    SparklogError if there is none.
    """
    found = [one for one in replicas if one.node_id == node]
    if not found:
        known = ", ".join(str(one.node_id) for one in replicas) or "none"
        raise SparklogError(f"node {node} is not {what} of the metadata quorum (there: {known})")
    return max(found, key=lambda one: one.last_fetch_ms).directory_id


def _address(described: Quorum, node: NodeId) -> str | None:
    return next((f"{one.host}:{one.port}" for one in described.endpoints if one.node_id == node), None)
