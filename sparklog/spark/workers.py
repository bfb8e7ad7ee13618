"""Preparation of a Python worker of Spark, which runs one task after another."""

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
"""Modules of Spark, of this package and of what both need; `org` is one that py4j makes, `__main__` the
worker's own.
"""
_GENERATED: Final = ("_cython_", "_sysconfigdata_")

_modules_settled = 0


def settle() -> None:
    """Take what this worker has loaded by now out of Python's garbage collection: after a task, if modules
    came since the last one.

    Spark collects garbage after every task, before the worker can take the next one, and nearly all that
    is looked at then are modules: twenty milliseconds of each small task, ten more with pandas, which
    PySpark loads when it has written. What is frozen is still freed when nothing refers to it; only cycles
    of it would stay. So a worker that has loaded a module of a user is left as it is: what that module
    keeps between tasks may be given up later. Functions that came by value keep nothing once their task is
    collected.
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
    """Packages and modules this process has loaded that are neither Python's nor those of `LIBRARIES`."""
    loaded = {name.partition(".")[0] for name in sys.modules}
    return {name for name in loaded - LIBRARIES - sys.stdlib_module_names if not name.startswith(_GENERATED)}
