"""What the pages on the code name: files, by the convention of these pages, and the functions and classes in
them.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.source_tree import PROJECT


def path_of(file: str) -> Path:
    """A file is one of `sparklog_server`, unless it begins with `sparklog/`."""
    return PROJECT / file if file.startswith("sparklog/") else PROJECT / "sparklog_server" / file


@cache
def defined_in(path: Path) -> frozenset[str]:
    """The qualified names of the functions and classes of a file, `Partition.append` for a method; none if
    there is no such file.
    """
    return frozenset(_names(ast.parse(path.read_text()), "")) if path.exists() else frozenset()


def _names(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}"
            yield from _names(child, f"{prefix}{child.name}.")
        else:
            yield from _names(child, prefix)
