"""`sparklog simulate`: a history of transactions from a seed, or a cluster under the faults of a seed, in
virtual time, and the rules that it breaks.
"""

import sys
from collections import deque

import click

from sparklog_server.simulation import cluster_world
from sparklog_server.simulation.checkers import check
from sparklog_server.simulation.scenario import written
from sparklog_server.simulation.shrink import shrink_violation
from sparklog_server.simulation.transaction_history import run

_TRACED_MAX = 40


@click.command()
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    required=True,
    help="Select the history; the same seed gives the same history.",
)
@click.option(
    "--nodes",
    type=click.IntRange(3, 7),
    help="Simulate a cluster of this many nodes instead of one broker.",
)
@click.option("--quiet", is_flag=True, help="Print only anomalies or violations, and the verdict.")
def simulate(seed: int, nodes: int | None, quiet: bool) -> None:
    """Run a simulated broker under power cuts, kills and pauses, and check the history of its transactions.

    Prints one line per event with its virtual time in seconds, then each anomaly. The exit code is
    1 if there are any.

    With --nodes, runs a cluster and its clients under the faults that the seed draws. Prints the settings and
    faults, then the counts of what happened. If a rule is broken, prints the violation, the smallest set
    of faults that causes it, and the last events before it. The exit code is then 1.
    """
    if nodes is not None:
        sys.exit(_simulate_cluster(seed, nodes, quiet=quiet))

    history = run(seed)
    if not quiet:
        for line in history.told():
            click.echo(line)
    anomalies = check(history)
    for anomaly in anomalies:
        click.echo(f"{anomaly.kind}: {anomaly.said}")
    click.echo(
        f"seed {seed}: {len(history.transactions)} transactions, {len(history.polls)} polls, "
        f"{len(anomalies)} anomalies"
    )
    if anomalies:
        sys.exit(1)


def _simulate_cluster(seed: int, nodes: int, *, quiet: bool) -> int:
    """Run one seed of a cluster; returns the exit code."""
    scenario = cluster_world.drawn(seed, nodes)
    if not quiet:
        replicas, min_in_sync, flush, _ = cluster_world.replication_of(scenario)
        options = f"replication.factor={replicas} min.insync.replicas={min_in_sync}"
        options += f" sparklog.ack.flush={flush}"
        click.echo(written(scenario, options), nl=False)
    outcome = cluster_world.run(scenario)
    violation = outcome.failure
    if violation is not None:
        click.echo(f"violation: {violation}")
        small = shrink_violation(scenario, violation, lambda one: cluster_world.run(one).failure)
        traced = deque[str](maxlen=_TRACED_MAX)
        found = cluster_world.run(small, trace=traced.append).failure
        click.echo(f"smallest scenario, which ends with {found}:")
        click.echo(written(small), nl=False)
        click.echo("last events:")
        for line in traced:
            click.echo(line)
    reached = "".join(f", {count} {state}" for state, count in outcome.reached.items())
    verdict = "no violation" if violation is None else violation.rule
    click.echo(f"seed {seed}: {outcome.events} events{reached}: {verdict}")
    return 0 if violation is None else 1
