"""`sparklog init --secure`: the files of a new cluster with TLS, passwords and access rules."""

from pathlib import Path
from shlex import quote

import click

from sparklog_server.cli.option_values import pairs
from sparklog_server.cli.options import takes_base_port
from sparklog_server.daemon.secure_cluster import init_secure
from sparklog_server.daemon.supervisor import Ports
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.directory.identity import DirectoryRefused


@click.command()
@click.option(
    "--secure",
    "directory",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False),
    help="Write certificates, settings of nodes and clients, and formatted data directories into this new or "
    "empty directory.",
)
@click.option("--nodes", metavar="N", type=int, default=1, show_default=True, help="Prepare this many nodes.")
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="Serve at this host name or IP address. Repeatable: given once for each node, the nodes serve at "
    "these hosts in order; otherwise all serve at the first, and their certificates have all names. "
    "[default: 127.0.0.1]",
)
@takes_base_port("Use this port and the next: for clients, for controllers, among brokers")
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Add a setting of every node by Kafka's name. Repeatable.",
)
def init(
    directory: str, nodes: int, hosts: tuple[str, ...], base_port: int, assignments: tuple[str, ...]
) -> None:
    """Prepare a secure cluster, and print the commands that come next.

    Clients connect by TLS as the user admin with a random password (SCRAM-SHA-512); nodes connect by TLS
    with certificates of a new authority. DIR/client.properties, client.conf and client.toml
    are for Java and Spark, for librdkafka, and for Python.
    """
    given = pairs(assignments, "--set")
    ports = Ports()
    try:
        made = init_secure(
            OsDisk(),
            Path(directory),
            count=nodes,
            hosts=[name.strip() for host in hosts for name in host.split(",")],
            base_port=base_port,
            # A port in use now may be free at the start, on another machine above all.
            reserve=lambda port: port or ports.reserve(0),
            given=given,
        )
    except DirectoryRefused as error:
        raise click.ClickException(str(error)) from error
    except StorageError as error:
        raise click.ClickException(error.with_remedy) from error
    finally:
        ports.close()
    root = Path(directory).absolute()
    click.echo(_start(str(root), count=nodes, machines=len({node.host for node in made})))
    for command in ("topics create", "produce"):
        click.echo(f"sparklog {command} orders --command-config {quote(str(root / 'client.properties'))}")


def _start(directory: str, *, count: int, machines: int) -> str:
    """The command that starts the nodes of this machine."""
    if count == 1:
        return f"sparklog start --config {quote(f'{directory}/node-1.properties')}"
    if machines == 1:
        return f"sparklog cluster start --config-dir {quote(directory)}"
    return f"sparklog start --config {quote(f'{directory}/node-')}ID.properties"
