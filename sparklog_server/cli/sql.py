"""`sparklog sql`: a query over topics by DuckDB, which reads only what the query needs of them."""

import csv
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import click

from sparklog.client.settings import ClientSettings
from sparklog.escapes import cell, terminal
from sparklog_server.cli.admin import admin
from sparklog_server.cli.options import client_settings, reaches_cluster
from sparklog_server.cli.printing import as_json, print_table
from sparklog_server.operations.json_records import json_content, json_text
from sparklog_server.operations.similar_names import absent

if TYPE_CHECKING:
    import duckdb

    from sparklog.arrow.dataset import TopicDataset
    from sparklog.arrow.plan import Request
    from sparklog.arrow.topic_read import TopicRead

ROWS_AT_ONCE: Final = 1000
ROWS_MAX: Final = 1000
"""A terminal shows that many rows in a table."""
_CLEAR: Final = "\x1b[H\x1b[2J"

Output = Literal["table", "json", "csv"]
Rows = Iterator[Sequence[Any]]


@click.command()
@click.argument("query")
@click.option(
    "--start",
    metavar="POSITION",
    default="earliest",
    show_default=True,
    help="Start at this position of each topic.",
)
@click.option(
    "--end",
    metavar="POSITION",
    default="latest",
    show_default=True,
    help="End at this position of each topic.",
)
@click.option(
    "--value-format",
    type=click.Choice(["auto", "binary", "string", "json", "avro", "protobuf"]),
    default="auto",
    show_default=True,
    help="Decode values. auto: JSON if the topic has any, else binary.",
)
@click.option("--value-schema", metavar="SCHEMA", help="Decode by this DDL, Avro schema or schema file.")
@click.option("--value-message", metavar="NAME", help="Decode this Protobuf message.")
@click.option(
    "--mode",
    type=click.Choice(["failfast", "permissive"]),
    default="failfast",
    show_default=True,
    help="Fail at a value that cannot be decoded, or make it null, with its bytes in the column _corrupt.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_committed",
    show_default=True,
    help="Set whether to read records of open and aborted transactions.",
)
@click.option("--csv", "is_csv", is_flag=True, help="Print CSV, with a heading.")
@click.option("--follow", is_flag=True, help="Repeat the query until Ctrl-C, and print each new result.")
@click.option(
    "--interval-ms",
    metavar="MS",
    type=click.IntRange(10),
    default=1000,
    show_default=True,
    help="Wait between two runs of --follow.",
)
@reaches_cluster
@as_json
def sql(
    query: str,
    start: str,
    end: str,
    value_format: str,
    value_schema: str | None,
    value_message: str | None,
    mode: str,
    isolation: str,
    is_csv: bool,
    follow: bool,
    interval_ms: int,
    is_json: bool,
) -> None:
    """Run a QUERY in DuckDB's SQL over topics.

    A topic is a table of key, value, topic, partition, offset, timestamp, timestampType, headers, and of the
    fields of its values. Conditions on partition, offset and the earliest timestamp limit what is read.

    \b
    sparklog sql "SELECT carrier, avg(delay) FROM flights
                  WHERE timestamp > now() - INTERVAL 1 HOUR GROUP BY 1"
    """
    if is_csv and is_json:
        raise click.UsageError("--csv and --json exclude each other: leave one out")
    if follow and end != "latest":
        raise click.UsageError("--follow reads to the latest record: leave --end out")
    library = _duckdb()
    with _without_pandas():
        import sparklog.arrow.dataset  # noqa: F401

    from sparklog.arrow.plan import Request

    request = Request(
        topics=(),
        start=start,
        end=end,
        value_format=cast(Any, value_format),
        value_schema=value_schema,
        value_message=value_message,
        mode=cast(Any, mode),
    )
    output: Output = "json" if is_json else "csv" if is_csv else "table"
    topics = _Topics(client_settings(isolation_level=isolation), request)
    try:
        _follow(topics, query, output, interval_ms) if follow else _run(topics, query, output)
    except library.Error as error:
        raise click.ClickException(str(error)) from None


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        raise click.ClickException(
            f"the command needs DuckDB: pip install 'sparklog[sql]' ({error})"
        ) from None
    return duckdb


