"""Who may know whom: the rows of the house, read from the import graph.

A row may import rows above it and itself, never a sibling in the same row nor a row below. `sparklog`
never imports `sparklog_server`.
"""

import subprocess
import sys
from collections.abc import Iterator, Set
from functools import cache

import pytest

from tests.architecture.source_tree import Import, Module, imports_of, modules

# The protocol package, upper rows first. `effects` names the pieces of a frame, which the codec gives out: so
# it stands above `wire`.
SPARKLOG_ROWS = (
    ({"model", "kernels", "errors", "durations", "escapes"},),
    ({"tls"},),
    ({"effects"},),
    ({"wire"},),
    ({"record"}, {"column_types"}),
    ({"client"},),
    ({"arrow"}, {"serializers"}),
    ({"spark"}, {"local_broker"}),
    ({"testing"},),
)

# The broker, as rows of siblings: a set is one side of the `│`, whose members may know each other.
SERVER_ROWS = (
    ({"outcome", "config", "histogram", "loggers", "metrics", "metrics_text"},),
    ({"disk"}, {"metadata"}),
    ({"log"}, {"agenda", "continuations"}),
    ({"raft"}, {"replica"}, {"log_tools"}),
    ({"controller"}, {"coordinator"}, {"security"}),
    ({"broker"},),
    ({"daemon"}, {"simulation"}, {"operations"}, {"demo"}),
    ({"cli"}, {"console"}),
)
ROW_OF_RAFT = 3

# The rooms of the log: each may know itself and those before it.
LOG_ROWS = (
    ({"log_config"},),
    ({"segment"},),
    ({"producers"},),
    ({"lookup"},),
    ({"cleaning"},),
    ({"recovery"},),
    ({"partition_log", "segments", "truncation"},),
    ({"directory"},),
)

# The command `sparklog console` starts the console; no other module of the command line knows it.
STARTS = {"sparklog_server.cli.console": "sparklog_server.console"}

# The command line, the console, their common room and the demo use the client like any other
# (docs/decisions/0001): they may take the blocking shells and the public names.
USERS_OF_THE_PUBLIC_FACE = {
    *("sparklog_server.cli", "sparklog_server.console", "sparklog_server.operations", "sparklog_server.demo"),
    "sparklog.testing",
}

# The rooms of the client. The files beside them (`settings`, `cluster`, `failures` …) belong to all of them.
CLIENT_ROWS = (
    ({"sasl"},),
    ({"transport"},),
    ({"membership"},),
    ({"producer"}, {"consumer"}),
    ({"admin"},),
    ({"exactly_once"},),
)

# The rooms of the broker. The files beside them are the turn, which calls into all rooms and serves them.
BROKER_ROWS = (
    ({"cluster"},),
    ({"access"}, {"metrics"}),
    ({"coordinators"},),
    ({"opening"}, {"handlers"}),
)

# I/O, clock, thread and entropy: only for the outsides and for the shells named below.
OUTSIDE_MODULES = {
    *(
        "asyncio",
        "socket",
        "ssl",
        "select",
        "threading",
        "time",
        "random",
        "secrets",
        "uuid",
        "subprocess",
        "mmap",
        "concurrent",
    ),
    *("datetime", "tempfile", "os"),
    *("selectors", "multiprocessing", "signal", "shutil", "glob", "_thread", "queue", "uvloop", "psutil"),
}
MAY_TOUCH_THE_WORLD = {
    *("sparklog_server.daemon", "sparklog_server.simulation", "sparklog_server.cli"),
    *("sparklog_server.console", "sparklog_server.demo"),
    *("sparklog.local_broker", "sparklog.testing"),
    *("sparklog.client.transport.stream", "sparklog.client.transport.tls_stream"),
    *(
        "sparklog.client.http_replies",
        "sparklog.client.sasl.token_endpoint",
        "sparklog.client.sasl.assertions",
    ),
    *("sparklog.client.clock", "sparklog.client.producer.promises"),
    *("sparklog.tls.contexts", "sparklog.tls.stores"),
    # datetime alone
    *("sparklog.client.admin.positions", "sparklog.arrow.planning", "sparklog.arrow.topic_read"),
    *("sparklog.arrow.plan", "sparklog.arrow.workers", "sparklog.serializers.registry"),
    *(
        "sparklog.spark.source",
        "sparklog.spark.batch_reader",
        "sparklog.spark.stream_reader",
        "sparklog.spark.readers",
    ),
    "sparklog.spark.task_clients",
    *("sparklog.spark.writers", "sparklog.spark.connections", "sparklog.arrow.formats.files"),
    *(
        "sparklog_server.disk.descriptors",
        "sparklog_server.disk.os_disk",
        "sparklog_server.disk.syscalls",
        "sparklog_server.config.load",
        "sparklog.kernels",
    ),
}

SPARK_SIDE_LIBRARIES = {"pyspark", "pyarrow", "pandas", "numpy"}


