"""Same seed, same commit, same trace: what core code may not do, because its answer changes between two
runs.
"""

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.source_tree import Module, modules, nodes_of
from tests.architecture.test_layers import MAY_TOUCH_THE_WORLD, lies_in
from tests.architecture.unordered import Annotated, annotated_sets, leaks

# The simulation touches a random generator and a clock of its own, but its trace must not vary: it is held to
# the rules of the core.
OUTSIDE = MAY_TOUCH_THE_WORLD - {"sparklog_server.simulation"}


CHANGING_METHODS = {
    *(
        "add",
        "append",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "setdefault",
        "update",
    ),
    *("close", "flush", "put", "send", "sendall", "sync", "truncate", "write"),
}


def core() -> list[Module]:
    return [
        module
        for module in modules().values()
        if not lies_in(module.name, OUTSIDE) and not module.name.startswith("pyspark_sparklog")
    ]


@cache
def annotated() -> Annotated:
    return annotated_sets(module.tree for module in modules().values())


def builtin_calls(module: Module, forbidden: set[str]) -> Iterator[ast.Call]:
    for node in nodes_of(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in forbidden:
            yield node


def test_core_code_goes_through_no_set_unsorted() -> None:
    assert [
        f"{module.at(line)}: {source}"
        for module in core()
        for line, source in leaks(module.tree, annotated())
    ] == []


def test_core_code_asks_no_hash_and_no_identity() -> None:
    assert [
        module.at(call.lineno) for module in core() for call in builtin_calls(module, {"hash", "id"})
    ] == []


def test_core_code_opens_no_file_and_prints_nothing() -> None:
    assert [
        module.at(call.lineno)
        for module in core()
        for call in builtin_calls(module, {"open", "print", "input"})
    ] == []


def test_nothing_is_executed_from_text() -> None:
    assert [
        module.at(call.lineno)
        for module in modules().values()
        for call in builtin_calls(module, {"exec", "eval"})
    ] == []


def test_an_assert_changes_nothing() -> None:
    offences = [
        module.at(node.lineno)
        for module in modules().values()
        for node in nodes_of(module)
        if isinstance(node, ast.Assert) and any(changes_something(part) for part in ast.walk(node.test))
    ]
    assert offences == []


def changes_something(node: ast.AST) -> bool:
    match node:
        case (
            ast.NamedExpr() | ast.Await() | ast.Yield() | ast.YieldFrom() | ast.Call(func=ast.Name(id="next"))
        ):
            return True
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in CHANGING_METHODS
    return False


LEAKING = {
    "a for loop over an annotated argument": "def f(a: set[int]):\n    for x in a: g(x)",
    "a comprehension over a display": "y = [x for x in {1, 2}]",
    "a list of a set": "def f(a: frozenset[int]): return list(a)",
    "a name assigned from a set": "def f(a):\n    b = set(a)\n    return tuple(b)",
    "an operation on keys": "def f(a, b):\n    for x in a.keys() - b.keys(): g(x)",
    "an attribute annotated "
    "elsewhere": "class C:\n    members: set[int]\ndef f(c): return [m for m in c.members]",
    "a function that returns a set": "def f() -> set[int]: ...\ndef g(): return [x for x in f()]",
    "pop of a set": "def f(a: set[int]): return a.pop()",
    "the first among equals": "def f(a: set[int]): return max(a, key=abs)",
    "a dict in a set's order": "def f(a: set[int]): return {x: 1 for x in a}",
    "spread into a list": "def f(a: set[int]): return [*a]",
}
HARMLESS = {
    "sorted first": "def f(a: set[int]):\n    for x in sorted(a): g(x)",
    "membership": "def f(a: set[int]): return 1 in a",
    "any of a generator": "def f(a: set[int]): return any(x > 1 for x in a)",
    "a set of a set": "def f(a: set[int]): return {x + 1 for x in a}",
    "sorted generator": "def f(a: set[int]): return sorted(x + 1 for x in a)",
    "keys in order of insertion": "def f(a):\n    for x in a.keys(): g(x)",
    "an attribute with two "
    "meanings": "class C:\n    m: set[int]\nclass D:\n    m: list[int]\ndef f(c): return [x for x in c.m]",
    "a list in another function's "
    "name": "def f():\n    a = {1}\ndef g():\n    a = [1]\n    return [x for x in a]",
}


@pytest.mark.parametrize("source", LEAKING.values(), ids=LEAKING.keys())
def test_a_leaking_order_is_found(source: str) -> None:
    tree = ast.parse(source)
    assert len(list(leaks(tree, annotated_sets([tree])))) == 1


@pytest.mark.parametrize("source", HARMLESS.values(), ids=HARMLESS.keys())
def test_a_harmless_use_is_left_alone(source: str) -> None:
    tree = ast.parse(source)
    assert list(leaks(tree, annotated_sets([tree]))) == []
