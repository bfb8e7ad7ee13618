"""`sparklog cluster restart --rolling`: the nodes of `sparklog cluster start`, one after the other."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import click
from msgspec import structs

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.cluster import Node
from sparklog.errors import SparklogError
from sparklog_server.cli.options import client_settings, reaches_cluster
from sparklog_server.cli.printing import listed, print_line, report
from sparklog_server.daemon.supervisor_socket import (
    SOCKET_FILE,
    NodeProcess,
    SupervisorRequest,
    ask_supervisor,
)
from sparklog_server.operations.rolling import (
    NO_FAULTS,
    RollingRestart,
    alone_on,
    facts_of,
    faults_of,
    names_of,
)

TIMEOUT_S: Final = 300
_TOLD_EVERY_S: Final = 2.0


class _Supervisor:
    """The supervisor in a directory of this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster_id = ask_supervisor(directory, SupervisorRequest()).cluster_id

    def processes(self) -> Mapping[int, NodeProcess]:
        """The processes of the nodes."""
        reply = ask_supervisor(self.directory, SupervisorRequest())
        return {one.node_id: one for one in reply.nodes}

    def restart(self, node: int) -> None:
        """Have a node restarted; raises SparklogError if that is refused."""
        refusal = ask_supervisor(self.directory, SupervisorRequest(restart=node)).refusal
        if refusal:
            raise SparklogError(f"the supervisor refuses the restart: {refusal}")


@click.command()
@click.option(
    "--rolling", is_flag=True, required=True, help="Restart the nodes one after the other. Required."
)
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The --data-dir or --config-dir of `sparklog cluster start`. [default: the directory above the log "
    "directories of the nodes]",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.IntRange(1),
    default=TIMEOUT_S,
    show_default=True,
    help="Stop if a node is not back and in sync after this time.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Restart a cluster that is not healthy; what it lacks is not waited for.",
)
@reaches_cluster
def restart(rolling: bool, directory: Path | None, timeout_s: int, force: bool) -> int:
    """Restart the nodes of `sparklog cluster start` one after the other.

    Each stops by its controlled shutdown, the active controller last. The next node stops once the one
    before is in service, every replica of the brokers in service is in sync, and the node has its
    leaderships again. Each node then runs the release that is installed. Exits with 1 if a node does not
    return within --timeout, and restarts no further node; also if the cluster is not healthy, and restarts
    none.
    """
    settings = client_settings()
    with Admin.from_settings(settings) as asked:
        brokers = asked.describe_cluster(include_fenced=True).nodes
        supervisor = _Supervisor(directory or _found(asked, brokers))
    # The broker that was named is restarted too.
    servers = dict.fromkeys((*settings.bootstrap_servers, *(f"{one.host}:{one.port}" for one in brokers)))
    with Admin.from_settings(structs.replace(settings, bootstrap_servers=tuple(servers))) as cluster:
        facts = facts_of(cluster)
        if facts.cluster.cluster_id != supervisor.cluster_id:
            raise SparklogError(
                f"the supervisor in {supervisor.directory} runs the cluster {supervisor.cluster_id}, and the "
                f"broker is of {facts.cluster.cluster_id}: name the directory with --dir"
            )
        nodes = supervisor.processes()
        faults = faults_of(facts)
        known = faults if force else NO_FAULTS
        reasons = faults.reasons()
        for reason in reasons:
            print_line(f"sparklog: {reason}", is_error=True)
        if reasons and not force:
            report("nothing was restarted: the cluster is not healthy; --force restarts it all the same")
            return 1
        others = [one.node_id for one in brokers if one.node_id not in nodes]
        if others:
            report(f"not of this supervisor, restart them by hand: {listed(others)}")
        if alone := alone_on(facts, nodes):
            report(f"offline while their node restarts, since they have one replica: {names_of(alone)}")
        reported, reported_s = "", time.monotonic()
        rolling_restart = RollingRestart(
            cluster,
            supervisor,
            known=known,
            timeout_s=timeout_s,
            clock=time.monotonic,
            sleep=time.sleep,
        )
        for step in rolling_restart.steps(nodes):
            if step.is_wait and (step.text == reported or time.monotonic() - reported_s < _TOLD_EVERY_S):
                continue
            reported, reported_s = step.text, time.monotonic()
            print_line(f"node {step.node} {'waits: ' if step.is_wait else ''}{step.text}")
    print_line(f"restarted {len(nodes)} nodes")
    return 0


def _found(asked: Admin, brokers: Iterable[Node]) -> Path:
    """The directory of the supervisor, by the log directories of the brokers. Raises SparklogError."""
    in_service = [one.node_id for one in brokers if not one.is_fenced]
    described = asked.describe_log_dirs(in_service, partitions=[])
    above = dict.fromkeys(Path(one.path).parent for found in described.values() for one in found)
    for directory in above:
        if directory.is_absolute() and (directory / SOCKET_FILE).is_socket():
            return directory
    raise SparklogError(
        f"no `sparklog cluster start` runs above the log directories of the brokers ({listed(above)}): name "
        "its --data-dir or --config-dir with --dir. Restart nodes that are started in another way by hand "
        "(docs/operations.md)"
    )
