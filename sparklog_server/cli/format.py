"""`sparklog format`: the directories of a new node."""

import os
import time

import click

from sparklog.errors import SettingsError
from sparklog.model import Millis
from sparklog_server.broker.opening import formatting
from sparklog_server.cli.printing import print_line
from sparklog_server.config.load import load
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.directory.identity import DirectoryRefused, encode_uuid, new_uuid
from sparklog_server.security.scram_arguments import parse_scram


@click.command(name="format")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Read settings from a Kafka properties file.",
)
@click.option(
    "--data-dir", metavar="DIR", help="Format this directory (log.dirs). [default: ./sparklog-data]"
)
@click.option("--node-id", metavar="N", type=int, help="Set the id of this node (node.id). [default: 1]")
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a setting by Kafka's name; overrides the file. Repeatable.",
)
@click.option(
    "-t",
    "--cluster-id",
    metavar="ID",
    help="Set the id of the cluster, the same on every node. [default with --standalone: a new one]",
)
@click.option("-s", "--standalone", is_flag=True, help="Begin a quorum of which this node is the only voter.")
@click.option(
    "-I",
    "--initial-controllers",
    metavar="ID@HOST:PORT:DIRECTORY-ID,...",
    help="Begin a quorum with these voters, the same list on every node.",
)
@click.option(
    "-N",
    "--no-initial-controllers",
    is_flag=True,
    help="Prepare a node that joins a quorum as a broker or an observer.",
)
@click.option(
    "-g",
    "--ignore-formatted",
    is_flag=True,
    help="Leave directories that are formatted for this cluster and node as they are.",
)
@click.option(
    "-S",
    "--add-scram",
    metavar="MECHANISM=[name=USER,password=...]",
    multiple=True,
    help="Begin the cluster with this user, e.g. 'SCRAM-SHA-512=[name=alice,password=...]'; the same on "
    "every controller. Repeatable.",
)
def format_directories(
    config: str | None,
    data_dir: str | None,
    node_id: int | None,
    assignments: tuple[str, ...],
    cluster_id: str | None,
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    ignore_formatted: bool,
    add_scram: tuple[str, ...],
) -> None:
    """Format the directories of a node, as `kafka-storage format` does.

    A cluster of one node needs no format: `sparklog start` formats its directory. Prints a line for each
    directory: path, cluster id, node id, directory id. A node that lost the disk of some directories is
    formatted with --ignore-formatted.
    """
    if standalone + (initial_controllers is not None) + no_initial_controllers > 1:
        raise click.UsageError(
            "--standalone, --initial-controllers and --no-initial-controllers exclude each other"
        )

    given = list(assignments)
    if data_dir is not None:
        given.append(f"log.dirs={data_dir}")
    if node_id is not None:
        given.append(f"node.id={node_id}")
    settings = load(config, given, is_insecure_allowed=True).settings
    is_static = bool(settings.quorum.voters_given)
    if "controller" in settings.process_roles and not (
        standalone or initial_controllers or no_initial_controllers or is_static
    ):
        raise click.UsageError(
            "a controller needs one of --standalone, --initial-controllers and --no-initial-controllers"
        )
    if cluster_id is None and not standalone:
        raise click.UsageError("--cluster-id is missing: every node of a cluster has the same")
    if cluster_id is not None and (not cluster_id or any(character.isspace() for character in cluster_id)):
        raise SettingsError(f"--cluster-id {cluster_id!r}: it must not be empty or contain spaces")
    if standalone:
        voters = formatting.standalone(settings, os.urandom)
    else:
        voters = formatting.initial_controllers(settings, initial_controllers) if initial_controllers else ()
    credentials = []
    if add_scram:
        credentials = [parse_scram(text, os.urandom) for text in add_scram]
    cluster_id = cluster_id or encode_uuid(new_uuid(os.urandom))
    try:
        ids = formatting.format_node(
            settings,
            OsDisk(),
            cluster_id=cluster_id,
            voters=voters,
            entropy=os.urandom,
            wall_ms=Millis(time.time_ns() // 1_000_000),
            credentials=credentials,
            ignores_formatted=ignore_formatted,
        )
    except DirectoryRefused as error:
        raise click.ClickException(str(error)) from error
    except StorageError as error:
        raise click.ClickException(error.with_remedy) from error
    for path, directory_id in ids.items():
        print_line(
            "formatted",
            path,
            f"cluster={cluster_id}",
            f"node={settings.node_id}",
            f"directory={encode_uuid(directory_id)}",
        )
