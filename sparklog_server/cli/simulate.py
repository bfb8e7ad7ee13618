"""`sparklog simulate`: a history of transactions from a seed, in virtual time, and its anomalies."""

import sys

import click


@click.command()
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    required=True,
    help="Select the history; the same seed gives the same history.",
)
@click.option("--quiet", is_flag=True, help="Print only anomalies.")
def simulate(seed: int, quiet: bool) -> None:
    """Run a simulated broker under power cuts, kills and pauses, and check the history of its transactions.

    Prints one line per event with its virtual time in seconds, then each anomaly. The exit code is
    1 if there are any.
    """
    from sparklog_server.simulation.checkers import check
    from sparklog_server.simulation.transaction_history import run

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