class _NotInstalled:
    """A finder of modules by which a module cannot be imported."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError for that module; leaves others to the next finder."""
        if name == self._name:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Keeps pyarrow from importing pandas, where that is installed, to test whether values are of its types.

    The import takes a quarter of the command's CPU time. A later call that needs pandas still imports it.
    """
    finder = _NotInstalled("pandas")
    sys.meta_path.insert(0, cast(Any, finder))
    try:
        yield
    finally:
        sys.meta_path.remove(cast(Any, finder))


def _run(topics: "_Topics", query: str, output: Output) -> None:
    with topics.connection(query) as connection:
        names, rows = _result(connection, query)
        _print(names, rows, output)


def _follow(topics: "_Topics", query: str, output: Output, interval_ms: int) -> None:
    shown: object = None
    while True:
        with topics.connection(query) as connection:
            names, rows = _result(connection, query)
            found = list(rows)
        if found != shown:
            if output == "table" and sys.stdout.isatty():
                sys.stdout.write(_CLEAR)
            _print(names, iter(found), output)
            sys.stdout.flush()
            shown = found
        time.sleep(interval_ms / 1000)


class _Topics:
    """The topics of a query as tables of DuckDB. A schema that was inferred stays that of the first run."""

    def __init__(self, settings: ClientSettings, request: "Request") -> None:
        self._settings = settings
        self._request = request
        self._known: dict[str, Request] = {}

    @contextmanager
    def connection(self, query: str) -> "Iterator[duckdb.DuckDBPyConnection]":
        """A database with the topics that the query names, up to their ends now."""
        library = _duckdb()
        tables: list[TopicDataset] = []
        with library.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            names = connection.get_table_names(query)
            existing = self._existing(names)
            try:
                for topic in sorted(names.intersection(existing)):
                    read = self._read(topic)
                    tables.append(read.select(read.available).dataset())
                    connection.register(topic, tables[-1])
                yield connection
            except library.CatalogException as error:
                for name in sorted(names.difference(existing)):
                    if f"Table with name {name} does not exist" in str(error):
                        raise click.ClickException(absent("topic", name, existing)) from None
                raise
            except library.Error:
                # DuckDB tells the error of a read as text, with its traceback.
                for table in tables:
                    if table.error is not None:
                        raise table.error from None
                raise

    def _existing(self, names: set[str]) -> list[str]:
        """The topics of the cluster; none if the query names no table."""
        if not names:
            return []
        with admin() as cluster:
            return list(cluster.list_topics())

    def _read(self, topic: str) -> "TopicRead":
        from sparklog.arrow.plan import SchemaUnknown
        from sparklog.arrow.topic_read import TopicRead

        request = self._known.get(topic, replace(self._request, topics=(topic,)))
        if request.value_format == cast(Any, "auto"):
            try:
                read = TopicRead.from_settings(self._settings, replace(request, value_format="json"))
            except SchemaUnknown:
                return TopicRead.from_settings(self._settings, replace(request, value_format="binary"))
            request = replace(request, value_format="json")
        else:
            read = TopicRead.from_settings(self._settings, request)
        if request.value_format == "json":
            self._known[topic] = replace(request, value_schema=read.value_schema)
        return read


def _result(connection: "duckdb.DuckDBPyConnection", query: str) -> tuple[list[str], Rows]:
    """The names of the columns, each once, and the rows."""
    result = connection.execute(query)
    names: list[str] = []
    for name, *_ in result.description or ():
        same = names.count(name)
        names.append(f"{name}_{same}" if same else name)

    def rows() -> Rows:
        while found := result.fetchmany(ROWS_AT_ONCE):
            yield from found

    return names, rows()


def _print(names: Sequence[str], rows: Rows, output: Output) -> None:
    if output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        shown = terminal if sys.stdout.isatty() else str  # csv quotes a newline, and keeps every character
        writer.writerow([shown(name) for name in names])
        writer.writerows([shown(_text(value)) for value in row] for row in rows)
    elif output == "json":
        for row in rows:
            fields = {name: _plain(value) for name, value in zip(names, row, strict=True)}
            sys.stdout.write(json_text(fields))
    elif sys.stdout.isatty():
        found = [[None if value is None else _text(value) for value in row] for row in islice(rows, ROWS_MAX)]
        print_table(names, found)
        if next(rows, None) is not None:
            click.echo(f"more than {ROWS_MAX} rows: see all with --csv or --json", err=True)
    else:
        for row in rows:
            sys.stdout.write("\t".join(cell(_text(value)) for value in row) + "\n")


def _text(value: object) -> str:
    """A value as one word of text."""
    if value is None:
        return ""
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: object) -> object:
    """A value as JSON has it; bytes that are not UTF-8 are `{"base64": "…"}`, as in `consume --json`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray | memoryview):
        return json_content(bytes(value))
    if isinstance(value, dict):
        return {str(name): _plain(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(content) for content in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