def room_of(name: str) -> str:
    """`log` for `sparklog_server.log.segment.segment`; empty for a package's own `__init__`."""
    return name.split(".")[1] if "." in name else ""


def row_of(name: str, rows: tuple[tuple[set[str], ...], ...]) -> tuple[int, set[str]] | None:
    for number, row in enumerate(rows):
        for side in row:
            if room_of(name) in side:
                return number, side
    return None


@cache
def client_shells() -> frozenset[str]:
    """The client's files that block: `transport`, and each file that imports it, directly or through another.

    Rows 4-8 of the broker use the client's other files, the machines, and never these.
    """
    found = {"sparklog.client.transport.network"}
    clients = [module for name, module in modules().items() if lies_in(name, {"sparklog.client"})]
    while reaching := {
        module.name
        for module in clients
        for imported in imports_of(module)
        if imported.module in found and module.name not in found and not imported.for_types_only
    }:
        found |= reaching
    return frozenset(found)


def lies_in(name: str, rooms: Set[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def our_imports() -> Iterator[tuple[Module, Import]]:
    for module in modules().values():
        for imported in imports_of(module):
            if imported.module.split(".")[0] in ("sparklog", "sparklog_server", "pyspark_sparklog"):
                yield module, imported


def test_every_room_has_a_row() -> None:
    unknown = [
        name
        for name in modules()
        if room_of(name)
        and row_of(name, SPARKLOG_ROWS if name.startswith("sparklog.") else SERVER_ROWS) is None
        and not name.startswith("pyspark_sparklog")
        and not name.endswith("__main__")
    ]
    assert unknown == []


def test_sparklog_never_imports_the_server() -> None:
    offences = [
        f"{module.at(imported.line)} imports {imported.module}"
        for module, imported in our_imports()
        if module.name.split(".")[0] != "sparklog_server"
        and imported.module.split(".")[0] == "sparklog_server"
    ]
    assert offences == []


@pytest.mark.parametrize(("package", "rows"), [("sparklog", SPARKLOG_ROWS), ("sparklog_server", SERVER_ROWS)])
def test_a_row_knows_rows_above_it_and_never_a_sibling(
    package: str, rows: tuple[tuple[set[str], ...], ...]
) -> None:
    offences = []
    for module, imported in our_imports():
        inside = module.name.split(".")[0] == package and imported.module.split(".")[0] == package
        mine, theirs = row_of(module.name, rows), row_of(imported.module, rows)
        if not inside or mine is None or theirs is None:
            continue
        if module.name in STARTS and lies_in(imported.module, {STARTS[module.name]}):
            continue
        if theirs[0] > mine[0] or (theirs[0] == mine[0] and theirs[1] is not mine[1]):
            offences.append(f"{module.at(imported.line)} imports {imported.module}")
    assert offences == []


@pytest.mark.parametrize(
    ("package", "rows"), [("sparklog.client", CLIENT_ROWS), ("sparklog_server.broker", BROKER_ROWS)]
)
def test_a_room_inside_a_package_knows_rooms_above_it_and_never_a_sibling(
    package: str, rows: tuple[tuple[set[str], ...], ...]
) -> None:
    numbers = {room: number for number, row in enumerate(rows) for side in row for room in side}
    offences = []
    for module, imported in our_imports():
        if imported.for_types_only or not lies_in(module.name, {package}) or imported.module == package:
            continue
        mine, theirs = (
            name.removeprefix(package + ".").split(".") for name in (module.name, imported.module)
        )
        if not lies_in(imported.module, {package}) or len(mine) < 2 or len(theirs) < 2:
            continue
        if mine[0] != theirs[0] and numbers[theirs[0]] >= numbers[mine[0]]:
            offences.append(f"{module.at(imported.line)} imports {imported.module}")
    assert offences == []


def test_rooms_of_the_log_know_rooms_above_them() -> None:
    prefix = "sparklog_server."
    offences = []
    for module, imported in our_imports():
        mine, theirs = module.name.removeprefix(prefix), imported.module.removeprefix(prefix)
        if lies_in(mine, {"log"}) and lies_in(theirs, {"log"}) and room_of(mine) and room_of(theirs):
            upper, lower = row_of(theirs, LOG_ROWS), row_of(mine, LOG_ROWS)
            if upper is None or lower is None or upper[0] > lower[0]:
                offences.append(f"{module.at(imported.line)} imports {imported.module}")
    assert offences == []


def test_shards_see_ports_not_raft_or_replica() -> None:
    shards = {"sparklog_server.controller", "sparklog_server.coordinator", "sparklog_server.security"}
    offences = [
        f"{module.at(imported.line)} imports {imported.module}"
        for module, imported in our_imports()
        if lies_in(module.name, shards)
        and lies_in(imported.module, {"sparklog_server.raft", "sparklog_server.replica"})
    ]
    assert offences == []


def test_the_server_takes_from_the_client_only_its_machines_and_only_from_raft_downwards() -> None:
    offences = []
    for module, imported in our_imports():
        row = row_of(module.name, SERVER_ROWS)
        if not module.name.startswith("sparklog_server.") or row is None:
            continue
        is_client = lies_in(imported.module, {"sparklog.client"})
        is_too_high = is_client and row[0] < ROW_OF_RAFT
        is_shell = lies_in(imported.module, client_shells()) and not lies_in(
            module.name, USERS_OF_THE_PUBLIC_FACE
        )
        is_spark = lies_in(imported.module, {"sparklog.spark", "sparklog.local_broker", "sparklog.testing"})
        if is_too_high or is_shell or is_spark:
            offences.append(f"{module.at(imported.line)} imports {imported.module}")
    assert offences == []


def test_only_users_take_the_public_face() -> None:
    offences = [
        f"{module.at(imported.line)} imports the package {imported.module} instead of the module it needs"
        for module, imported in our_imports()
        if imported.module in ("sparklog", "sparklog_server")
        and not lies_in(module.name, USERS_OF_THE_PUBLIC_FACE)
        and not module.name.startswith("pyspark_sparklog")
    ]
    assert offences == []


def test_only_the_outsides_touch_the_world() -> None:
    offences = [
        f"{module.at(imported.line)} imports {imported.module}"
        for module in modules().values()
        if not lies_in(module.name, MAY_TOUCH_THE_WORLD | client_shells())
        for imported in imports_of(module)
        if imported.module.split(".")[0] in OUTSIDE_MODULES and not imported.for_types_only
    ]
    assert offences == []


def test_logging_is_used_where_lines_are_written_and_where_a_command_reads_them() -> None:
    offences = [
        module.at(imported.line)
        for module in modules().values()
        for imported in imports_of(module)
        if imported.module.split(".")[0] == "logging"
        and module.name
        not in (
            *("sparklog_server.daemon.logs", "sparklog.client.logs"),
            *("sparklog_server.cli.reach", "sparklog_server.demo.play"),
        )
    ]
    assert offences == []


def test_only_the_spark_side_knows_spark_and_arrow() -> None:
    offences = [
        f"{module.at(imported.line)} imports {imported.module}"
        for module in modules().values()
        if not lies_in(
            module.name,
            {
                *("sparklog.spark", "pyspark_sparklog", "sparklog.arrow"),
                "sparklog_server.demo.spark_job",
                *("sparklog.column_types", "sparklog.record.arrow", "sparklog.client.tables"),
            },
        )
        for imported in imports_of(module)
        if imported.module.split(".")[0] in SPARK_SIDE_LIBRARIES and not imported.for_types_only
    ]
    assert offences == []


def test_importing_sparklog_loads_neither_spark_nor_arrow_nor_the_server() -> None:
    forbidden = sorted({*SPARK_SIDE_LIBRARIES, "sparklog_server", "asyncio"})
    code = f"import sparklog, sys; print(sorted(set({forbidden}) & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"


def test_no_two_modules_need_each_other() -> None:
    graph = {
        name: sorted({imported.module for imported in imports_of(module) if imported.module in modules()})
        for name, module in modules().items()
        if name != "sparklog"  # the public face names everything and loads it lazily
    }
    assert [" → ".join(cycle) for cycle in cycles(graph)] == []


def cycles(graph: dict[str, list[str]]) -> list[list[str]]:
    """One cycle for every edge that closes one, depth first in the order of names."""
    found: list[list[str]] = []
    finished: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> None:
        if name in path:
            found.append([*path[path.index(name) :], name])
            return
        if name in finished:
            return
        path.append(name)
        for imported in graph.get(name, []):
            visit(imported)
        path.pop()
        finished.add(name)

    for name in sorted(graph):
        visit(name)
    return found


def test_handlers_take_the_port_of_their_family_and_not_the_whole_context() -> None:
    """`envelope` runs the handler of the request inside, which may be of any family."""
    rooms = tuple(
        f"sparklog_server.broker.{one}." for one in ("handlers", "cluster", "coordinators", "opening")
    )
    users = {
        name
        for name, module in modules().items()
        if name.startswith(rooms)
        and any(imported.module == "sparklog_server.broker.context" for imported in imports_of(module))
    }
    assert users == {"sparklog_server.broker.handlers.envelope"}


def test_a_cycle_is_found_where_there_is_one() -> None:
    assert cycles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}) == [["a", "b", "c", "a"]]


def test_client_shells_are_the_files_that_reach_the_transport() -> None:
    """The broker takes machines such as `transport.connection`; `consumer.standing_fetch` blocks."""
    names = {name.removeprefix("sparklog.client.") for name in client_shells()}
    assert names >= {
        *("transport.network", "producer.producer", "consumer.consumer", "consumer.standing_fetch"),
        *("admin.admin", "admin.transactions"),
    }
    assert not names & {
        *("transport.connection", "cluster", "consumer.fetch", "membership.group"),
        *("producer.transaction", "producer.outbound"),
    }
