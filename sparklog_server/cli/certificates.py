"""`sparklog certificates`: those that `sparklog init --secure` has made."""

import click

from sparklog_server.cli.options import as_json, print_json, print_table


@click.group()
def certificates() -> None:
    """Show and renew the certificates of a secure cluster."""


@certificates.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@as_json
def show(directory: str, is_json: bool) -> int:
    """Show the authority and the certificate of each node: subject, names, end, days left.

    Exits with 1 if one has ended.
    """
    from pathlib import Path

    from sparklog_server.daemon.authority import told
    from sparklog_server.daemon.secure_cluster import AUTHORITY_FILE, certificate_files

    root = Path(directory)
    found = [told(path) for path in (root / AUTHORITY_FILE, *certificate_files(root))]
    rows = [
        [one.path.name, one.subject, ",".join(one.names), f"{one.ends:%Y-%m-%dT%H:%M:%SZ}", one.days_left]
        for one in found
    ]
    columns = ["file", "subject", "names", "ends", "days"]
    if is_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(
            columns, rows, emphasis={number: "red" for number, one in enumerate(found) if one.days_left < 0}
        )
    return 1 if any(one.days_left < 0 for one in found) else 0


@certificates.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
def renew(directory: str) -> None:
    """Replace the private key and the certificate of each node in DIR.

    Running nodes use the new files within sparklog.ssl.reload.interval.ms (10 s); connections stay open. The
    authority stays, and so do the settings of clients.
    """
    from pathlib import Path

    from sparklog_server.daemon.authority import told
    from sparklog_server.daemon.secure_cluster import renew as renew_all

    for path in renew_all(Path(directory)):
        click.echo(f"renewed\t{path}\tends={told(path).ends:%Y-%m-%dT%H:%M:%SZ}")
