"""Each setting is read by the broker, or declared as one without effect."""

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_type_hints

import msgspec

import sparklog_server.config as config
from sparklog_server.config.keys import Key
from tests.architecture.source_tree import modules


def declared() -> Iterator[tuple[str, Key]]:
    """The fields of the settings with their keys."""
    for place in pkgutil.iter_modules(config.__path__):
        module = import_module(f"{config.__name__}.{place.name}")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if not issubclass(kind, msgspec.Struct) or kind.__module__ != module.__name__:
                continue
            hints: dict[str, Any] = get_type_hints(kind, include_extras=True)
            for field, hint in hints.items():
                yield from ((field, key) for key in getattr(hint, "__metadata__", ()) if isinstance(key, Key))


def test_every_setting_is_read_or_declared_as_one_without_effect() -> None:
    read = {
        node.attr
        for name, module in modules().items()
        if name.startswith("sparklog_server.")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
    }
    fields = list(declared())
    assert len(fields) > 100
    assert [key.name for field, key in fields if key.has_effect and field not in read] == []
