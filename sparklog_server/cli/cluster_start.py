"""`sparklog cluster start`: several nodes on this machine, in the foreground."""

import gc
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from sparklog_server.cli.option_values import pairs
from sparklog_server.cli.options import takes_base_port
from sparklog_server.config.load import Loaded
from sparklog_server.daemon.local_cluster import LocalCluster, Reserve, open_cluster
from sparklog_server.daemon.logs import TraceLog
from sparklog_server.daemon.node import REFUSALS, refusal_text, run_node
from sparklog_server.daemon.supervisor import NodeRefused, Ports, Supervisor
from sparklog_server.disk.os_disk import OsDisk


@click.command()
@click.option(
    "--config-dir",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Start the nodes of the files DIR/node-<id>.properties, which `sparklog init --secure` writes.",
)
@click.option("--nodes", metavar="N", type=int, default=3, show_default=True, help="Start this many nodes.")
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Store the data of node n in DIR/node-n. [default: a temporary directory, removed at the end]",
)
@takes_base_port("Serve clients on N ports from this one on, and controllers on the next N")
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a setting of every node by Kafka's name. Repeatable.",
)
@click.option(
    "--owner-pid", type=int, hidden=True, help="Stop when this parent process is gone or standard input ends."
)
@click.option("--owned-directory", hidden=True, help="Remove this directory at the end.")
@click.option("--init", "is_init", is_flag=True, hidden=True, help="Write the files of --config-dir if none.")
@click.pass_context
def start(
    context: click.Context,
    config_dir: str | None,
    nodes: int,
    data_dir: str | None,
    base_port: int,
    assignments: tuple[str, ...],
    owner_pid: int | None,
    owned_directory: str | None,
    is_init: bool,
) -> int:
    """Run a cluster of several nodes on this machine until SIGTERM, SIGHUP or Ctrl-C.

    Prints one line when every node is ready, the nodes in order of their ids:
    `ready cluster=<id> nodes=3 listen=<host:port>,... pids=<pid>,...`. A node that stops is restarted.
    """
    if not __debug__:
        raise click.UsageError(
            "sparklog does not run under python -O: it needs its assertions to protect the data"
        )
    if config_dir is not None and not is_init:
        _refuse_beside_files(context)
    gc.disable()

    def run(loaded: Loaded, log: TraceLog, parent_pid: int) -> int:
        try:
            remedy = cluster.remedies[loaded.settings.node_id]
            return run_node(loaded.settings, loaded.warnings, log, remedy=remedy, parent_pid=parent_pid)
        except REFUSALS as error:
            raise NodeRefused(refusal_text(error)) from error

    if data_dir is None and config_dir is None:
        owned_directory = data_dir = tempfile.mkdtemp(prefix="sparklog-cluster-")

    def opened(reserve: Reserve) -> LocalCluster:
        if config_dir is not None:
            # Certificates take 50 ms, and a plain cluster has none.
            from sparklog_server.daemon.secure_cluster import open_secure

            if is_init:
                _init(Path(config_dir), nodes, base_port, assignments, reserve)
            return open_secure(OsDisk(), Path(config_dir), assignments)
        assert data_dir is not None
        return open_cluster(
            OsDisk(), data_dir, count=nodes, base_port=base_port, assignments=assignments, reserve=reserve
        )

    try:
        ports = Ports()
        cluster = opened(ports.reserve)
        ports.hand_over()
        # The nodes share the objects of the imported modules as long as no collector writes to them.
        gc.freeze()
        is_json = all(node.settings.lines.format == "json" for node in cluster.nodes)
        log = TraceLog(sys.stderr, is_json=is_json)
        return Supervisor(
            cluster.nodes,
            run,
            log,
            cluster_id=cluster.cluster_id,
            parent_pid=owner_pid,
            directory=config_dir or data_dir,
            options=cluster.options,
        ).run()
    except REFUSALS as error:
        raise click.ClickException(refusal_text(error)) from error
    finally:
        if owned_directory is not None:
            shutil.rmtree(owned_directory, ignore_errors=True)


def _refuse_beside_files(context: click.Context) -> None:
    """The files of nodes have what these options would say."""
    for name in ("nodes", "data_dir", "base_port"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} and --config-dir exclude each other: the files of nodes have it"
            )


def _init(directory: Path, nodes: int, base_port: int, assignments: Sequence[str], reserve: Reserve) -> None:
    """Write the files of a secure cluster whose ports stay reserved, unless they are there."""
    if next(directory.glob("node-*.properties"), None) is not None:
        return
    from sparklog_server.daemon.secure_cluster import init_secure

    init_secure(
        OsDisk(),
        directory,
        count=nodes,
        hosts=(),
        base_port=base_port,
        reserve=reserve,
        given=pairs(assignments, "--set"),
    )
