"""The work for a Python worker of Spark between its tasks."""

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from pyspark import TaskContext

from sparklog.spark import workers
from sparklog.spark.workers import foreign_modules, settle


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process as a worker in a task, all that it has loaded by now taken for libraries."""
    monkeypatch.setattr(TaskContext, "get", object)  # an instance of its own would stay the current one
    monkeypatch.setattr(workers, "LIBRARIES", workers.LIBRARIES | foreign_modules() | {"come_later"})
    yield
    gc.unfreeze()


def loaded(name: str) -> ModuleType:
    module = ModuleType(name)
    module.objects = [[number] for number in range(100_000)]  # type: ignore[attr-defined]
    return module


def test_outside_of_a_task_nothing_is_taken_out_of_garbage_collection() -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before


def test_modules_that_come_after_the_first_task_are_taken_out_as_well(
    task: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle()
    after_the_first_task = gc.get_freeze_count()
    come_later = loaded("come_later")
    settle()
    assert gc.get_freeze_count() <= after_the_first_task
    monkeypatch.setitem(sys.modules, "come_later", come_later)
    settle()
    assert gc.get_freeze_count() >= after_the_first_task + 90_000


def test_in_a_worker_that_has_loaded_a_module_of_a_user_nothing_is_taken_out(
    task: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = gc.get_freeze_count()
    monkeypatch.setitem(sys.modules, "models_of_a_user.cache", loaded("models_of_a_user.cache"))
    assert foreign_modules() == {"models_of_a_user"}
    settle()
    assert gc.get_freeze_count() == before


def test_what_spark_and_this_package_load_is_not_taken_for_a_users() -> None:
    for name in (
        "pyspark.sql.types",
        "pyarrow.lib",
        "sparklog.spark.readers",
        "_cython_3_1_4",
        "json.decoder",
        "__main__",
    ):
        assert name.partition(".")[0] not in foreign_modules()
