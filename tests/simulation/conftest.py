"""The memory of simulated worlds."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def earlier_objects_are_frozen() -> Iterator[None]:
    """A world that has ended is a cycle of many megabytes. The collector looks at the oldest objects only
    when their number has grown by a quarter: among those of all earlier tests, after dozens of worlds.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # the number of the oldest objects is that of the last full collection
    yield
    gc.unfreeze()
