"""`sparklog certificates`: those that `sparklog init --secure` has made."""

from pathlib import Path

import click

from sparklog_server.cli.printing import as_json, print_json, print_line, print_table
from sparklog_server.daemon.authority import certificates_in
from sparklog_server.daemon.secure_cluster import (
    AUTHORITY_FILE,
    add_node,
    certificate_files,
    retire_authorities,
)
from sparklog_server.daemon.secure_cluster import renew as renew_all
from sparklog_server.daemon.secure_cluster import renew_authority as renew_in


@click.group()
def certificates() -> None:
    """Show, renew and add the certificates of a secure cluster."""


@certificates.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@as_json
def show(directory: str, is_json: bool) -> int:
    """Show the authority and the certificate of each node: subject, names, end, days left.

    Exits with 1 if a certificate has expired.
    """
    root = Path(directory)
    files = (root / AUTHORITY_FILE, *certificate_files(root))
    found = [one for path in files for one in certificates_in(path)]
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
    for path in renew_all(Path(directory)):
        print_line("renewed", path, f"ends={certificates_in(path)[0].ends:%Y-%m-%dT%H:%M:%SZ}")


@certificates.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.argument("node_id", metavar="NODE_ID", type=click.IntRange(0, 2**31 - 1))
@click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    help="Add this host name or address of the node to its certificate. Repeatable.",
)
def add(directory: str, node_id: int, hosts: tuple[str, ...]) -> None:
    """Write DIR/node-NODE_ID.pem: the private key and the certificate of a node that joins the cluster.

    Its principal, User:CN=node-NODE_ID, must be in super.users of every node.
    """
    path = add_node(Path(directory), node_id, hosts)
    print_line("added", path, f"ends={certificates_in(path)[0].ends:%Y-%m-%dT%H:%M:%SZ}")


@certificates.command(name="renew-authority")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
def renew_authority(directory: str) -> None:
    """Replace the authority in DIR by a new one; the old one stays trusted.

    Copy ca.pem to nodes and clients on other machines, wait until running nodes have read it
    (sparklog.ssl.reload.interval.ms), run `sparklog certificates renew`, and then `retire-authority`.
    """
    path = renew_in(Path(directory))
    print_line(
        "renewed",
        path,
        f"ends={certificates_in(path)[0].ends:%Y-%m-%dT%H:%M:%SZ}",
        f"trusted={len(certificates_in(path))}",
    )


@certificates.command(name="retire-authority")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
def retire_authority(directory: str) -> None:
    """Remove the authorities before the newest one from ca.pem in DIR.

    Refused while a certificate of a node in DIR is signed by one of them.
    """
    print_line("trusted", retire_authorities(Path(directory)))
