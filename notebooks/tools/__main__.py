"""python -m notebooks.tools [NAME …] [--ipynb DIRECTORY] [--set WIDGET=VALUE …]: runs notebooks, all of
them if none is named.
"""

import sys
import tempfile
import time
from pathlib import Path

import click

from examples.local_spark import has_delta, local_spark
from notebooks.tools import runner


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(runner.names()))
@click.option(
    "--ipynb",
    type=click.Path(path_type=Path),
    help="Write each for Jupyter, with what it showed, into this directory.",
)
@click.option(
    "--set",
    "widgets",
    multiple=True,
    metavar="WIDGET=VALUE",
    help="The value of a widget, in place of its default.",
)
def main(names: tuple[str, ...], ipynb: Path | None, widgets: tuple[str, ...]) -> None:
    """Runs notebooks one after the other in one Spark; ends with 1 at the first cell that fails."""
    values = dict(widget.split("=", 1) for widget in widgets)
    with (
        tempfile.TemporaryDirectory() as directory,
        local_spark(Path(directory), delta=has_delta(), connector=True) as spark,
    ):
        for name in names or runner.names():
            began = time.monotonic()
            try:
                executed = runner.run(runner.path_of(name), spark, values)
            except runner.CellFailed as error:
                click.echo(error, err=True)
                sys.exit(1)
            if ipynb is not None:
                from notebooks.tools import ipynb as for_jupyter

                ipynb.mkdir(parents=True, exist_ok=True)
                for_jupyter.write(executed, ipynb / f"{name}.ipynb")
            click.echo(f"{name}: {len(executed)} cells, {time.monotonic() - began:.0f} s")


main()
