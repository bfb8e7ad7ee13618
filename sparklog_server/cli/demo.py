"""`sparklog demo`: a year of flights through a broker to Python and Spark, while both ends are killed."""

from pathlib import Path

import click
from rich.console import Console

from sparklog_server.demo.play import play


@click.command()
@click.option(
    "--output",
    metavar="DIR",
    default="sparklog-demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the broker's data, the table and the page to this directory, in place of earlier ones.",
)
@click.option("--no-spark", "is_without_spark", is_flag=True, help="Run without Spark.")
def demo(output: Path, is_without_spark: bool) -> int:
    """Show a broker, a Python reader and Spark with a year of flights, which survive kill -9.

    Takes about a minute. Without pyspark (`pip install 'sparklog[demo]'`) or Java it runs without Spark.
    Counts every flight at the end; a missing or doubled one is a failure.
    """
    play(output, Console(), with_spark=not is_without_spark)
    return 0
