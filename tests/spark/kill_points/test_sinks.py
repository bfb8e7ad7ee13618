"""Several sinks side by side, and batch writes with a version."""

import pytest

from tests.spark.kill_points.harness import COUNT, PER_BATCH, Harness, is_exact
from tests.spark.kill_points.points import RAISE

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


def test_sinks_whose_names_begin_alike_do_not_end_each_others_transactions(harness: Harness) -> None:
    dotted = harness.query(sinkId="a.b")
    plain = harness.sibling(dotted, sinkId="a")
    held = harness.points.hold("commit", dotted.target, batch=1)
    number = harness.spark.start(dotted)
    held.reached()
    harness.run_to_the_end(plain, failures=0)  # with a sweep after each of its batches
    held.release()
    raised = harness.spark.ended(number)
    assert raised is None, raised
    assert is_exact(dotted)
    assert is_exact(plain)


def test_a_batch_that_for_each_batch_writes_again_with_its_version_counts_once(harness: Harness) -> None:
    query = harness.query(kind="batches", txnAppId="copy")
    harness.points.on("committed", query.target, RAISE, batch=1)
    harness.run_to_the_end(query, failures=1)
    harness.points.check()
    numbers = [at.batch for at in harness.points.passed if at.name == "committed"]
    assert numbers == [0, 1, 1, *range(2, COUNT // PER_BATCH)]
    assert is_exact(query)


def test_a_driver_killed_after_a_batch_write_writes_it_again_and_it_counts_once(harness: Harness) -> None:
    query = harness.query(kind="batches", txnAppId="copy-2")
    harness.points.on("committed", query.target, harness.kill_spark, batch=1)
    harness.run_to_the_end(query, failures=1)
    harness.points.check()
    assert is_exact(query)
