"""Finds places where the order of a set leaks into behaviour: a small, local type inference over `ast`.

A name or attribute is a set if it is annotated or assigned so; a call, if it makes a set or calls a
function annotated to return one. Consumers whose result does not depend on order (`sorted`, `len`, `any`,
`sum`, membership, another set) are fine.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SET_TYPES = {"set", "frozenset", "Set", "AbstractSet", "MutableSet"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
ORDER_BLIND = {"sorted", "len", "any", "all", "sum", "min", "max", "set", "frozenset", "bool"}
ORDER_BOUND = {"list", "tuple", "iter", "enumerate", "zip", "map", "filter", "next", "reversed", "dict"}


@dataclass(frozen=True)
class Annotated:
    """Names that mean a set wherever they appear: attributes and functions that are annotated so and never
    otherwise.
    """

    attributes: frozenset[str]
    functions: frozenset[str]


def annotated_sets(trees: Iterable[ast.Module]) -> Annotated:
    """Gather the annotations of all `trees`: a name that is also annotated as something else is left out."""
    attributes: dict[str, bool] = {}
    functions: dict[str, bool] = {}
    for tree in trees:
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(body=body):
                    for item in body:
                        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                            _narrow(attributes, item.target.id, is_set_type(item.annotation))
                case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
                    _narrow(attributes, name, is_set_type(annotation))
                case (
                    ast.FunctionDef(name=name, returns=returns)
                    | ast.AsyncFunctionDef(name=name, returns=returns)
                ) if returns is not None:
                    is_property = any(
                        isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list
                    )
                    _narrow(attributes if is_property else functions, name, is_set_type(returns))
    return Annotated(
        frozenset(name for name, is_set in attributes.items() if is_set),
        frozenset(name for name, is_set in functions.items() if is_set),
    )


def _narrow(known: dict[str, bool], name: str, is_set: bool) -> None:
    known[name] = known.get(name, True) and is_set


def is_set_type(annotation: ast.expr) -> bool:
    """Whether an annotation says set, also as `set[...] | None` or as a string."""
    match annotation:
        case ast.Subscript(value=value):
            return is_set_type(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in SET_TYPES
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return is_set_type(left) or is_set_type(right)
        case ast.Constant(value=str(text)):
            return is_set_type(ast.parse(text, mode="eval").body)
    return False


def leaks(tree: ast.Module, annotated: Annotated) -> Iterator[tuple[int, str]]:
    """Each `(line, source)` where the order of a set decides something."""
    yield from _in_scope(tree, frozenset(), annotated)


def _in_scope(scope: ast.AST, outer: frozenset[str], annotated: Annotated) -> Iterator[tuple[int, str]]:
    names = _set_names(scope, outer, annotated)
    nodes = list(_own_nodes(scope))
    excused = {id(argument) for node in nodes if _is_order_blind(node) for argument in node.args}  # type: ignore[attr-defined]
    for node in nodes:
        for expression in _iterated(node, excused):
            if _is_set(expression, names, annotated):
                yield expression.lineno, ast.unparse(expression)
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="pop"), args=[]) if _is_set(
                value, names, annotated
            ):
                yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _in_scope(node, names, annotated)


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without what lies inside nested functions (the function nodes themselves are
    given).
    """
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _own_nodes(child)


def _is_order_blind(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in SET_METHODS | {
            "update",
            "issubset",
            "issuperset",
            "isdisjoint",
            "difference_update",
        } - {"copy"}
    if not isinstance(node.func, ast.Name) or node.func.id not in ORDER_BLIND:
        return False
    # Among elements of equal key, min and max take the first met.
    return not (
        node.func.id in ("min", "max")
        and node.keywords
        and any(keyword.arg == "key" for keyword in node.keywords)
    )


def _iterated(node: ast.AST, excused: set[int]) -> list[ast.expr]:
    """The expressions that `node` goes through in their own order."""
    match node:
        case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated):
            return [iterated]
        case ast.GeneratorExp(generators=generators) if id(node) in excused:
            return []
        case ast.ListComp(generators=generators) if id(node) in excused:
            return []
        case (
            ast.GeneratorExp(generators=generators)
            | ast.ListComp(generators=generators)
            | ast.DictComp(generators=generators)
        ):
            return [generator.iter for generator in generators]
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in ORDER_BOUND:
            return [] if id(node) in excused else list(arguments)
        case ast.Call(func=ast.Name(id="min" | "max"), args=arguments) if not _is_order_blind(node):
            return list(arguments)
        case ast.Call(
            func=ast.Attribute(attr="join" | "fromkeys" | "extend" | "appendleft" | "extendleft"),
            args=arguments,
        ):
            return list(arguments)
        case ast.Starred(value=value) | ast.YieldFrom(value=value):
            return [value]
    return []


def _set_names(scope: ast.AST, outer: frozenset[str], annotated: Annotated) -> frozenset[str]:
    """Local names that hold sets: by annotation, else by every assignment."""
    claims: dict[str, bool] = dict.fromkeys(sorted(outer), True)
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        arguments = scope.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            claims[argument.arg] = argument.annotation is not None and is_set_type(argument.annotation)
    for node in _own_nodes(scope):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                claims[name] = is_set_type(annotation)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                known = frozenset(claimed for claimed, is_set in claims.items() if is_set)
                claims[name] = _is_set(value, known, annotated)
    return frozenset(name for name, is_set in claims.items() if is_set)


def _is_set(node: ast.expr, names: frozenset[str], annotated: Annotated) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(attr=name):
            return name in annotated.attributes
        case ast.Call(func=ast.Name(id=name)):
            return name in ("set", "frozenset") or name in annotated.functions
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in SET_METHODS:
            return _is_set(value, names, annotated)
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in annotated.functions
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return any(_is_set(side, names, annotated) or _is_keys(side) for side in (left, right))
        case ast.IfExp(body=body, orelse=otherwise):
            return _is_set(body, names, annotated) or _is_set(otherwise, names, annotated)
    return False


def _is_keys(node: ast.expr) -> bool:
    """`a.keys() - b` is a set, though `a.keys()` alone keeps the order of insertion."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("keys", "items")
        and not node.args
    )
