"""The project's modules and what each imports, read from the source by `ast`: nothing is executed."""

import ast
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("sparklog", "sparklog_server", "pyspark_sparklog")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, absolute, whether only a type checker sees it, and the outermost function that
    imports it, empty at the top of the file.
    """

    module: str
    line: int
    for_types_only: bool
    function: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A source file under its dotted name; a package is the module of its `__init__.py`."""

    name: str
    path: Path
    tree: ast.Module = field(repr=False)

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(PROJECT)}:{line}"


@cache
def modules() -> dict[str, Module]:
    """Every module of the shipped packages, by name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((PROJECT / package).rglob("*.py")):
            parts = path.relative_to(PROJECT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path, ast.parse(path.read_text(), filename=str(path)))
    return found


@cache
def nodes_of(module: Module) -> tuple[ast.AST, ...]:
    """Every node of a module, as `ast.walk` finds them."""
    return tuple(ast.walk(module.tree))


@cache
def imports_of(module: Module) -> tuple[Import, ...]:
    """What `module` imports, at its top, inside functions and for types; `from a import b` names `a.b`
    where that is a module of ours.
    """
    found: list[Import] = []
    _collect(module, module.tree, for_types_only=False, found=found)
    return tuple(found)


def _collect(
    module: Module, node: ast.AST, *, for_types_only: bool, found: list[Import], function: str = ""
) -> None:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names, lineno=line):
                found += [Import(alias.name, line, for_types_only, function) for alias in names]
            case ast.ImportFrom(names=names, lineno=line):
                base = _absolute(module, child)
                for alias in names:
                    inner = f"{base}.{alias.name}"
                    imported = inner if inner in modules() else base
                    found.append(Import(imported, line, for_types_only, function))
            case ast.If(test=test, body=body, orelse=otherwise) if ast.unparse(test) in (
                "TYPE_CHECKING",
                "typing.TYPE_CHECKING",
            ):
                _collect(module, ast.Module(body, []), for_types_only=True, found=found, function=function)
                others = ast.Module(otherwise, [])
                _collect(module, others, for_types_only=for_types_only, found=found, function=function)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not function:
                _collect(module, child, for_types_only=for_types_only, found=found, function=name)
            case _:
                _collect(module, child, for_types_only=for_types_only, found=found, function=function)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.package.split(".")
    base = parts[: len(parts) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)
