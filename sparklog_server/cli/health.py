"""`sparklog health`: what is wrong with a cluster, and what to do about it."""

import click

from sparklog.client.admin.admin import Admin
from sparklog.errors import SettingsError, SparklogError
from sparklog_server.cli.findings import Finding, print_findings
from sparklog_server.cli.health_checks import findings
from sparklog_server.cli.health_facts import Asking
from sparklog_server.cli.options import client_settings, reaches_cluster
from sparklog_server.cli.printing import as_json
from sparklog_server.operations.inert_text import inert_name


@click.command()
@click.option(
    "--watch",
    "watch_s",
    metavar="SECONDS",
    type=click.IntRange(0, 600),
    default=0,
    show_default=True,
    help="Sample the groups twice, this long apart, to find groups that are stuck or fall behind.",
)
@reaches_cluster
@as_json
def health(watch_s: int, is_json: bool) -> int:
    """Check the cluster: partitions, controllers, brokers, disks, settings, certificates, clocks and groups.

    Each line has a state, a subject, a finding and a remedy. Exits with 0 if every check passes, with 1 on a
    warning, with 2 on a critical finding or if the cluster does not answer. The state is UNKNOWN if the user
    is not authorized to see the subject.
    """
    try:
        settings = client_settings()
        with Admin.from_settings(settings, awaits_silent=False) as asked:
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
