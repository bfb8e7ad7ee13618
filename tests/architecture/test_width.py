"""How wide a class or a function may be: a bound on public methods and on parameters.

What is wider is divided, or its docstring says why it is one, in a sentence that begins `One class, because`,
`One class, as` (for a model in Kafka) or `One function, because`. The parameters of a command are its
options: they are not counted.
"""

import ast
import re
from collections.abc import Iterator

from tests.architecture.source_tree import modules

PUBLIC_METHODS_MAX = 25
PARAMETERS_MAX = 8
OVERRULED_BY = re.compile(r"\bOne (?:class|function), (?:because|as)\s")

# What was wider when the bound came, by name, with its width. A width here may only shrink, and an entry goes
# when its class or function is within the bound or says why it is one thing.
WIDER = {
    "Broker.open": 10,
    "Quorum.open": 9,
    "RaftNode.open": 16,
    "ReplicaManager.__init__": 18,
    "ReplicaProducer.__init__": 9,
    "Transactor.__init__": 10,
    "_open_quorum": 9,
    "write_batches": 16,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def definitions(
    tree: ast.AST, prefix: str = "", reason: str = ""
) -> Iterator[tuple[str, ast.ClassDef | Function, str]]:
    """Each class and function by its name within the module, with the docstrings that may overrule a bound:
    its own, and for a constructor that of the class.
    """
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.ClassDef | Function):
            yield from definitions(node, prefix, reason)
            continue
        own = ast.get_docstring(node) or ""
        yield prefix + node.name, node, own + (reason if node.name in ("__init__", "__new__") else "")
        inner = f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix
        yield from definitions(node, inner, own if isinstance(node, ast.ClassDef) else "")


def public_methods(node: ast.ClassDef) -> int:
    """Public methods and properties, each name once."""
    return len({one.name for one in node.body if isinstance(one, Function) and not one.name.startswith("_")})


def parameters(node: Function) -> int:
    """Parameters that a caller gives; none for a command of click."""
    if any("command(" in ast.unparse(one) for one in node.decorator_list):
        return 0
    arguments = node.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return sum(name not in ("self", "cls") for name in names)


def wide(tree: ast.AST) -> dict[str, int]:
    """The classes and functions beyond a bound that do not say why, with their widths."""
    found: dict[str, int] = {}
    for name, node, reason in definitions(tree):
        is_class = isinstance(node, ast.ClassDef)
        width = public_methods(node) if isinstance(node, ast.ClassDef) else parameters(node)
        if width > (PUBLIC_METHODS_MAX if is_class else PARAMETERS_MAX) and not OVERRULED_BY.search(reason):
            found[name] = max(width, found.get(name, 0))
    return found


def test_no_class_or_function_grows_wider_than_its_bound() -> None:
    offences = [
        f"{module.name}: {name} is {width} wide: divide it, or say `One class, because …` in the docstring"
        for module in modules().values()
        for name, width in wide(module.tree).items()
        if width > WIDER.get(name, 0)
    ]
    assert offences == []


def test_the_list_of_wider_ones_only_shrinks() -> None:
    now: dict[str, int] = {}
    for module in modules().values():
        for name, width in wide(module.tree).items():
            now[name] = max(width, now.get(name, 0))
    stale = [
        f"{name}: {now.get(name, 'within the bound')}, listed with {width}: correct the list"
        for name, width in WIDER.items()
        if now.get(name) != width
    ]
    assert stale == []


def test_a_reason_overrules_the_bound() -> None:
    wide_function = "def f(a, b, c, d, e, f, g, h, i):\n    '''Join.{}'''"
    assert wide(ast.parse(wide_function.format(""))) == {"f": 9}
    assert (
        wide(ast.parse(wide_function.format(" One function, because each is a field of the header."))) == {}
    )
    assert wide(ast.parse("@group.command(name='x')\ndef f(a, b, c, d, e, f, g, h, i): pass")) == {}
