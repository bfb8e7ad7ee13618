"""What is done for a Python worker of Spark, which is used for one task after another."""

import gc
import sys

from pyspark import TaskContext

_modules_settled = 0


def settle() -> None:
    """Take what this worker has loaded by now out of Python's garbage collection: after a task, if modules came since the last one.

    Spark collects garbage after every task, before the worker can take the next one, and nearly all that is looked at then are modules:
    twenty milliseconds of each small task, ten more with pandas, which PySpark loads when it has written. What is frozen is still freed
    when nobody refers to it; only cycles of it would stay.
    """
    global _modules_settled
    if len(sys.modules) == _modules_settled or TaskContext.get() is None:
        return
    gc.collect()
    gc.freeze()
    _modules_settled = len(sys.modules)
