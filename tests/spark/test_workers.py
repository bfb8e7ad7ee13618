"""What is done for a Python worker of Spark between its tasks."""

import gc
import sys
from types import ModuleType

import pytest
from pyspark import TaskContext

from sparklog.spark.workers import settle


def test_outside_of_a_task_nothing_is_taken_out_of_garbage_collection() -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before


def test_modules_that_come_after_the_first_task_are_taken_out_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", object)  # an instance of its own would stay the current one
    try:
        settle()
        after_the_first_task = gc.get_freeze_count()
        come_later = ModuleType("come_later")
        come_later.objects = [[number] for number in range(100_000)]  # type: ignore[attr-defined]
        settle()
        assert gc.get_freeze_count() <= after_the_first_task
        monkeypatch.setitem(sys.modules, "come_later", come_later)
        settle()
        assert gc.get_freeze_count() >= after_the_first_task + 90_000
    finally:
        gc.unfreeze()
