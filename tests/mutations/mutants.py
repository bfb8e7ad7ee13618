"""Small changes of the core, each of which a test should notice: how they are drawn, found again and applied.

A mutant names a function by its qualified name, and in it an expression and the statement around it by their
text as `ast.unparse` writes it: it is found again after its file has moved, after other code has changed, and
after reformatting. Where it is in no place or in several, edit `module`, `function`, `statement` or `before`
in mutants.json.
"""

import ast
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

# Package and pattern, count, and the rooms of tests that reach it, the nearest first.
DRAWN = (
    (
        "sparklog_server.log",
        "*.py",
        12,
        "log log_tools cli replica broker daemon simulation hostile client compatibility",
    ),
    (
        "sparklog_server.replica",
        "*.py",
        8,
        "replica broker simulation daemon log client hostile compatibility",
    ),
    ("sparklog_server.raft", "*.py", 8, "raft simulation broker daemon cli compatibility"),
    (
        "sparklog_server.coordinator",
        "*.py",
        10,
        "coordinator broker client simulation daemon hostile cli compatibility",
    ),
    ("sparklog.client", "*.py", 10, "client broker daemon hostile live cli arrow compatibility"),
    (
        "sparklog.record",
        "*.py",
        6,
        "record serializers kernels wire log client arrow broker daemon cli compatibility",
    ),
    ("sparklog.kernels", "*.py", 3, "kernels wire record log client arrow broker compatibility"),
    ("sparklog.kernels", "*.pyx", 3, "kernels wire record log client arrow broker compatibility"),
)
_PAIRS = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
    *((ast.Add, ast.Sub), (ast.And, ast.Or)),
)
_SWAPPED: dict[type[ast.AST], Any] = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
_CYTHON_PAIRS = (("<", "<="), (">", ">="), ("==", "!="), ("and", "or"), ("+", "-"), ("+=", "-="))
_CYTHON_SWAPPED = {one: other for pair in _CYTHON_PAIRS for one, other in (pair, pair[::-1])}
_CYTHON_OPERATOR = re.compile(r"(?<= )(<=|>=|==|!=|\+=|-=|<|>|\+|-|and|or)(?= )")
_CYTHON_FUNCTION = re.compile(r"( *)(?:def|c?pdef|cdef(?! class)|cdef class|class)\b[^=]*?(\w+)(?:\(.*|:)$")
# No test reads the texts of errors and log lines word for word, nor should it.
_SKIPPED = (ast.Assert, ast.Raise, ast.JoinedStr, ast.arguments, ast.Import, ast.ImportFrom)
_LOGGED = {"debug", "info", "warning", "error", "exception", "critical"}


class Mutant(msgspec.Struct, omit_defaults=True):
    """A change of one expression (`before` to `after`) and, by label, what the runs of the tests made of it.

    `occurrence` counts the equal expressions in equal statements of the function, from 0.
    """

    number: int
    module: str
    function: str
    kind: str
    statement: str
    before: str
    after: str
    occurrence: int
    rooms: str
    runs: dict[str, dict[str, str | float]] = {}
    judgement: str = ""


class Site(NamedTuple):
    """A change that a file allows, of its bytes `[start, limit)`."""

    function: str
    kind: str
    statement: str
    before: str
    after: str
    start: int
    limit: int


def sites(path: Path) -> list[Site]:
    """Every change that a file allows, in the order of the source."""
    source = path.read_bytes()
    if path.suffix == ".pyx":
        return list(_cython_sites(source))
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return list(_sites(ast.parse(source), starts, (), is_inside=False))


