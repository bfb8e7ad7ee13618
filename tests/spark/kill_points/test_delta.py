"""From a topic into a Delta table: what is written again with its version is there once, whatever killed
the driver.
"""

from collections.abc import Iterator

import pytest

from tests.spark.kill_points.harness import Harness, KillableBroker, wrong
from tests.spark.kill_points.points import RAISE
from tests.tools import DELTA_JARS, require_command

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def with_delta(
    killable_broker: KillableBroker, one_harness: Harness, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    """A harness whose Sparks know Delta."""
    require_command("java")
    jars = [
        jar for pattern in ("delta-spark_*.jar", "delta-storage-*.jar") for jar in DELTA_JARS.glob(pattern)
    ]
    if not jars:
        pytest.skip(f"no Delta JARs in {DELTA_JARS}: `make jars` fetches them with Maven")
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    harness = Harness(killable_broker, one_harness.points, tmp_path_factory.mktemp("delta"), **settings)
    yield harness
    harness.close()


@pytest.mark.parametrize("how", ["killed", "raised"])
def test_a_stream_that_dies_after_delta_has_its_batch_writes_it_again_and_it_counts_once(
    with_delta: Harness, how: str
) -> None:
    points = with_delta.points
    points.forget()
    query = with_delta.query(kind="delta")
    table = query.checkpoint.with_name(f"{query.target}-table")
    query.options.update(txnAppId=query.target, path=str(table))
    for batch in (0, 1):
        points.on("committed", query.target, with_delta.kill_spark if how == "killed" else RAISE, batch=batch)
    with_delta.run_to_the_end(query, failures=2)
    points.check()
    assert [point.batch for point in points.passed if point.name == "committed"] == [0, 0, 1, 1, 2, 3]
    assert wrong(with_delta.spark.numbers_in(table)) == {}
