"""The same against a real Kafka, which knows nothing of decisions."""

from collections.abc import Iterator

import pytest

from tests.compatibility.kafka_broker import RealKafka
from tests.spark.kill_points.harness import Harness, is_exact
from tests.spark.kill_points.points import RAISE

pytestmark = [pytest.mark.spark, pytest.mark.compat, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    kafka = RealKafka(tmp_path_factory.mktemp("kafka"))
    with kafka.running():
        yield kafka


@pytest.mark.parametrize("point", ["written", "decide", "first_end"])
def test_a_driver_killed_in_a_commit_to_kafka_is_replayed_without_loss_or_duplicate(
    harness: Harness, kafka: RealKafka, point: str
) -> None:
    query = harness.query(servers=kafka.bootstrap_servers)
    harness.points.on(point, query.target, harness.kill_spark, batch=1)
    harness.run_to_the_end(query, failures=1)
    harness.points.check()
    assert is_exact(query)


def test_a_commit_to_kafka_that_raises_is_followed_by_abort_and_counts_once(
    harness: Harness, kafka: RealKafka
) -> None:
    query = harness.query(servers=kafka.bootstrap_servers)
    harness.points.on("decide", query.target, RAISE, batch=1)
    harness.run_to_the_end(query, failures=1)
    harness.points.check()
    assert is_exact(query)
