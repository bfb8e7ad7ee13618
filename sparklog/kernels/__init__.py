"""Compiled functions over buffers and their pure-Python counterparts; only this file chooses between the two.

`from sparklog.kernels import codec, scan, walk, columns, clean, avro, gather` gives the modules that
`SPARKLOG_KERNELS` chooses: `auto` (compiled if built, else the reference), `compiled` or `reference`. With
`compiled`, a kernel that is not built is an error. A kernel takes buffers and integers, imports nothing of
sparklog outside this package, and returns positions, plain values or a `BatchHeader`, or raises ValueError
with a position.

The kernels in Python are the oracle of the tests, and run where no compiled module can be loaded: in a zip
file of a Spark job, and without a compiler (docs/decisions/0025).

The JSON kernel, and `read_records` of the Avro kernel, have no pure-Python counterpart: `compiled` returns
them, and if it returns None, pyarrow reads JSON and fastavro reads Avro.
"""

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sparklog.kernels import avro_reference as avro
    from sparklog.kernels import clean_reference as clean
    from sparklog.kernels import codec_reference as codec
    from sparklog.kernels import columns_reference as columns
    from sparklog.kernels import gather_reference as gather
    from sparklog.kernels import scan_reference as scan
    from sparklog.kernels import walk_reference as walk

__all__ = [
    "avro",
    "clean",
    "codec",
    "columns",
    "compiled",
    "gather",
    "implementation",
    "load",
    "scan",
    "walk",
]

NAMES = frozenset({"avro", "clean", "codec", "columns", "gather", "scan", "walk"})
"""The kernels that have a pure-Python counterpart."""


def wanted() -> str:
    """The value of `SPARKLOG_KERNELS`."""
    choice = os.environ.get("SPARKLOG_KERNELS", "auto")
    if choice not in ("auto", "compiled", "reference"):
        raise ValueError(f"SPARKLOG_KERNELS={choice!r}: must be auto, compiled or reference")
    return choice


def load(name: str, choice: str) -> ModuleType:
    """The kernel `name` in the implementation `choice` (auto, compiled or reference)."""
    if choice != "reference":
        try:
            return importlib.import_module(f"sparklog.kernels.{name}_compiled")
        except ImportError as error:
            if choice == "compiled":
                raise ImportError(
                    f"SPARKLOG_KERNELS=compiled, but kernel {name!r} is not built ({error}); run `make setup`"
                ) from error
    return importlib.import_module(f"sparklog.kernels.{name}_reference")


def compiled(name: str) -> ModuleType | None:
    """The compiled kernel `name`; None if it is not built or `SPARKLOG_KERNELS=reference`."""
    choice = wanted()
    if choice == "reference":
        return None
    try:
        return load(name, "compiled")
    except ImportError:
        if choice == "compiled":
            raise
        return None


def implementation() -> Literal["compiled", "reference"]:
    """The implementation used by this process."""
    return "compiled" if load("codec", wanted()).__name__.endswith("_compiled") else "reference"


def __getattr__(name: str) -> ModuleType:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = load(name, wanted())
    globals()[name] = module
    return module
