"""What is done once for a Python worker of Spark, which is used for one task after another."""

import gc

from pyspark import TaskContext

_is_settled = False


def settle() -> None:
    """Take what this worker has loaded by now out of Python's garbage collection; once, at the end of its first task.

    Spark collects garbage after every task, before the worker can take the next one, and nearly all that is looked at then are modules:
    some ten milliseconds of each small task. What is frozen is still freed when nobody refers to it; only cycles of it would stay.
    """
    global _is_settled
    if _is_settled or TaskContext.get() is None:
        return
    gc.collect()
    gc.freeze()
    _is_settled = True