def _sites(
    node: ast.AST, starts: list[int], scope: tuple[str, ...], statement: str = "", *, is_inside: bool
) -> Iterator[Site]:
    """The changes of and below `node`: in functions only, not in defaults, annotations and decorators."""
    if isinstance(node, _SKIPPED) or _is_log_line(node):
        return
    below = ast.iter_child_nodes(node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        if node.name in ("__repr__", "__str__"):
            return
        below, scope, is_inside = iter(node.body), (*scope, node.name), not isinstance(node, ast.ClassDef)
    elif isinstance(node, ast.AnnAssign):
        below = iter([node.target, node.value] if node.value else [])
    if isinstance(node, ast.stmt):
        statement = ast.unparse(node).partition("\n")[0]
    for kind, changed, after in _changes(node) if is_inside else ():
        place = (
            starts[changed.lineno - 1] + changed.col_offset,
            starts[changed.end_lineno - 1] + changed.end_col_offset,
        )
        yield Site(".".join(scope), kind, statement, ast.unparse(changed), after, *place)
    for child in below:
        yield from _sites(child, starts, scope, statement, is_inside=is_inside)


def _is_log_line(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOGGED


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Kind, changed node and its new text, of each change of `node` itself."""
    match node:
        case ast.Compare():
            for at, operator in enumerate(node.ops):
                ops = [*node.ops[:at], _SWAPPED[type(operator)](), *node.ops[at + 1 :]]
                yield "comparison", node, f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})"
        case ast.BoolOp():
            yield "connective", node, f"({ast.unparse(ast.BoolOp(_SWAPPED[type(node.op)](), node.values))})"
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not any(_is_text(part) for part in ast.walk(node)):
            yield (
                "operator",
                node,
                f"({ast.unparse(ast.BinOp(node.left, _SWAPPED[type(node.op)](), node.right))})",
            )
        case ast.AugAssign(op=ast.Add() | ast.Sub()):
            yield (
                "operator",
                node,
                ast.unparse(ast.AugAssign(node.target, _SWAPPED[type(node.op)](), node.value)),
            )
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield "constant", node, str(value + 1)
        case ast.UnaryOp(op=ast.Not()):
            yield "negation", node, f"({ast.unparse(node.operand)})"
        case ast.Return(value=ast.Constant(value=bool(value))):
            yield "answer", node, f"return {not value}"
        case ast.If() | ast.IfExp():
            yield "condition", node.test, "True"
            yield "condition", node.test, "False"


def _cython_sites(source: bytes) -> Iterator[Site]:
    """The same for Cython, which `ast` does not read: one operator between blanks, outside of docstrings."""
    scope: list[tuple[int, str]] = []
    at, is_text = 0, False
    for line in source.splitlines(keepends=True):
        text = line.decode().strip()
        is_code = not is_text and not text.startswith(("raise", "cdef extern", "#")) and '"""' not in text
        is_text ^= text.count('"""') == 1
        if is_code and (found := _CYTHON_FUNCTION.match(line.decode().rstrip())):
            scope = [*(outer for outer in scope if outer[0] < len(found[1])), (len(found[1]), found[2])]
        elif is_code and scope:
            start = at + line.index(text.encode())
            for operator in _CYTHON_OPERATOR.finditer(text.partition("  #")[0]):
                after = text[: operator.start()] + _CYTHON_SWAPPED[operator[0]] + text[operator.end() :]
                function = ".".join(name for _, name in scope)
                yield Site(function, "cython", "", text, after, start, start + len(text.encode()))
        at += len(line)


def draw(tree: Path, seed: int) -> list[Mutant]:
    """The mutants of a seed: at most one of a file, and of each kind at most a third of a package's."""
    drawn: list[Mutant] = []
    choices: dict[str, random.Random] = {}
    for package, pattern, count, rooms in DRAWN:
        choice = choices.setdefault(package, random.Random(f"{seed} {package}"))
        paths = sorted((tree / package.replace(".", "/")).rglob(pattern))
        found = [(path, site) for path in paths for site in sites(path)]
        choice.shuffle(found)
        used: dict[Path, Site] = {}
        kinds: Counter[str] = Counter()
        for path, site in found:
            if (
                len(used) < count
                and path not in used
                and (kinds[site.kind] < -(-count // 3) or site.kind == "cython")
            ):
                used[path] = site
                kinds[site.kind] += 1
        for path, site in used.items():
            module = ".".join(path.relative_to(tree).with_suffix("").parts)
            equal = _equal(path, site.function, site.statement, site.before)
            occurrence = [one.start for one in equal].index(site.start)
            drawn.append(Mutant(len(drawn) + 1, module, *site[:5], occurrence, rooms))
    return drawn


def find(mutant: Mutant, tree: Path) -> tuple[Path, Site]:
    """The file and place of a mutant: in its module, else in the one other that has such a function, be it of
    a class of another name. LookupError if there is none, or several.
    """
    base = tree / mutant.module.replace(".", "/")
    named = [path for path in (base.with_suffix(".py"), base.with_suffix(".pyx")) if path.exists()]
    paths = [path for top in ("sparklog", "sparklog_server") for path in sorted((tree / top).rglob("*.py*"))]
    last = mutant.function.rpartition(".")[2]
    others = [path for path in paths if path.suffix in (".py", ".pyx") and f"{last}(" in path.read_text()]
    for candidates, function in ((named, mutant.function), (others, mutant.function), (others, last)):
        found = [(path, _equal(path, function, mutant.statement, mutant.before)) for path in candidates]
        found = [(path, equal) for path, equal in found if len(equal) > mutant.occurrence]
        if len(found) == 1:
            path, equal = found[0]
            return path, equal[mutant.occurrence]
    raise LookupError(
        f"mutant {mutant.number}: {mutant.before!r} of {mutant.module}:{mutant.function} is not found"
    )


def _equal(path: Path, function: str, statement: str, before: str) -> list[Site]:
    """Sites of equal text, one at each place, in functions whose qualified name ends so."""
    given = [site for site in sites(path) if (site.statement, site.before) == (statement, before)]
    named = [site for site in given if f".{site.function}".endswith(f".{function}")]
    return list({site.start: site for site in named}.values())


def apply(mutant: Mutant, tree: Path) -> Path:
    """Change the tree; returns the changed file."""
    path, site = find(mutant, tree)
    source = path.read_bytes()
    path.write_bytes(source[: site.start] + mutant.after.encode() + source[site.limit :])
    return path
