"""Prepares a Python worker of Spark for its next tasks."""

import gc
import sys
from typing import Final

from pyspark import TaskContext

LIBRARIES: Final = frozenset(
    {
        *(
            "pyspark",
            "py4j",
            "pyarrow",
            "pandas",
            "numpy",
            "dateutil",
            "pytz",
            "six",
            "tzdata",
            "typing_extensions",
            "packaging",
            "psutil",
        ),
        *(
            "sparklog",
            "pyspark_sparklog",
            "msgspec",
            "crc32c",
            "cramjam",
            "lz4",
            "zstandard",
            "fastavro",
            "google",
        ),
        *("__main__", "org", "cython_runtime", "sitecustomize", "_distutils_hack", "_virtualenv"),
    }
)
"""Modules of Spark, of this package and of their dependencies; py4j creates `org`, and `__main__` is the
worker's own.
"""
_GENERATED: Final = ("_cython_", "_sysconfigdata_")

_modules_settled = 0


def settle() -> None:
    """Excludes the objects of loaded modules from garbage collection, after a task that loaded modules.

    Spark collects garbage after every task, before the worker takes the next one, and nearly all objects it
    scans belong to modules: twenty milliseconds of each small task, ten more with pandas, which PySpark
    loads after a write. Frozen objects are still freed when their last reference goes; only their cycles
    stay. A worker that has loaded a user's module is left alone, because that module may release objects
    later. Functions pickled by value keep nothing once their task is collected.
    """
    global _modules_settled
    if len(sys.modules) == _modules_settled or TaskContext.get() is None:
        return
    _modules_settled = len(sys.modules)
    if foreign_modules():
        return
    gc.collect()
    gc.freeze()


def foreign_modules() -> set[str]:
    """The packages and modules that this process has loaded, other than Python's and those of `LIBRARIES`."""
    loaded = {name.partition(".")[0] for name in sys.modules}
    return {name for name in loaded - LIBRARIES - sys.stdlib_module_names if not name.startswith(_GENERATED)}
