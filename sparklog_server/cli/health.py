"""`sparklog health`: what is wrong with a cluster, and what to do about it."""

import click

from sparklog_server.cli.options import as_json, client_settings, reaches_cluster


@click.command()
@click.option(
    "--watch",
    "watch_s",
    metavar="SECONDS",
    type=click.IntRange(0, 600),
    default=0,
    show_default=True,
    help="Look at the groups twice, with this pause, for those that are stuck or fall behind.",
)
@reaches_cluster
@as_json
def health(watch_s: int, is_json: bool) -> int:
    """Check the cluster: partitions, controllers, brokers, disks, settings, certificates, clocks and groups.

    Each line has a state, what it is about, what was found and what to do. Exits with 0 if all is well, with
    1 for a warning, with 2 for something critical or a cluster that does not answer. UNKNOWN is what this
    user may not see.
    """
    from sparklog.client.admin import Admin
    from sparklog.errors import SettingsError, SparklogError
    from sparklog_server.cli.findings import Finding, print_findings
    from sparklog_server.cli.health_checks import findings
    from sparklog_server.cli.health_facts import Asking
    from sparklog_server.console.shown import inert_name

    try:
        settings = client_settings()
        with Admin.from_settings(settings) as asked:
            found = findings(Asking(asked, settings).facts(watch_s))
    except (click.UsageError, SettingsError):
        raise  # a mistake of the command line, not of the cluster
    except (click.ClickException, SparklogError, OSError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        what, _, remedy = text.partition("; ")
        found = [
            Finding("CRITICAL", "cluster", f"it does not answer: {inert_name(what)}", inert_name(remedy))
        ]
    return print_findings(found, is_json=is_json)
