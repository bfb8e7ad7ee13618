"""What a command prints about a cluster passes `sparklog.escapes`: names and errors are chosen by others."""

import ast
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[2]
CLI = PROJECT / "sparklog_server" / "cli"
PRINTS_OF_THE_CLUSTER = {"print_line", "print_table", "print_json", "report", "say"}
"""They escape; `printing.py` has them."""
HAS_ITS_OWN_REASON = {
    "printing.py": "it has the functions that escape",
    "main.py": "it escapes errors, and lets click show its own help",
    "consume.py": "it writes the bytes of records, escaped on a terminal",
    "sql.py": "it writes CSV, which quotes, and escapes on a terminal",
    "watching.py": "it is the terminal that others write to",
    "inspect.py": "it escapes each cell",
    "findings.py": "it escapes, and then adds colours",
    "status.py": "it escapes, and then adds colours",
    "tutorial.py": "it prints its own words",
    "completion.py": "it prints a script of click",
    "init.py": "it prints the command for a directory that was given",
    "simulate.py": "it has no peer: all is generated here",
    "bench.py": "it prints figures and its own words",
    "selftest.py": "it prints figures and its own words",
}


def writes(tree: ast.AST) -> Iterator[int]:
    """The lines of calls that print something that is not written in the source."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        is_write = called in ("print", "click.echo", "click.secho") or called.endswith("stdout.write")
        if is_write and not all(isinstance(one, ast.Constant) for one in node.args):
            yield node.lineno


def test_commands_print_texts_of_the_cluster_by_functions_that_escape() -> None:
    found = {
        f"{path.name}:{line}"
        for path in sorted(CLI.glob("*.py"))
        if path.name not in HAS_ITS_OWN_REASON
        for line in writes(ast.parse(path.read_text()))
    }
    assert found == set()
    assert all((CLI / name).exists() for name in HAS_ITS_OWN_REASON)
