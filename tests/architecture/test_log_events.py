"""Every line of the log is declared with its logger and level, and every declared one is written."""

import ast
from collections.abc import Iterator

from sparklog_server.loggers import EVENTS
from tests.architecture.source_tree import modules, nodes_of

TRACERS = {"trace", "_trace"}
OF_CALLERS = {"audit", "file-missing", "file-rebuilt", "file-removed", "file-unknown", "log-cut", "log-hole"}
"""Passed on in a variable, by `AuditLog`, `FoundFiles` and `Cuts`."""


def written() -> Iterator[str]:
    for module in modules().values():
        if not module.name.startswith("sparklog_server.") or ".simulation" in module.name:
            continue
        for node in nodes_of(module):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in TRACERS:
                yield from (
                    one.value
                    for one in ast.walk(node.args[0])
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                )


def test_every_line_has_a_logger_and_a_level() -> None:
    assert set(written()) - EVENTS.keys() == set()


def test_every_declared_line_is_written_somewhere() -> None:
    of_the_log = {"halt", "lines-dropped"}
    assert EVENTS.keys() - set(written()) - OF_CALLERS - of_the_log == set()
