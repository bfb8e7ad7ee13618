"""What is done once for a Python worker of Spark."""

import gc

from sparklog.spark.workers import settle


def test_outside_of_a_task_nothing_is_taken_out_of_garbage_collection() -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before
