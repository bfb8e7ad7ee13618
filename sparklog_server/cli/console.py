"""`sparklog console`: the console in front of a cluster, as a process of its own."""

import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from sparklog_server.cli.options import client_map, reaches_cluster

PORT: Final = 9080
MISSING: Final = "the console needs its own packages: pip install 'sparklog[console]'"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen on this address."
)
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Listen on this port; 0 selects a free port.",
)
@click.option("--read-only", is_flag=True, help="Disable every change of the cluster.")
@click.option(
    "--login",
    is_flag=True,
    help="Require a login as a user of the cluster, and act with that user's rights. The "
    "default if security.protocol is SASL_SSL or SASL_PLAINTEXT and the settings have no user.",
)
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Serve HTTPS with this PEM chain.",
)
@click.option(
    "--key",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Read the private key of --certificate from this PEM file.",
)
@click.option(
    "--allowed-host",
    "names",
    metavar="NAME",
    multiple=True,
    help="Answer to this name in an address, beside those of loopback; for a reverse proxy. Repeatable.",
)
@click.option(
    "--schema",
    "schemas",
    metavar="TOPIC=FILE",
    multiple=True,
    help="Show the values of TOPIC by an Avro schema, or by FILE:MESSAGE of a Protobuf descriptor set. "
    "Repeatable.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow an address that other machines can reach without TLS and a login.",
)
@click.option("--owner-pid", type=int, hidden=True, help="Stop when standard input ends.")
@reaches_cluster
def console(
    host: str,
    port: int,
    read_only: bool,
    login: bool,
    certificate: str | None,
    key: str | None,
    names: tuple[str, ...],
    schemas: tuple[str, ...],
    insecure: bool,
    owner_pid: int | None,
) -> int:
    """Serve the console: pages for topics, records, groups and settings of any cluster that speaks Kafka's
    protocol.

    Prints one line when it accepts connections: `ready console=<url> pid=<pid>`.
    """
    require_packages()
    from sparklog_server.console.app import LOOPBACK_HOSTS, application
    from sparklog_server.console.ask import Console
    from sparklog_server.console.clusters import Target
    from sparklog_server.console.server import serve
    from sparklog_server.operations.schemas import schemas as read_schemas

    if (certificate is None) != (key is None):
        raise click.UsageError("--certificate and --key go together")
    target = Target(client_map())
    needs_login = login or not target.has_credentials
    if login and not target.is_sasl:
        raise click.UsageError(
            "--login needs security.protocol=SASL_SSL or SASL_PLAINTEXT, by --command-config or -X"
        )
    is_loopback = host in _LOOPBACK
    if not is_loopback and not insecure and (certificate is None or not needs_login):
        raise click.UsageError(
            f"{host} can be reached by others: give --certificate, --key and --login, or --insecure if "
            f"the network itself is trusted"
        )
    decoders = read_schemas(schemas)
    bound = _bound(host, port)
    port = bound.getsockname()[1]
    served = Console(
        target,
        needs_login=needs_login,
        is_read_only=read_only,
        is_tls=certificate is not None,
        port=port,
        schemas=decoders,
    )
    hosts = (*LOOPBACK_HOSTS, *names) if is_loopback or names else ("*",)
    shown = f"[{host}]" if ":" in host else host
    return serve(
        application(served, hosts),
        served,
        bound,
        url=f"{'https' if certificate else 'http'}://{shown}:{port}/",
        certificate=certificate,
        key=key,
        owner_pid=owner_pid,
    )


def require_packages() -> None:
    """Refuse with the command that installs what is missing."""
    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "jinja2", "jmespath")):
        raise click.ClickException(MISSING)


def start_beside(servers: str, port: int) -> subprocess.Popen[bytes]:
    """Start a console for the broker of this process, as a child that ends when the result is freed, or with
    this process.
    """
    require_packages()
    run = "import sys; from sparklog_server.cli.main import main; sys.exit(main())"
    # Its line goes to stderr: the one line of `start` on stdout stays its own.
    return subprocess.Popen(
        [
            *(sys.executable, "-P", "-c", run, "console", "--bootstrap-server", servers, "--port", str(port)),
            *("--owner-pid", str(os.getpid())),
        ],
        stdin=subprocess.PIPE,
        stdout=sys.stderr,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
        start_new_session=True,
    )


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise click.ClickException(
            f"cannot listen on {host} port {port}: {(error.strerror or str(error)).lower()}"
        ) from None
    return bound
