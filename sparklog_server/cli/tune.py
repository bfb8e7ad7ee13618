"""`sparklog tune`: the settings of this machine that a broker depends on."""

from pathlib import Path

import click

from sparklog_server.cli.printing import as_json, print_json, print_table
from sparklog_server.cli.tune_checks import Machine, checked

EXIT_WARN = 1


@click.command()
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="Check the file system and the disk of this directory. [default: ./sparklog-data, or .]",
)
@as_json
def tune(directory: str | None, is_json: bool) -> int:
    """Compare settings of this machine with what a broker needs: value, advice and reason.

    Reads only; nothing is changed. Limits of processes are those of this shell. Exits with 1 if a setting
    should be changed. A setting that this machine does not have is shown as absent.
    """
    if directory is None:
        directory = "sparklog-data" if Path("sparklog-data").is_dir() else "."
    rows = checked(Machine.this(), directory)
    if is_json:
        print_json([one._asdict() for one in rows])
    else:
        print_table(
            ["state", "setting", "value", "advice", "why"],
            rows,
            emphasis={number: "yellow" for number, one in enumerate(rows) if one.state == "WARN"},
        )
    return EXIT_WARN if any(one.state == "WARN" for one in rows) else 0
